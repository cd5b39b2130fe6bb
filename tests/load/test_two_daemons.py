"""Two daemons on one session root: of two that want the same session, one gets it and the other is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordisd.mock import MockModelThread, Received, Reply, text
from cordisd.session.condition import examine
from cordisd.session.layout import locate
from cordisd.session.store import SessionStore
from cordisd.session.survey import survey
from daemon import Daemon

pytestmark = pytest.mark.load

N_ROUNDS = 12
EXISTS, BUSY = -32001, -32003


def reply(request: Received) -> Reply:
    return text("done")


def race(daemons: list[Daemon], method: str, *params: dict[str, object]) -> int:
    """Have both daemons asked at once; exactly one may do it. Returns which."""
    numbers = [daemon.send(method, one) for daemon, one in zip(daemons, params, strict=True)]
    answers = [
        daemon.wait(lambda daemon=daemon, number=number: daemon.answer(number))
        for daemon, number in zip(daemons, numbers, strict=True)
    ]
    [winner] = [number for number, answer in enumerate(answers) if "result" in answer]
    assert answers[1 - winner]["error"]["code"] in (EXISTS, BUSY), answers
    return winner


def test_of_two_daemons_that_want_a_session_one_gets_it(tmp_path: Path) -> None:
    work = tmp_path / "w"
    work.mkdir()
    prompts = [
        {"contentBlocks": [{"type": "text", "text": f"from {number}"}], "sessionId": ""} for number in (0, 1)
    ]
    with (
        MockModelThread(reply) as mock,
        Daemon(work, model_url=mock.url) as first,
        Daemon(work, model_url=mock.url) as second,
    ):
        daemons = [first, second]
        for daemon in daemons:
            daemon.initialize()
        for number in range(N_ROUNDS):
            session = f"s{number}"
            winner = race(daemons, "session/prompt", *({**one, "sessionId": session} for one in prompts))
            daemons[winner].wait_idle(session)
            loser = daemons[1 - winner]
            if loser.ask("session/close", {"sessionId": session}).get("error") is None:
                assert loser.refused("session/prompt", {**prompts[0], "sessionId": session})[0] == BUSY
            assert loser.refused("session/resume", {"sessionId": session})[0] == BUSY
            log = SessionStore(first.sessions).read(locate(first.sessions, session))[1]
            said = [event.data["content"][0]["text"] for event in log if event.type == "user/message"]
            assert said == [f"from {winner}"]
            daemons[winner].request("session/close", {"sessionId": session})
            winner = race(daemons, "session/resume", *[{"sessionId": session}] * 2)
            daemons[winner].run(session, "goes on")
            assert daemons[1 - winner].refused("session/resume", {"sessionId": session})[0] == BUSY
        for daemon in daemons:
            assert daemon.end() == 0
            assert b"Traceback" not in daemon.stderr
    assert {examine(found).status for found in survey(first.sessions)} == {"ok"}

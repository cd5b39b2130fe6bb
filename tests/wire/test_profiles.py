"""Frozen profiles over the wire: what was locked is sent, or nothing is (FP-1 to FP-9)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordisd.agent.profile import LOCK_FILE
from cordisd.mock import MockModel, MockModelThread, Received, Reply, call, text
from daemon import Daemon
from frozen_presets import SHIPPED, freeze, host_daemon, lock, refused
from measure import PATIENCE_S

MISMATCH = (2301, "profile_hash_mismatch")
OVERRIDE = (2303, "profile_override_refused")
MUTATIONS = {
    "a letter of the prompt": ("helpful software", "helpful  software"),
    "a blank in the bash description": ("Run commands in a bash shell.", "Run commands in a bash  shell."),
    "the order of the tools": ("toolOrder: null", 'toolOrder: [str_replace_editor, "<unlisted-tools>"]'),
    "a tool's schema": ("undoEdit: false", "undoEdit: true"),
    "a behavioural key": ("timeoutMs: 300000", "timeoutMs: 300001"),
    "a parameter": ("parameters: {}", "parameters: {temperature: 0}"),
    "a tool more": ("- id: bash\n", '- {name: "agents:OfferEntry"}\n- id: bash\n'),
    "an entry without effect": (
        "- id: bash\n",
        "- {name: section, config: {name: s, text: t}}\n- id: bash\n",
    ),
    "a key that is no longer written": ("    undoEdit: false\n", ""),
    "no entry that freezes": ("- id: profile\n  name: profile\n  config:\n    id: {id}\n", ""),
    "one that is switched off": ("- id: profile\n", "- id: profile\n  disabled: !!js process.env.HOME\n"),
}


def finish(request: Received) -> Reply:
    """A tool call first, then the end of the turn."""
    last = request.json["messages"][-1]
    return call("c", "bash", {"command": "true"}) if last["role"] == "user" else text("done")


@pytest.fixture
def mock() -> Iterator[MockModel]:
    with MockModelThread(finish) as running:
        yield running


def outcome(daemon: Daemon, session: str, prompt: str = "go") -> dict[str, Any]:
    """The reason of the turn's end."""
    ends = [event for event in daemon.run(session, prompt) if event["type"] == "turn/end"]
    reason: dict[str, Any] = ends[-1]["data"]["reason"]
    return reason


def test_a_profile_with_anything_changed_makes_no_session(tmp_path: Path, mock: MockModel) -> None:
    root = tmp_path / "presets"
    names = {kind: f"m{number}-v1" for number, kind in enumerate(MUTATIONS)}
    paths = {kind: freeze(root, name) for kind, name in names.items()}
    with host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize()
        for name in names.values():
            lock(daemon, root, name)
        for kind, (old, new) in MUTATIONS.items():
            before = paths[kind].read_text()
            create = {"sessionId": names[kind], "preset": names[kind]}
            after = before.replace(old.replace("{id}", names[kind]), new)
            assert after != before, kind
            paths[kind].write_text(after)
            assert refused(daemon, "session/create", create)[:2] == MISMATCH, kind
            daemon.initialize(preset=names[kind])
            prompt = {"sessionId": "other", "contentBlocks": [{"type": "text", "text": "go"}]}
            assert refused(daemon, "session/prompt", prompt)[:2] == MISMATCH, kind
            paths[kind].write_text(before)
            assert daemon.request("session/create", create)["preset"] == names[kind], kind
        assert len(daemon.request("session/list")["sessions"]) == len(MUTATIONS)
    assert mock.requests == []
    assert not list(daemon.sessions.rglob("*.jsonl"))


def test_a_lock_that_is_missing_changed_or_malformed_makes_no_session(
    tmp_path: Path, mock: MockModel
) -> None:
    root = tmp_path / "presets"
    freeze(root, "one-v1")
    freeze(root, "two-v1")
    file = root / LOCK_FILE
    with host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize(preset="one-v1")
        code, name, message = refused(daemon, "session/create", {})
        assert (code, name) == MISMATCH
        assert f"is not locked in {file}" in message
        lock(daemon, root, "two-v1")
        assert refused(daemon, "session/create", {})[:2] == MISMATCH
        lock(daemon, root, "one-v1")
        good = file.read_text()
        hashes = json.loads(good)
        for part in hashes["one-v1"]:
            changed = hashes["one-v1"] | {part: "0" * 64}
            file.write_text(json.dumps(hashes | {"one-v1": changed}))
            code, name, message = refused(daemon, "session/create", {})
            assert (code, name) == MISMATCH
            assert f"{part} is {hashes['one-v1'][part]}, locked is {'0' * 64}" in message
        for broken in ("{", "[]", '{"one-v1": 1}', good[:-20]):
            file.write_text(broken)
            code, name, message = refused(daemon, "session/create", {})
            assert (code, name) == (-32603, None)
            assert str(file) in message
            listed = daemon.request("preset/list")["presets"][0]
            assert (listed["name"], listed["problem"]) == ("one-v1", message)
        assert refused(daemon, "profile/get", {})[2] == "profile/get: give either sessionId or preset"
        file.write_text(good)
        assert daemon.request("session/create", {"sessionId": "s"})["profile"] == {
            "id": "one-v1",
            **hashes["one-v1"],
        }
        file.unlink()
        assert outcome(daemon, "s") == {"kind": "completed"}, "what was met when it was made is pinned"
    assert len(mock.requests) == 2


def test_tools_that_drift_after_creation_send_nothing_and_the_log_says_so(
    tmp_path: Path, mock: MockModel
) -> None:
    root, work = tmp_path / "presets", tmp_path / "w"
    freeze(root, "one-v1")
    kinds = ["append", "reorder", "describe", "mutate", "remove"]
    sessions = [*kinds, *(f"{kind}-from-2" for kind in kinds), "speak", "calm"]
    with host_daemon(work, root, mock.url, '  - {name: "drift_entries:DriftEntry"}\n') as daemon:
        daemon.initialize(preset="one-v1")
        lock(daemon, root, "one-v1")
        for session in sessions:
            (work / session).mkdir()
            daemon.request("session/create", {"sessionId": session, "cwd": session})
            reasons = [outcome(daemon, session, f"{session} {number}") for number in range(2)]
            if session in ("speak", "calm"):
                assert reasons == [{"kind": "completed"}] * 2
                continue
            for reason in reasons:
                assert reason["kind"] == "error"
                assert reason["error"]["code"] == "PROFILE_HASH_MISMATCH"
                assert "one-v1" in reason["error"]["message"]
            logged = [row for row in daemon.log(session) if row["type"] == "turn/end"]
            assert [row["data"]["reason"] for row in logged] == reasons
    prompts = [request.json["messages"][1]["content"].rsplit(" ", 1)[0] for request in mock.requests]
    late = [f"{kind}-from-2" for kind in kinds]
    assert sorted(prompts) == sorted([*late, *["speak", "calm"] * 4]), "nothing was sent that was not locked"
    assert len({json.dumps([r.json["messages"][0], r.json["tools"]]) for r in mock.requests}) == 1


def test_another_version_of_a_tool_does_not_meet_the_lock(tmp_path: Path, mock: MockModel) -> None:
    root = tmp_path / "presets"
    freeze(root, "one-v1")
    with host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize()
        lock(daemon, root, "one-v1")
    with host_daemon(tmp_path / "w", root, mock.url, '  - {name: "drift_entries:ContractEntry"}\n') as daemon:
        daemon.initialize()
        code, name, message = refused(daemon, "session/create", {"preset": "one-v1"})
    assert (code, name) == MISMATCH
    assert "tools_sha256" not in message, "what the model reads before the first call is the same"


@pytest.mark.parametrize("value", ["", "Be somebody else."])
def test_a_prompt_from_the_environment_is_refused_for_frozen_presets_only(
    value: str, tmp_path: Path, mock: MockModel
) -> None:
    root = tmp_path / "presets"
    freeze(root, "one-v1")
    shutil.copytree(root / "one-v1", root / "free")
    free = root / "free" / "agent.cordis.yml"
    free.write_text(
        free.read_text().replace("- id: profile\n  name: profile\n  config:\n    id: one-v1\n", "")
    )
    with host_daemon(tmp_path / "w", root, mock.url, DSH_SYSTEM_PROMPT=value) as daemon:
        daemon.initialize()
        lock(daemon, root, "one-v1")
        code, name, message = refused(daemon, "session/create", {"preset": "one-v1"})
        assert (code, name) == OVERRIDE
        assert "DSH_SYSTEM_PROMPT" in message
        for preset in ({"preset": "free"}, {}):
            session = daemon.request("session/create", preset)["sessionId"]
            assert outcome(daemon, session) == {"kind": "completed"}
    assert mock.requests[0].json["messages"][0]["content"] == "You are a helpful software engineer assistant."


def test_a_limit_that_a_profile_pins_cannot_be_chosen_and_one_that_it_does_not_is_recorded(
    tmp_path: Path, mock: MockModel
) -> None:
    root = tmp_path / "presets"
    freeze(root, "open-v1")
    pinning = SHIPPED.replace("parameters: {}", "parameters: {max_tokens: 100, reasoning_effort: low}")
    freeze(root, "pins-v1", pinning)
    with host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize()
        for name in ("open-v1", "pins-v1"):
            lock(daemon, root, name)
        assert refused(daemon, "session/create", {"preset": "pins-v1", "maxTokens": 5})[:2] == OVERRIDE
        assert refused(daemon, "session/create", {"preset": "pins-v1", "maxTokens": 100})[:2] == OVERRIDE
        daemon.request("session/create", {"sessionId": "pins", "preset": "pins-v1"})
        daemon.request("session/create", {"sessionId": "open", "preset": "open-v1", "maxTokens": 5})
        for session in ("pins", "open"):
            assert outcome(daemon, session) == {"kind": "completed"}
        daemon.initialize(reasoningEffort="high")
        code, name, message = refused(daemon, "session/create", {"preset": "pins-v1"})
        assert (code, name) == OVERRIDE
        assert "reasoningEffort" in message
        daemon.request("session/create", {"sessionId": "effort", "preset": "open-v1"})
        assert outcome(daemon, "effort") == {"kind": "completed"}
        recorded = {
            session: next(row for row in daemon.log(session) if row["type"] == "request/header")["data"]
            for session in ("pins", "open", "effort")
        }
    sent = [request.json for request in mock.requests[::2]]
    assert [(body.get("max_tokens"), body.get("reasoning_effort")) for body in sent] == [
        (100, "low"),
        (5, None),
        (None, "high"),
    ]
    assert [recorded[name]["parameters"] for name in recorded] == [
        {"max_tokens": 100, "reasoning_effort": "low"},
        {"max_tokens": 5},
        {"reasoning_effort": "high"},
    ]


def test_fields_that_a_frozen_session_does_not_take_queue_nothing(tmp_path: Path, mock: MockModel) -> None:
    root = tmp_path / "presets"
    freeze(root, "one-v1")
    with host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize(preset="one-v1")
        lock(daemon, root, "one-v1")
        daemon.request("session/create", {"sessionId": "s"})
        blocks = [{"type": "text", "text": "go"}]
        for field in ({"outputSchema": {"type": "object"}}, {"capabilities": ["search"]}):
            code, _, message = refused(
                daemon, "session/prompt", {"sessionId": "s", "contentBlocks": blocks, **field}
            )
            assert code == -32602
            assert next(iter(field)) in message
        assert daemon.request("session/get", {"sessionId": "s"})["lastSeq"] == -1
        limits = {"maxTurns": 3, "noticeTurns": 1}
        code, data, message = refused(daemon, "session/create", {"sessionId": "t", "limits": limits})
        assert (code, data) == (2303, "profile_override_refused")
        assert (
            'limits.noticeTurns would add a message to what the frozen profile "one-v1" is shown' in message
        )
        del limits["noticeTurns"]
        assert daemon.request("session/create", {"sessionId": "t", "limits": limits})["preset"] == "one-v1"
    assert mock.requests == []


UNFIT = {
    "web-v1": ("- id: bash\n", '- {name: "agents:OfferEntry", config: {tool: web_fetch}}\n- id: bash\n'),
    "page-v1": ("- id: bash\n", '- {name: "agents:OfferEntry", config: {tool: browser_open}}\n- id: bash\n'),
    "place-v1": ("software engineer", "software engineer in {{cwd}}"),
    "told-v1": ("includeRuntimeContext: false", "includeRuntimeContext: true"),
    "open-v1": ("complete: true", "complete: false"),
    "bare-v1": ("- id: persona\n", "- id: persona\n  disabled: true\n"),
    "js-v1": ("timeoutMs: 300000", "timeoutMs: !!js 300000"),
    "name-v1": ("id: name-v1", "id: another-v1"),
    "unversioned": ("", ""),
}
COMPLAINTS = {
    "web-v1": 'must not offer the web tool "web_fetch"',
    "page-v1": 'must not offer the web tool "browser_open"',
    "place-v1": "must not hold {{variables}}",
    "told-v1": "write includeRuntimeContext: false",
    "open-v1": "needs one complete section",
    "bare-v1": "needs one complete section",
    "js-v1": "agent.cordis.yml:38",
    "name-v1": 'must be the name of its folder, "name-v1"',
    "unversioned": "$.id",
}


def test_presets_that_cannot_be_frozen_are_listed_with_the_reason_and_make_no_session(
    tmp_path: Path, mock: MockModel
) -> None:
    root = tmp_path / "presets"
    for name, (old, new) in UNFIT.items():
        path = freeze(root, name)
        path.write_text(path.read_text().replace(old, new, 1))
    with host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize()
        listed = {row["name"]: row["problem"] for row in daemon.request("preset/list")["presets"]}
        assert listed.keys() == UNFIT.keys()
        for name, complaint in COMPLAINTS.items():
            assert complaint in listed[name]
            assert complaint in refused(daemon, "session/create", {"preset": name})[2]
    assert mock.requests == []


def test_a_process_composition_cannot_be_frozen(tmp_path: Path) -> None:
    row = "  - {name: profile, config: {id: one-v1}}\n"
    with host_daemon(tmp_path / "w", tmp_path, "http://127.0.0.1:9", row) as daemon:
        assert daemon.process.wait(PATIENCE_S) == 2
    assert b"a profile freezes an agent preset; a process composition has none to freeze" in daemon.stderr


def test_a_blank_session_is_not_switched_to_a_profile_that_is_not_what_was_locked(
    tmp_path: Path, mock: MockModel
) -> None:
    root = tmp_path / "presets"
    path = freeze(root, "one-v1")
    with host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize()
        lock(daemon, root, "one-v1")
        content = path.read_text()
        path.write_text(content.replace("300000", "1"))
        before = daemon.request("session/create", {"sessionId": "s"})
        select = {"sessionId": "s", "preset": "one-v1"}
        assert refused(daemon, "preset/select", select)[:2] == MISMATCH
        assert daemon.request("session/get", {"sessionId": "s"})["digest"] == before["digest"]
        path.write_text(content)
        assert daemon.request("preset/select", select)["profile"]["id"] == "one-v1"
        assert outcome(daemon, "s") == {"kind": "completed"}
        assert [row["data"]["id"] for row in daemon.log("s") if row["type"] == "profile/verified"] == [
            "one-v1"
        ]

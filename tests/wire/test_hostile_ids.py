"""Session ids that want to be paths, or are none: whatever is asked of them, every file is in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordisd.mock import MockModelThread, text
from cordisd.session.names import encode_segment, project_key
from socket_daemon import SocketClient, SocketDaemon

IDS = [
    ".",
    "..",
    "../x",
    "../../w/x",
    "a/b",
    "/etc/x",
    "//",
    "a\\b",
    "nul\0byte",
    "line\nbreak",
    "~002E",
    "-rf",
    " ",
    "\u202e",
    "é" * 51,
    "\N{PILE OF POO}",
    "session.jsonl",
    "session.jsonl.0123456789ab.tmp",
    "i" * 255,
]
"""Each is an id like any other."""
UNSTORABLE = ["é" * 52, "/" * 60]
"""Short enough, but not as the names of folders."""
NO_IDS: list[Any] = ["", "\ud800", "a\udfff", "i" * 256, "i" * 1_000_000, *UNSTORABLE]
NO_IDS += [None, 7, True, ["s"], {"s": 1}]
BLOCKS = [{"type": "text", "text": "x"}]
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("session/create", {}),
    ("session/prompt", {"contentBlocks": BLOCKS}),
    ("session/steer", {"contentBlocks": BLOCKS}),
    ("session/cancel", {}),
    ("session/get", {}),
    ("session/attach", {"from": 0}),
    ("session/detach", {}),
    ("session/events", {"from": 0}),
    ("session/metrics", {}),
    ("session/outcome", {"class": "success"}),
    ("session/working-directory/get", {}),
    ("session/working-directory/set", {"path": "."}),
    ("session/fork", {"newSessionId": "child"}),
    ("session/resume", {}),
    ("preset/select", {"preset": "minimal"}),
    ("profile/get", {}),
    ("session/close", {}),
]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SocketDaemon]:
    folder = tmp_path_factory.mktemp("ids")
    for name in ("w", "tmp"):
        (folder / name).mkdir()
    with (
        MockModelThread(lambda _: text("ok")) as mock,
        SocketDaemon(
            folder / "w", "--socket", str(folder / "s"), model_url=mock.url, TMPDIR=str(folder / "tmp")
        ) as daemon,
    ):
        yield daemon
        assert daemon.end() == 0
        assert b"Traceback" not in daemon.stderr


@pytest.fixture
def client(daemon: SocketDaemon) -> Iterator[SocketClient]:
    with daemon.connect() as client:
        client.initialize()
        yield client


def files_of(daemon: SocketDaemon) -> set[Path]:
    """Every file and link around the daemon's folders, as a path from there."""
    root = daemon.cwd.parent
    return {path.relative_to(root) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


@pytest.mark.parametrize("session", IDS, ids=ascii)
def test_an_id_that_looks_like_a_path_is_a_name(
    session: str, daemon: SocketDaemon, client: SocketClient
) -> None:
    before = files_of(daemon)
    assert client.run(session, "x")[-1]["data"]["reason"] == {"kind": "completed"}
    child = f"{session[:20]}'s child"
    codes: dict[str, int | None] = {}
    for method, params in METHODS:
        fields = {**params, "sessionId": session}
        if method == "session/fork":
            fields["newSessionId"] = child
        answer = client.ask(method, fields)
        codes[method] = answer.get("error", {}).get("code")
    refused = {method for method, code in codes.items() if code is not None}
    assert refused == {"session/create", "session/resume", "preset/select", "profile/get"}, codes
    assert -32603 not in codes.values()
    assert client.request("session/close", {"sessionId": child}) == {}
    client.request("session/resume", {"sessionId": session})
    client.request("session/close", {"sessionId": session})
    project = Path("w-sessions") / project_key(str(daemon.cwd))
    names = [encode_segment(name) for name in (session, child)]
    assert files_of(daemon) - before == {project / name / "session.jsonl" for name in names}


@pytest.mark.parametrize("session", NO_IDS, ids=lambda value: ascii(value)[:20])
def test_what_is_no_id_is_refused_by_every_method_and_leaves_nothing(
    session: Any, daemon: SocketDaemon, client: SocketClient
) -> None:
    before = files_of(daemon)
    for method, params in METHODS:
        answer = client.ask(method, {**params, "sessionId": session})
        if session is None and method == "session/create":  # no id: one is made up
            client.request("session/close", {"sessionId": answer["result"]["sessionId"]})
            continue
        if method == "session/detach" and session in UNSTORABLE:
            assert answer["result"] == {}
            continue
        code, message = answer["error"]["code"], answer["error"]["message"]
        assert code in (-32602, -32002), (method, code, message)
        assert len(message) < 1000, "an error is no echo"
    if isinstance(session, str):
        code = client.ask("session/fork", {"sessionId": "s", "newSessionId": session})["error"]["code"]
        assert code in (-32602, -32002)
    assert files_of(daemon) == before

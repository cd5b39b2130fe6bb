"""`cordisd mock-model` as a process: what it prints, serves, logs and ends with."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordisd.mock import text
from cordisd.replay.recording import read_recording
from daemon import clean_environment
from measure import PATIENCE_S
from mock_requests import STREAMED, WHOLE, exchange, http_chunks, post, split
from recorded_sessions import record

SCRIPT = """
- {text: [Hel, lo], faults: {crlf: true}}
- {error: {status: 503, message: busy}}
- {text: else, default: true}
"""


def command(folder: Path, *arguments: str) -> list[str]:
    (folder / "s.yml").write_text(SCRIPT)
    return [sys.executable, "-m", "cordisd", "mock-model", *arguments]


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the server's URL without `/v1`; killed if it still runs on leaving."""
    process = subprocess.Popen(
        command(folder, "s.yml", *arguments),
        cwd=folder,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline()
        assert url.endswith("/v1\n"), process.communicate(timeout=PATIENCE_S)
        yield process, url.removesuffix("/v1\n")
    finally:
        process.kill()
        process.communicate()


def test_a_script_is_served_until_a_signal_and_logged(tmp_path: Path) -> None:
    options = ["--log", "log", "--seed", "5", "--faults", "no-space=1", "--faults", "comments=0"]
    with serving(tmp_path, *options, "--api-key", "k3y", "--model", "a", "--model", "b") as (process, url):
        key = "Authorization: Bearer k3y"
        stream = b"".join(http_chunks(split(exchange(url, post(STREAMED, "/v1/chat/completions", key)))[2]))
        assert stream.startswith(b'data:{"id"') and stream.endswith(b"data:[DONE]\r\n\r\n")
        assert split(exchange(url, post(WHOLE)))[0] == 401
        assert split(exchange(url, post(WHOLE, "/chat/completions", key)))[0] == 503
        models = f"GET /v1/models HTTP/1.1\r\nConnection: close\r\n{key}\r\n\r\n".encode()
        assert [one["id"] for one in json.loads(split(exchange(url, models))[2])["data"]] == ["a", "b"]
        assert b"else" in exchange(url, post(WHOLE, "/chat/completions", key))
        process.send_signal(signal.SIGTERM)
        out, told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, told) == (0, "", "cordisd: serving s.yml, seed 5\n")
    opening, *lines = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert opening == {"script": "s.yml", "seed": 5, "faults": {"no-space": 1.0, "comments": 0.0}}
    assert [line["status"] for line in lines] == [200, 401, 503, 200, 200]
    assert [line["reply"] for line in lines] == ["s.yml:2", "", "s.yml:3", "", "s.yml:4"]
    assert lines[0]["faults"] == {"no-space": None, "crlf": None}
    assert lines[0]["body"] == STREAMED
    assert "k3y" not in (tmp_path / "log").read_text()


def test_an_interrupt_ends_it_well_though_a_client_hangs_on(tmp_path: Path) -> None:
    import socket

    with serving(tmp_path) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"POST /v1/chat")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0


def test_a_log_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    ended = subprocess.run(
        command(tmp_path, "s.yml", "--log", "/dev/full"),
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 1
    assert "/dev/full cannot be written: No space left" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["s.yml", "--faults", "split-byte=1"], 'unknown fault "split-byte" (did you mean "split-bytes"?)'),
        (["s.yml", "--faults", "crlf"], "a probability is a number from 0 to 1"),
        (["s.yml", "--faults", "crlf=nan"], "a probability is a number from 0 to 1"),
        (["s.yml", "--port", "70000"], "is no port"),
        (["bad.yml"], 'bad.yml:1: invalid reply: unknown key $.txt (did you mean "text"?)'),
        (["none.yml"], "none.yml: config file not found"),
        (["s.yml", "--log", "no/such/log"], "no/such/log cannot be written: No such file"),
        (["s.yml", "--host", "192.0.2.1"], "192.0.2.1:0 cannot be listened on"),
    ],
)
def test_what_cannot_be_served_is_said_with_exit_code_2(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cordisd.cli.main import main

    command(tmp_path)
    (tmp_path / "bad.yml").write_text("- {txt: a}")
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["mock-model", *arguments])
    except SystemExit as ended:
        code = int(str(ended.code))
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert said in err


def test_the_help_tells_of_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    from cordisd.cli.main import main
    from cordisd.mock import FAULTS

    with pytest.raises(SystemExit):
        main(["mock-model", "--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {name}" in shown and fault.summary in shown for name, fault in FAULTS.items())


def test_a_recording_is_served_as_a_script_is(tmp_path: Path) -> None:
    recording = record(tmp_path / "made", "one", prompts=["hello"], script=[text("recorded")])
    command_line = [sys.executable, "-m", "cordisd", "mock-model", str(recording), "--cwd", str(tmp_path)]
    process = subprocess.Popen(
        command_line, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().removesuffix("/v1\n")
        body = json.dumps(read_recording(recording).exchanges[0].body).encode()
        status, _, answer = split(exchange(url, post(body)))
        assert (status, b"recorded" in answer) == (200, True)
        assert split(exchange(url, post(WHOLE)))[0] == 400
    finally:
        process.kill()
        process.communicate()
    recording.write_bytes(recording.read_bytes()[:-5])
    ended = subprocess.run(command_line, env=clean_environment(), capture_output=True, text=True)
    assert ended.returncode == 2 and f"cordisd: {recording}:" in ended.stderr

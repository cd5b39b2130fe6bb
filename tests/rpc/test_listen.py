"""Places to listen at: what is taken, what is replaced, and what is left alone."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cordisd.errors import ListenError
from cordisd.rpc import listen
from cordisd.rpc.listen import MAX_SOCKET_PATH_BYTES, Listener, listen_on_address, listen_on_path, read_token

RACER = """
import sys
from pathlib import Path
from cordisd.errors import ListenError
from cordisd.rpc.listen import listen_on_path
listener = None
for line in sys.stdin:
    match line.strip():
        case "listen":
            try:
                listener = listen_on_path(Path(sys.argv[1]))
                print("won", flush=True)
            except ListenError as error:
                print(error, flush=True)
        case "close":
            listener.close()
            print("closed", flush=True)
        case "die":
            listener._socket.close()
            print("died", flush=True)
"""
"""A process that listens at argv[1] and lets go of it, in order or as if it had died, when it is told to."""


def connects(path: Path) -> bool:
    """Whether somebody listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(os.fspath(path))
        except OSError:
            return False
    return True


def leave_stale(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(os.fspath(path))


@pytest.mark.parametrize("mask", [0, 0o777])
def test_a_stale_socket_is_replaced_by_one_of_this_user_only_whatever_the_umask(
    mask: int, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    leave_stale(path)
    before = os.umask(mask)
    try:
        listener = listen_on_path(path)
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert connects(path)
    assert listener.url == f"unix:{path}"
    listener.close()
    assert not path.exists()


def test_a_live_socket_stays_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "s"
    listener = listen_on_path(path)
    with pytest.raises(ListenError, match="a daemon listens there already"):
        listen_on_path(path)
    assert connects(path)
    listener.close()


def test_a_live_socket_that_accepts_nobody_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(os.fspath(path))
        busy.listen(0)
        waiting = []
        while len(waiting) < 10:
            client = socket.socket(socket.AF_UNIX)
            waiting.append(client)
            client.setblocking(False)
            try:
                client.connect(os.fspath(path))
            except BlockingIOError:
                break
        with pytest.raises(ListenError, match="a daemon listens there already, though it does not answer"):
            listen_on_path(path)
        for client in waiting:
            client.close()
    assert path.is_socket()


def a_file(path: Path) -> None:
    path.write_text("precious")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_a_stale_socket(path: Path) -> None:
    leave_stale(path.with_name("other"))
    path.symlink_to("other")


def a_link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


KINDS: list[Callable[[Path], None]] = [
    a_file,
    a_folder,
    a_pipe,
    a_link_to_a_stale_socket,
    a_link_to_nothing,
]


@pytest.mark.parametrize("put", KINDS)
def test_what_is_no_socket_stays(put: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "s"
    put(path)
    before = path.lstat()
    with pytest.raises(ListenError, match="something that is no socket is there, and stays"):
        listen_on_path(path)
    assert path.lstat() == before


def test_a_socket_of_a_live_program_of_another_kind_stays(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(os.fspath(path))
        with pytest.raises(ListenError, match="Protocol wrong type"):
            listen_on_path(path)
        assert path.is_socket()


def test_a_path_may_be_as_long_as_the_kernel_takes_it(tmp_path: Path) -> None:
    longest = tmp_path / ("s" * (MAX_SOCKET_PATH_BYTES - 1 - len(os.fsencode(tmp_path))))
    listener = listen_on_path(longest)
    assert connects(longest)
    listener.close()
    with pytest.raises(ListenError, match=f"at most {MAX_SOCKET_PATH_BYTES} bytes"):
        listen_on_path(longest.with_name(longest.name + "s"))


@pytest.mark.parametrize("folder", ["/proc/self/nowhere", "/proc/self/stat", "/proc/self"])
def test_a_folder_that_takes_no_socket_is_named(folder: str) -> None:
    with pytest.raises(ListenError, match=f"{folder}/s: cannot listen there"):
        listen_on_path(Path(folder) / "s")


def test_a_folder_that_something_else_keeps_locked_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "_ALONE_S", 0.1)
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(ListenError, match="another process holds the lock of this folder"):
        listen_on_path(tmp_path / "s")
    os.close(fd)
    listen_on_path(tmp_path / "s").close()


def test_closing_removes_no_socket_that_somebody_has_put_there_since(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = listen_on_path(path)
    path.unlink()
    second = listen_on_path(path)
    first.close()
    assert connects(path)
    second.close()
    second.close()
    assert not path.exists()


@pytest.fixture
def racers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two processes of `RACER` at one path."""
    command = [sys.executable, "-c", RACER, str(tmp_path / "s")]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    yield both
    for racer in both:
        with racer:
            assert racer.stdin
            racer.stdin.close()
            assert racer.wait() == 0


def tell(racer: subprocess.Popen[str], word: str) -> None:
    assert racer.stdin
    racer.stdin.write(f"{word}\n")
    racer.stdin.flush()


def told(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout
    return racer.stdout.readline().strip()


def test_of_two_that_race_for_a_stale_socket_one_wins_and_is_reached(
    racers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = tmp_path / "s"
    leave_stale(path)
    for turn in range(150):
        for racer in racers[:: (-1) ** turn]:
            tell(racer, "listen")
        answers = [told(racer) for racer in racers]
        assert sorted(answers)[1] == "won", answers
        assert sorted(answers)[0].endswith("a daemon listens there already"), answers
        assert connects(path)
        winner = racers[answers.index("won")]
        tell(winner, "die")
        assert told(winner) == "died"


def test_one_that_comes_as_another_goes_is_reached_or_refused(
    racers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = tmp_path / "s"
    going, coming = racers
    tell(going, "listen")
    assert told(going) == "won"
    n_won = 0
    for turn in range(150):
        first, second = ((going, "close"), (coming, "listen"))[:: (-1) ** turn]
        tell(*first)
        tell(*second)
        answers = [told(going), told(coming)]
        assert answers[0] == "closed"
        if answers[1] == "won":
            n_won += 1
            assert connects(path), "the one that went has taken the other's file away"
            going, coming = coming, going
        else:
            assert not path.exists()
            tell(going, "listen")
            assert told(going) == "won"
    assert n_won > 0


@pytest.mark.parametrize(
    "address",
    ["", "7000", "localhost", ":", "127.0.0.1:x", "127.0.0.1:-1", ":65536", "127.0.0.1:²", ":" + "9" * 5000],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ListenError, match="an address is HOST:PORT or :PORT"):
        listen_on_address(address)


@pytest.mark.parametrize("host", ["a" * 64, "\udcff"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(ListenError, match="no such address"):
        listen_on_address(f"{host}:0")


def test_without_a_host_it_is_the_loopback_and_a_port_is_had_once(caplog: pytest.LogCaptureFixture) -> None:
    listener = listen_on_address(":0")
    port = listener.url.removeprefix("tcp://127.0.0.1:")
    with pytest.raises(ListenError, match="cannot listen there: Address already in use"):
        listen_on_address(f":{port}")
    listener.close()
    listen_on_address(f":{port}").close()
    assert not caplog.records
    listen_on_address("0.0.0.0:0").close()
    assert "reachable from other machines" in caplog.text


def test_an_ipv6_address_may_stand_in_brackets() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    listener = listen_on_address("[::1]:0")
    assert listener.url.startswith("tcp://[::1]:")
    host, _, port = listener.url.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port))):
        pass
    listener.close()


def test_a_token_is_what_its_file_holds_without_white_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "token"
    path.write_text("  0123456789abcdef\n")
    path.chmod(0o600)
    assert read_token(path) == "0123456789abcdef"
    assert not caplog.records
    path.chmod(0o640)
    read_token(path)
    assert "other users can read the token" in caplog.text


@pytest.mark.parametrize("content", [b"", b" \n", b"0123456789abcde\n", b"\xff" * 20])
def test_what_is_no_token_is_refused_and_not_shown(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ListenError, match=r"a token has at least|the token cannot be read") as refusal:
        read_token(path)
    assert "0123456789" not in str(refusal.value)
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(ListenError, match="the token cannot be read"):
            read_token(missing)


def test_a_listener_of_an_abstract_name_has_a_readable_url() -> None:
    name = f"cordisd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        assert Listener(abstract).url == f"unix:@{name}"

"""FP-10: the first request is the golden one wherever, whenever and by whomever the daemon is started."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pytest

from cordisd.agent.preset import AGENT_FILE
from cordisd.agent.profile import LOCK_FILE, read_locks
from cordisd.mock import MockModel, MockModelThread, Received, text
from cordisd.shipped import presets_folder
from daemon import Daemon
from frozen_presets import lock
from golden_files import GOLDEN
from launches import open_to_all

PROMPT: Final = "Say hello."
NOISE: Final = "something else"
FROZEN: Final = "rl-minimal-v1"
PRESETS: Final = (None, "minimal", FROZEN)
AS_NOBODY: Final = (
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
)
"""Another user, who may still read a checkout below root's home."""


class Place(NamedTuple):
    """Circumstances under which a daemon is started."""

    launcher: Sequence[str] = ()
    environment: dict[str, str] = {}


PLACES: Final = {
    "plain": Place(environment={"PYTHONHASHSEED": "0", "LC_ALL": "C", "LANG": "C", "TZ": "UTC"}),
    "elsewhere": Place(
        ("sh", "-c", 'umask 077; exec "$@"', "sh"),
        {
            "PYTHONHASHSEED": "4294967295",
            "LC_ALL": "C.UTF-8",
            "TZ": "Asia/Kathmandu",
            "USER": "somebody",
            "LOGNAME": "somebody",
            "DSH_CONTEXT_WINDOW": "4096",
            "DSH_MODEL": "another-model",
            "EDITOR": "vi",
            "TERM": "dumb",
            "COLUMNS": "20",
        },
    ),
    "odd": Place(
        ("sh", "-c", 'umask 000; exec nice "$@"', "sh"),
        {
            "PYTHONHASHSEED": "random",
            "LC_ALL": "xx_YY.ISO-8859-1",
            "LANGUAGE": "zh",
            "TZ": "Nowhere/At_all",
            "CI": "1",
        },
    ),
    "keyless": Place(("env", "-u", "DEEPSEEK_API_KEY"), {"PYTHONHASHSEED": "3"}),
    "nobody": Place(AS_NOBODY, {"PYTHONHASHSEED": "7", "USER": "nobody", "TZ": "America/Lima"}),
}


@pytest.fixture
def presets(tmp_path: Path) -> Path:
    """A copy of the shipped presets, with a user's home that has another preset of one's name."""
    root = tmp_path / "presets"
    shutil.copytree(presets_folder(), root)
    mine = tmp_path / "home" / ".agent-presets" / "minimal"
    mine.mkdir(parents=True)
    (mine / AGENT_FILE).write_text("- {name: persona, config: {text: Be somebody else., complete: true}}\n")
    return root


def can_become_nobody() -> bool:
    command = [*AS_NOBODY, "true"]
    return bool(shutil.which("setpriv")) and subprocess.run(command, capture_output=True).returncode == 0


class Start(Protocol):
    """Starts a composition at the place of that name."""

    def __call__(self, name: str, url: str, composition: str = "host") -> Daemon: ...


@pytest.fixture
def start(tmp_path: Path, presets: Path) -> Start:
    """Starts daemons, of the host composition by default."""
    patch = tmp_path / "patch.yml"
    patch.write_text(f"- {{id: presets, config: {{roots: [{{path: '{presets}'}}]}}}}\n")

    def run(name: str, url: str, composition: str = "host") -> Daemon:
        place = PLACES[name]
        work = tmp_path / f"{name} directory"
        for folder in (work, tmp_path / f"{name} directory-sessions"):
            folder.mkdir(exist_ok=True)
            open_to_all(folder)
        patches = ("--patch", str(patch)) if composition == "host" else ()
        argv = [*place.launcher, sys.executable, "-m", "cordisd", "serve", "--stdio", composition, *patches]
        homes = (
            {"HOME": str(tmp_path / "home"), "DSH_HOME": str(tmp_path / "home")} if name != "plain" else {}
        )
        return Daemon(work, model_url=f"{url}/{name}", argv=argv, **{**homes, **place.environment})

    return run


def golden_body(name: str, cwd: Path) -> bytes:
    """The golden first request, for a daemon in `cwd`: only the runtime context tells where it is."""
    return (GOLDEN / "first_requests" / f"{name}.json").read_bytes().replace(b"/work", str(cwd).encode())


def first_requests(daemon: Daemon, mock: MockModel, place: str) -> tuple[list[bytes], list[str]]:
    """The first request of each agent, and their digests, while other sessions run."""
    start = len(mock.requests)
    for number in range(3):
        name = f"noise-{number}"
        daemon.request(
            "session/create", {"sessionId": name} | ({"preset": PRESETS[number]} if number else {})
        )
        daemon.prompt(name, NOISE)
    digests = []
    for preset in PRESETS:
        made = daemon.request("session/create", {"preset": preset} if preset else {})
        digests.append(made["digest"])
        daemon.run(made["sessionId"], PROMPT)
    mine = [one for one in mock.requests[start:] if one.path.startswith(f"/{place}/") and asks(one, PROMPT)]
    return [one.body for one in mine], digests


def asks(request: Received, prompt: str) -> bool:
    return {"role": "user", "content": prompt} in request.json["messages"]


def test_the_first_request_of_every_agent_is_the_golden_one_at_every_place(
    start: Start, presets: Path
) -> None:
    places = [name for name in PLACES if name != "keyless" and (name != "nobody" or can_become_nobody())]
    seen: list[list[str]] = []
    with MockModelThread(lambda _: text("hello")) as mock:
        for place in places:
            with start(place, mock.url) as daemon:
                digest = daemon.initialize()["digest"]
                if FROZEN not in read_locks(presets / LOCK_FILE):
                    lock(daemon, presets, FROZEN)
                bodies, digests = first_requests(daemon, mock, place)
                assert bodies == [golden_body(name, daemon.cwd) for name in ("host", "minimal", FROZEN)], (
                    place
                )
                assert digest == digests[0]
                seen.append(digests)
    assert seen == [seen[0]] * len(places)
    assert len(set(seen[0])) == len(PRESETS)


def test_the_minimal_composition_sends_its_golden_request_elsewhere_too(start: Start) -> None:
    with MockModelThread(lambda _: text("hello")) as mock, start("elsewhere", mock.url, "minimal") as daemon:
        daemon.initialize()
        daemon.run("s", PROMPT)
    assert [request.body for request in mock.requests] == [golden_body("minimal.cordis", daemon.cwd)]


def test_without_a_key_the_same_is_rendered(start: Start) -> None:
    with start("keyless", "http://127.0.0.1:9") as daemon:
        daemon.initialize()
        for name, preset in (("host", {}), ("minimal", {"preset": "minimal"}), (FROZEN, {"preset": FROZEN})):
            body = daemon.request("preset/render", {"prompt": PROMPT, **preset})["request"]
            assert body.encode() == golden_body(name, daemon.cwd)

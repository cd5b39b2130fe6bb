"""What the shipped agents send first, byte for byte, and the hashes of the released profile.

`first_requests/` holds request bodies exactly as they are sent; `minimal/` shows in a readable form what the
model sees of `presets/minimal`. Nothing writes these files but the option `--update-golden`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from cordisd.agent.fingerprint import canonical_json
from cordisd.mock import MockModelThread, Received, Reply, call, text
from daemon import Daemon
from frozen_presets import freeze, host_daemon, lock
from golden_files import check

PROMPT: Final = "Say hello."
VARIABLES: Final = {"cwd": "/work", "model": "deepseek-v4-flash", "prompt": PROMPT}

RL_MINIMAL_V1: Final = {
    "id": "rl-minimal-v1",
    "prompt_sha256": "5fab6e32f283d71510531ce850df2690b8fb77437d36bfabbe8c4ac862f19df9",
    "tools_sha256": "e2b617847f87f049405e4aa101fc4e85e7b6b931c0be8217d4109b17a2c5ae94",
    "profile_sha256": "f88b50a218e907ef337462d8f411df91376438ad9731eb8d40e22948226711dd",
}
"""Released: these never change. Whoever needs another agent gives it another id."""


Golden = Callable[[str, bytes], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, data)` fails unless the golden file of that name holds exactly `data`."""
    return partial(check, update=bool(request.config.option.update_golden))


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """The results of `preset/render` by the name of the golden file."""
    work = tmp_path_factory.mktemp("rendered") / "w"
    work.mkdir()
    found = {}
    with Daemon(work, composition="host") as daemon:
        daemon.initialize()
        for file, preset in {"host": {}, "minimal": {"preset": "minimal"}}.items():
            found[file] = daemon.request("preset/render", {**VARIABLES, **preset})
        found["rl-minimal-v1"] = daemon.request("preset/render", {**VARIABLES, "preset": "rl-minimal-v1"})
    with Daemon(work) as daemon:
        daemon.initialize()
        found["minimal.cordis"] = daemon.request("preset/render", VARIABLES)
    yield found


@pytest.mark.parametrize("name", ["host", "minimal", "minimal.cordis", "rl-minimal-v1"])
def test_the_first_request_is_the_golden_one(
    name: str, rendered: dict[str, dict[str, Any]], golden: Golden
) -> None:
    golden(f"first_requests/{name}.json", rendered[name]["request"].encode())


def test_what_the_model_sees_of_the_minimal_preset_is_the_golden_text(
    rendered: dict[str, dict[str, Any]], golden: Golden
) -> None:
    body = json.loads(rendered["minimal"]["request"])
    system, user = body["messages"]
    assert (system["role"], user) == ("system", {"role": "user", "content": PROMPT})
    bash, editor = (tool["function"] for tool in body["tools"])
    assert (bash["name"], editor["name"]) == ("bash", "str_replace_editor")
    golden("minimal/prompt.txt", system["content"].encode())
    golden("minimal/bash.txt", bash["description"].encode())
    golden("minimal/editor.json", _readable(editor["parameters"]))
    golden("minimal/tools.json", _readable(body["tools"]))


def test_the_minimal_composition_and_the_minimal_preset_send_the_same(
    rendered: dict[str, dict[str, Any]],
) -> None:
    assert rendered["minimal"]["request"] == rendered["minimal.cordis"]["request"]


def test_the_released_profile_has_the_pinned_hashes_in_the_first_and_the_second_turn(tmp_path: Path) -> None:
    def answer(request: Received) -> Reply:
        is_first = len(request.json["messages"]) == 2
        return call("c", "bash", {"command": "echo hello"}) if is_first else text("hello")

    root = tmp_path / "presets"
    freeze(root, "rl-minimal-v1")
    with MockModelThread(answer) as mock, host_daemon(tmp_path / "w", root, mock.url) as daemon:
        daemon.initialize()
        lock(daemon, root, "rl-minimal-v1")
        daemon.request("session/create", {"sessionId": "s", "preset": "rl-minimal-v1"})
        daemon.run("s", PROMPT)
        daemon.run("s", "Again.")
        assert daemon.request("session/get", {"sessionId": "s"})["profile"] == RL_MINIMAL_V1
    assert [len(request.json["messages"]) for request in mock.requests] == [2, 4, 6]
    for request in (mock.requests[0], mock.requests[2]):
        system = request.json["messages"][0]["content"]
        tools = [tool["function"] for tool in request.json["tools"]]
        assert hashlib.sha256(system.encode()).hexdigest() == RL_MINIMAL_V1["prompt_sha256"]
        assert hashlib.sha256(canonical_json(tools)).hexdigest() == RL_MINIMAL_V1["tools_sha256"]


def _readable(value: object) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"

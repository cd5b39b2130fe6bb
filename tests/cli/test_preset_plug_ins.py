"""`cordisd preset` over entries from outside the package: what they print, and how they fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from cli.conftest import Folder

PERSONA = "- {id: who, name: persona, config: {text: Hello.}}\n"
PLUG_IN = """
from contextlib import asynccontextmanager
from cordisd.kernel.entry import Entry
from cordisd.services.prompt import PromptRegistry, Section

print("imported")

def fail(*_):
    raise ValueError("a bug")

class Loud(Entry):
    lifetime = "session"
    @asynccontextmanager
    async def mount(self, scope):
        print("mounted")
        yield

class Buggy(Entry):
    lifetime = "session"
    needs = (PromptRegistry,)
    @asynccontextmanager
    async def mount(self, scope):
        scope.get(PromptRegistry).add_section(Section("buggy", 0, fail))
        yield

class Worse(Entry):
    lifetime = "session"
    needs = (PromptRegistry,)
    @asynccontextmanager
    async def mount(self, scope):
        scope.get(PromptRegistry).add_listener(fail)
        yield
"""


@pytest.fixture
def plug_in(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (folder.root / "preset_plug_in.py").write_text(PLUG_IN)
    monkeypatch.syspath_prepend(str(folder.root))
    yield
    sys.modules.pop("preset_plug_in", None)


@pytest.mark.usefixtures("plug_in")
def test_what_a_plug_in_prints_does_not_get_into_the_output(folder: Folder) -> None:
    folder.add("loud", PERSONA + "- {id: loud, name: 'preset_plug_in:Loud'}\n")
    ended = folder.run("preset", "render", "loud", "--part", "system")
    assert (ended.code, ended.out, ended.err) == (0, "Hello.", "imported\nmounted\n")


@pytest.mark.usefixtures("plug_in")
def test_a_plug_in_that_fails_is_a_problem_of_its_preset_alone(folder: Folder) -> None:
    for name in ("Buggy", "Worse"):
        folder.add(name.lower(), PERSONA + f"- {{id: x, name: 'preset_plug_in:{name}'}}\n")
    checked = folder.run("preset", "check")
    assert (checked.code, checked.out.count("ok: ")) == (2, 2)
    for name in ("buggy", "worse"):
        told = f'the prompt of preset "{name}" cannot be assembled: ValueError: a bug\n'
        assert f"cordisd: presets/{name}/agent.cordis.yml: {told}" in checked.err
        rendered = folder.run("preset", "render", name)
        assert (rendered.code, rendered.out) == (2, "") and rendered.err.endswith(f"cordisd: {told}")
    listed = json.loads(folder.run("preset", "list", "--json").out)["presets"]
    assert {one["name"]: one["problem"] for one in listed if one["problem"]} == {
        # `buggy` has a digest: its text is asked for by a turn only
        "worse": 'the prompt of preset "worse" cannot be assembled: ValueError: a bug'
    }

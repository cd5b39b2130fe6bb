"""`cordisd schema`, judged by a validator that sees files as an editor does: `!!js` as plain strings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from yaml.nodes import Node

import cordisd.shipped
from cordisd.cli.main import main
from cordisd.events import JsonObject
from cordisd.kernel.document import construct, read
from cordisd.kernel.names import OURS, PUBLISHED
from cordisd.kernel.rows import FIELDS
from cordisd.kernel.schema import composition_schema, patches_schema, preset_schema
from kernel.conftest import Folder
from measure import PATIENCE_S

ROOT = Path(cordisd.shipped.__file__).resolve().parents[2]
COMPOSITIONS = sorted([*ROOT.glob("*.cordis.yml"), *ROOT.glob("presets/**/*.cordis.yml")])
PRESETS = sorted(ROOT.glob("presets/*/preset.yml"))

Finder = Callable[[str], list[str]]


@cache
def schema(of: str) -> JsonObject:
    def fail(message: str) -> None:
        raise AssertionError(message)

    made = {"composition": composition_schema, "patches": patches_schema}
    return made[of](fail) if of in made else preset_schema()


def as_editor(path: Path) -> Any:
    def fail(node: Node, message: str) -> None:
        raise AssertionError(message)

    return construct(read(str(path)), lambda text: text, fail)


def findings(of: str, path: Path) -> list[str]:
    """Where something is wrong, as `$[0].config.x`, and the keyword that says so."""
    errors = Draft202012Validator(schema(of)).iter_errors(as_editor(path))
    return sorted(f"{error.json_path} {error.validator}" for error in errors)


@pytest.fixture
def found(tmp_path: Path) -> Finder:
    def find(text: str, of: str = "composition") -> list[str]:
        (tmp_path / "c.yml").write_text(text)
        return findings(of, tmp_path / "c.yml")

    return find


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize("of", ["composition", "patches", "preset"])
def test_what_is_printed_is_a_valid_schema(of: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", of]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    printed = json.loads(out)
    Draft202012Validator.check_schema(printed)
    assert printed == schema(of)


@pytest.mark.parametrize("path", COMPOSITIONS, ids=lambda path: path.name)
def test_a_shipped_composition_has_no_findings(path: Path) -> None:
    assert findings("composition", path) == []


def test_no_preset_that_is_shipped_has_findings() -> None:
    assert [finding for path in PRESETS for finding in findings("preset", path)] == []


def test_every_name_and_field_is_offered() -> None:
    [names, _] = schema("composition")["$defs"]["name"]["anyOf"]
    published = {f"{scope}{name}" for name in PUBLISHED for scope in ("", "@deepseek-ai/")}
    assert set(names["enum"]) >= {*OURS, *published, "cordis:group", "cordis:include"}
    assert len(names["enum"]) == len(names["enumDescriptions"])
    assert all(names["enumDescriptions"])
    assert tuple(schema("composition")["$defs"]["row"]["properties"]) == FIELDS


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        ("{id: a, name: bsh}", "$[0].name anyOf"),
        ("{id: a, name: kernel.}", "$[0].name anyOf"),
        ("{id: a}", "$[0] required"),
        ("{id: '', name: bash}", "$[0].id minLength"),
        ("{id: 5, name: bash}", "$[0].id type"),
        ("{id: a, name: bash, confg: {}}", "$[0] additionalProperties"),
        ("{id: a, name: bash, group: yes please}", "$[0].group type"),
        ("{id: a, name: bash, disabled: yes}", "$[0].disabled pattern"),
        ("{id: a, name: bash, config: {timeoutMS: 5}}", "$[0].config additionalProperties"),
        ("{id: a, name: bash, config: {timeoutMs: five}}", "$[0].config.timeoutMs pattern"),
        ("{id: a, name: bash, config: {timeoutMs: [5]}}", "$[0].config.timeoutMs type"),
        ("{id: a, name: bash, config: {timeoutMs: 0}}", "$[0].config.timeoutMs exclusiveMinimum"),
        ("{id: a, name: bash, config: {trailer: alway}}", "$[0].config.trailer anyOf"),
        ("{id: a, name: bash, config: {rlimits: {nofiles: 9}}}", "$[0].config.rlimits enum"),
        ("{id: a, name: bash, config: {env: {A=B: x}}}", "$[0].config.env pattern"),
        ("{id: a, name: bash, config: {env: {A: 1}}}", "$[0].config.env.A anyOf"),
        ("{id: a, name: bash, config: [x]}", "$[0].config type"),
        ("{id: a, name: openai, config: {models: [{name: m}]}}", "$[0].config.models[0] required"),
        (
            "{id: a, name: openai, config: {retryPolicy: {backoff: {jitterRatio: 2}}}}",
            "$[0].config.retryPolicy.backoff.jitterRatio maximum",
        ),
        ("{id: a, name: persona}", "$[0] required"),
        ("{id: a, name: '@deepseek-ai/dsh-persona', config: {}}", "$[0].config required"),
        ("{name: 'cordis:include'}", "$[0] required"),
        ("{name: 'cordis:include', config: {path: x, patchs: []}}", "$[0].config additionalProperties"),
        ("{name: 'cordis:group', config: {a: 1}}", "$[0].config anyOf"),
        ("{name: bash, group: true, config: []}", "$[0].name enum"),
        ("x", "$[0] type"),
    ],
)
def test_a_mistake_is_found_where_it_is_as_the_loader_finds_it(
    found: Finder, folder: Folder, row: str, finding: str
) -> None:
    assert finding in found(f"- {row}\n")
    assert folder.problems(f"- {row}\n")


def test_mistakes_in_groups_and_patches_of_includes_are_found(found: Finder) -> None:
    assert found(
        """
        - group: true
          config:
            - {id: a, name: cordis:group, config: [{id: b, name: bash, config: {stdin: tyt}}]}
        - name: cordis:include
          config:
            path: x.yml
            patches:
              - {id: a, name: bash, config: {stdin: tyt}}
              - {insert: [{id: b, nmae: bash}]}
              - {id: g, config: [{id: c, name: bash, config: {stdin: tyt}}]}
              - {disabled: true}
        """
    ) == [
        "$[0].config anyOf",
        "$[1].config.patches[0].config.stdin anyOf",
        "$[1].config.patches[1].insert[0] additionalProperties",
        "$[1].config.patches[1].insert[0] required",
        "$[1].config.patches[2].config[0].config.stdin anyOf",
        "$[1].config.patches[3] required",
    ]


@pytest.mark.parametrize(
    "row",
    [
        "{name: bash}",
        "{id: a, name: bash, config: }",
        "{id: a, name: 'kernel.sample_entries:Sample', config: {text: x}}",
        "{id: a, name: nobody-knows, config: {x: 1}, disabled: true}",
        "{id: a, name: persona, disabled: true}",
        "{id: a, name: nobody-knows, disabled: !!js process.platform !== 'win32'}",
        "{id: a, name: dsh-llm-deepseek, config: {baseUrl: 'http://x'}}",
        "{id: a, name: dsh-llm-deepseek, config: {notHere: 1}, notThere: 1}",
        "{id: a, name: persona, config: !!js 'JSON.parse(process.env.P ?? ''{\"text\": \"x\"}'')'}",
        "{id: a, name: bash, config: {timeoutMs: !!js Number(process.env.T ?? 5)}}",
        "{id: a, name: bash, config: {trailer: !!js process.env.T ?? 'always'}}",
        "{id: a, name: bash, inject: [llm], intercept: {x: 1}, isolate: {pty: true, fs: shared}}",
        "{group: true, config: [{id: a, name: bash}]}",
        "{name: 'cordis:group', config: }",
    ],
)
def test_what_loads_has_no_findings(found: Finder, folder: Folder, row: str) -> None:
    assert found(f"- {row}\n") == []
    folder.load(f"- {row}\n")


def test_a_patch_file_is_checked(found: Finder) -> None:
    good = """
        - {id: model, disabled: true}
        - {id: bash, config: {anything: 1}}
        - {id: bash, name: bash, config: {timeoutMs: 5}}
        - {id: group, insert: [{id: new, name: bash}]}
        - insert: [{id: more, name: persona, config: {text: x}}]
        """
    assert found(good, "patches") == []
    bad = """
        - {id: model, disable: true}
        - {id: bash, name: bash, config: {timeoutMs: -5}}
        - {insert: [{id: new, name: bsh}]}
        - {insert: [], disabled: true}
        - {id: 3, disabled: true}
        """
    assert found(bad, "patches") == [
        "$[0] additionalProperties",
        "$[1].config.timeoutMs exclusiveMinimum",
        "$[1].config.timeoutMs minimum",
        "$[2].insert[0].name anyOf",
        "$[3] maxProperties",
        "$[4].id type",
    ]


def test_a_preset_file_is_checked(found: Finder) -> None:
    assert found("{name: Minimal, description: Two tools., order: 3}", "preset") == []
    assert found("{nam: Minimal, order: first}", "preset") == ["$ additionalProperties", "$.order type"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path with a distribution whose entry points are still to be written."""
    info = tmp_path / "plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugins\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return info


def test_plug_ins_are_described_and_a_broken_one_is_left_open(site: Path) -> None:
    (site / "entry_points.txt").write_text(
        "[cordisd.entries]\ngood = kernel.sample_entries:Sample\nbroken/one = kernel.broken_entries:X\n"
        "bash = kernel.sample_entries:Sample\n"
    )
    warnings: list[str] = []
    check = Draft202012Validator(composition_schema(warnings.append))
    assert warnings == [
        'entry "broken/one": its config is left open: failed to import kernel.broken_entries:X: '
        "ValueError: this plug-in is broken"
    ]
    assert check.is_valid([{"name": "good", "config": {"timeoutMs": 5, "mode": "reset"}}])
    assert not check.is_valid([{"name": "good", "config": {"mode": "rest"}}])
    assert check.is_valid([{"name": "broken/one", "config": {"any": "thing"}}])
    assert check.is_valid([{"name": "bash", "config": {"timeoutMs": 5000}}])
    assert not check.is_valid([{"name": "bash", "config": {"text": "x"}}])


def test_a_plug_in_that_prints_and_exits_spoils_nothing(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site.parent / "leaving_plugin.py").write_text("print('hello from a plug-in')\nraise SystemExit(3)\n")
    (site / "entry_points.txt").write_text("[cordisd.entries]\nleaving = leaving_plugin:X\n")
    assert main(["schema"]) == 0
    out, err = capsys.readouterr()
    assert "leaving" in json.loads(out)["$defs"]["name"]["anyOf"][0]["enum"]
    cause = "failed to import leaving_plugin:X: SystemExit: 3"
    assert err == f'hello from a plug-in\nwarning: entry "leaving": its config is left open: {cause}\n'


def test_the_output_does_not_depend_on_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "cordisd", "schema"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1

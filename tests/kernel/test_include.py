from __future__ import annotations

from pathlib import Path

import pytest

from kernel.conftest import Folder

BASE = """
- {id: a, name: $Sample, config: {text: a, mode: reset}}
- {id: b, name: $Sample, config: {text: b}}
- id: g
  name: cordis:group
  group: true
  config:
    - {id: c, name: $Sample, config: {text: c}}
"""


def _patched(folder: Folder, patch: str) -> tuple[dict[str, object], list[str]]:
    """The texts by id, and the warnings, of BASE with a patch file over it."""
    patches = [folder.write(patch, "p.yml")]
    return folder.configs(BASE, patches=patches), folder.warnings(BASE, patches=patches)


def test_a_patched_field_is_replaced_and_not_merged(folder: Folder) -> None:
    patches = [folder.write("- {id: a, config: {text: new}}\n", "p.yml")]
    entry = folder.load(BASE, patches=patches).entries[0]
    assert (entry.config.text, entry.config.mode) == ("new", "keep")


def test_a_patch_can_disable_and_enable_a_row(folder: Folder) -> None:
    assert list(_patched(folder, "- {id: a, disabled: true}\n")[0]) == ["b", "c"]
    both = "- {id: a, disabled: true}\n- {id: a, disabled: false}\n"
    assert list(_patched(folder, both)[0]) == ["a", "b", "c"]


def test_a_patch_reaches_rows_inside_groups(folder: Folder) -> None:
    assert _patched(folder, "- {id: c, config: {text: new}}\n") == ({"a": "a", "b": "b", "c": "new"}, [])


def test_a_patch_with_the_row_s_name_applies(folder: Folder) -> None:
    assert _patched(folder, "- {id: a, name: $Sample, config: {text: new}}\n")[0]["a"] == "new"


def test_a_patch_with_another_name_is_skipped_with_a_warning(folder: Folder) -> None:
    texts, warnings = _patched(folder, "- {id: a, name: $Other, config: {text: new}}\n")
    assert texts["a"] == "a"
    assert warnings == ["p.yml:1, entry \"a\": patch skipped: the entry's name is '$Sample', not '$Other'"]


def test_a_patch_of_an_unknown_id_is_a_warning(folder: Folder) -> None:
    texts, warnings = _patched(folder, "- {id: bb, disabled: true}\n- {id: zzz, disabled: true}\n")
    assert list(texts) == ["a", "b", "c"]
    assert warnings == [
        'p.yml:1, entry "bb": patch skipped: there is no entry of this id (did you mean "b"?)',
        'p.yml:2, entry "zzz": patch skipped: there is no entry of this id',
    ]


def test_rows_are_inserted_at_the_end_and_later_patches_can_change_them(folder: Folder) -> None:
    texts, warnings = _patched(
        folder,
        """
        - insert:
            - {id: d, name: $Sample, config: {text: d}}
            - name: $Sample
        - {id: d, config: {text: patched}}
        """,
    )
    assert texts == {"a": "a", "b": "b", "c": "c", "d": "patched", "#5": "default"}
    assert warnings == []


def test_rows_are_inserted_into_a_group(folder: Folder) -> None:
    texts, _ = _patched(folder, "- {id: g, insert: [{id: d, name: $Sample, config: {text: d}}]}\n")
    assert list(texts) == ["a", "b", "c", "d"]


def test_a_replaced_group_config_holds_the_new_rows(folder: Folder) -> None:
    patch = "- {id: g, config: [{id: d, name: $Sample}]}\n- {id: d, config: {text: new}}\n"
    assert _patched(folder, patch)[0] == {"a": "a", "b": "b", "d": "new"}


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        (
            "- insert: [{id: a, name: $Sample}]\n",
            'p.yml:1, entry "a": duplicate loader entry id: "a" is already used at c.yml:2',
        ),
        (
            "- {id: b, disabled: true}\n- insert: [{id: b, name: $Sample}]\n",
            'p.yml:2, entry "b": duplicate loader entry id: "b" is already used at c.yml:3',
        ),
        (
            "- {id: g, insert: [{id: c, name: $Sample}]}\n",
            'p.yml:1, entry "c": duplicate loader entry id: "c" is already used at c.yml:8',
        ),
        (
            "- {id: a, insert: [{id: d, name: $Sample}]}\n",
            'p.yml:1, entry "a": entries can be inserted into a group only',
        ),
        ("- insert: {id: d}\n", "p.yml:1: must be a list of entries, not a mapping"),
        (
            "- {disabled: true}\n",
            "p.yml:1: a patch names the entry it changes by id, or is {insert: [entries]}",
        ),
        ("- text\n", "p.yml:1: a patch must be a mapping, not 'text'"),
        ("- {id: a, confg: {}}\n", 'p.yml:1: unknown patch field "confg" (did you mean "config"?)'),
        ("- {id: 1, disabled: true}\n", "p.yml:1: id must be a string, not '1'"),
        ("- {id: !!js '1', disabled: true}\n", "p.yml:1: id must be a string, not an expression"),
        ("a: b\n", "p.yml:1: patches must be a list, not a mapping"),
        ("", "p.yml: is empty; write a list of entries, or [] for none"),
        (
            "- {id: a, config: {text: 5}}\n",
            'p.yml:1, entry "a": invalid config: $.text must be a string, got 5',
        ),
    ],
)
def test_a_faulty_patch_is_a_problem_at_its_own_line(folder: Folder, patch: str, problem: str) -> None:
    assert folder.problems(BASE, patches=[folder.write(patch, "p.yml")]) == [problem]


def test_a_missing_patch_file_is_a_problem(folder: Folder) -> None:
    assert folder.problems(BASE, patches=[folder.path / "no.yml"]) == ["no.yml: config file not found"]


def test_patch_files_apply_in_order(folder: Folder) -> None:
    patches = [
        folder.write(f"- {{id: a, config: {{text: {text}}}}}\n", f"{text}.yml") for text in ("first", "last")
    ]
    assert folder.configs(BASE, patches=patches)["a"] == "last"


def test_an_included_file_is_read_relative_to_the_including_one_and_patched(folder: Folder) -> None:
    folder.env = {"TEXT": "evaluated"}
    folder.write(BASE, "sub/base.yml")
    folder.write("- {id: inner, name: cordis:include, config: {path: base.yml}}\n", "sub/middle.yml")
    composition = folder.load("""
        - {id: first, name: $Sample}
        - id: outer
          name: '@deepseek-ai/cordis-plugin-include'
          config:
            path: ./sub/middle.yml
            enableLogs: true
            patches:
              - {id: b, disabled: true}
              - {id: c, config: {text: !!js process.env.TEXT}}
              - insert: [{id: d, name: $Sample}]
        - {id: last, name: $Sample}
    """)
    assert [entry.id for entry in composition.entries] == ["first", "a", "c", "d", "last"]
    assert composition.entries[2].config.text == "evaluated"
    assert composition.entries[1].where == f'{folder.path}/sub/base.yml:2, entry "a"'


def test_a_patch_file_reaches_into_includes(folder: Folder) -> None:
    folder.write(BASE, "base.yml")
    patch = folder.write("- {id: c, config: {text: new}}\n", "p.yml")
    text = "- {id: inc, name: cordis:include, config: {path: base.yml}}\n"
    assert folder.configs(text, patches=[patch]) == {"a": "a", "b": "b", "c": "new"}


def test_a_patch_can_point_an_include_elsewhere_relative_to_the_patch(folder: Folder) -> None:
    folder.write("- {id: x, name: $Sample}\n", "sub/other.yml")
    patch = folder.write("- {id: inc, config: {path: other.yml}}\n", "sub/p.yml")
    text = "- {id: inc, name: cordis:include, config: {path: missing.yml}}\n"
    assert list(folder.configs(text, patches=[patch])) == ["x"]


def test_the_files_of_disabled_includes_are_not_opened(folder: Folder) -> None:
    folder.env = {"OFF": "1"}
    text = "- {id: inc, name: cordis:include, disabled: !!js process.env.OFF, config: {path: missing.yml}}\n"
    patch = folder.write("- {id: nobody, disabled: true}\n", "p.yml")
    assert folder.configs(text, patches=[patch]) == {}


def test_an_id_that_two_included_lists_use_cannot_be_patched(folder: Folder) -> None:
    folder.write(BASE, "base.yml")
    patch = folder.write("- {id: a, disabled: true}\n", "p.yml")
    problems = folder.problems(
        """
        - {id: one, name: cordis:include, config: {path: base.yml}}
        - {id: two, name: cordis:include, config: {path: base.yml}}
        """,
        patches=[patch],
    )
    assert problems == ['p.yml:1, entry "a": 2 lists have an entry of this id']


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{path: no.yml}", 'c.yml:1, entry "i": no.yml: config file not found'),
        ("{path: .}", 'c.yml:1, entry "i": {folder}: is a directory, not a YAML file'),
        ("{}", 'c.yml:1, entry "i": an include needs a config with the path of a file, written out'),
        ("[]", 'c.yml:1, entry "i": an include needs a config with the path of a file, written out'),
        (
            "{path: !!js process.env.A}",
            'c.yml:1, entry "i": an include needs a config with the path of a file, written out',
        ),
        ("{path: ok.yml, pathes: 1}", 'c.yml:1, entry "i": unknown key $.pathes (did you mean "patches"?)'),
        ("{path: ok.yml, patches: {}}", "c.yml:1: patches must be a list, not a mapping"),
        ("{path: broken.yml}", "broken.yml:2: is not YAML"),
        ("{path: c.yml}", 'c.yml:1, entry "i": c.yml includes itself'),
        ("{path: back.yml}", 'back.yml:1, entry "again": c.yml includes itself'),
    ],
)
def test_a_faulty_include_is_a_problem(folder: Folder, config: str, problem: str) -> None:
    folder.write("[]\n", "ok.yml")
    folder.write("- a\n- ]\n", "broken.yml")
    folder.write("- {id: again, name: cordis:include, config: {path: ./c.yml}}\n", "back.yml")
    (found,) = folder.problems(f"- {{id: i, name: cordis:include, config: {config}}}\n")
    assert found.startswith(problem.format(folder=folder.path) if "{folder}" in problem else problem)


def test_a_cycle_through_a_symbolic_link_is_refused(folder: Folder) -> None:
    (folder.path / "link.yml").symlink_to("c.yml")
    (found,) = folder.problems("- {id: i, name: cordis:include, config: {path: link.yml}}\n")
    assert "includes itself" in found


def test_includes_cannot_multiply_without_bound(folder: Folder) -> None:
    folder.write("[]\n", "f9.yml")
    for n in range(8, -1, -1):
        row = f"- {{name: cordis:include, config: {{path: f{n + 1}.yml}}}}\n"
        folder.write(row * 3, f"f{n}.yml")
    problems = folder.problems("- {name: cordis:include, config: {path: f0.yml}}\n")
    assert any("more than 64 files are included" in problem for problem in problems)


def test_an_inserted_group_may_include_a_file_beside_the_patch(folder: Folder) -> None:
    folder.write("- {id: x, name: $Sample}\n", "sub/x.yml")
    patch = folder.write("- insert: [{id: i, name: cordis:include, config: {path: x.yml}}]\n", "sub/p.yml")
    assert list(folder.configs(BASE, patches=[patch])) == ["a", "b", "c", "x"]


def test_an_absolute_include_path_is_taken_as_it_is(folder: Folder, tmp_path: Path) -> None:
    base = folder.write(BASE, "sub/base.yml")
    assert list(folder.configs(f"- {{name: cordis:include, config: {{path: {base}}}}}\n")) == ["a", "b", "c"]

from __future__ import annotations

import pytest

from cordisd.kernel.load import load
from kernel.conftest import Folder


def test_expressions_in_a_config_are_evaluated_under_the_given_environment(folder: Folder) -> None:
    folder.env = {"TEXT": "from env", "N": "20"}
    (entry,) = folder.load("""
        - id: a
          name: $Sample
          config:
            text: !!js process.env.TEXT ?? 'x'
            timeoutMs: !!js Number(process.env.N ?? 5)
            mode: !!js process.env.MODE
            models: [{id: !!js process.env.MODEL || 'm', contextWindow: !!js process.env.WINDOW}]
            extra: !!js JSON.parse(process.env.JSON ?? '[1]')
    """).entries
    assert (entry.config.text, entry.config.timeout_ms, entry.config.mode) == ("from env", 20, "keep")
    assert entry.config.models[0].id == "m"
    assert entry.config.models[0].context_window is None
    assert entry.config.extra == [1]


def test_the_process_environment_is_the_default(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNEL_TEST_TEXT", "inherited")
    path = folder.write("- {id: a, name: $Sample, config: {text: !!js process.env.KERNEL_TEST_TEXT}}")
    assert load(path).entries[0].config.text == "inherited"


def test_a_whole_config_may_be_an_expression(folder: Folder) -> None:
    folder.env = {"CONFIG": '{"text": "all"}'}
    text = "- {id: a, name: $Sample, config: !!js JSON.parse(process.env.CONFIG)}"
    assert folder.configs(text) == {"a": "all"}
    assert folder.configs("- {id: a, name: $Sample, config: !!js process.env.NOTHING}") == {"a": "default"}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            "timeoutMs: 0",
            "$.timeoutMs must be an integer from 1 to 1000, got 0",
        ),
        (
            "timeoutMs: '5'",
            "$.timeoutMs must be an integer from 1 to 1000, got '5'",
        ),
        (
            "timeoutMs: !!js Number('hello')",
            "$.timeoutMs must be an integer from 1 to 1000, got nan",
        ),
        (
            "timeoutMs: on",
            "$.timeoutMs must be an integer from 1 to 1000, got 'on'",
        ),
        ("mode: kept", "$.mode must be 'keep' or 'reset', got 'kept'"),
        ("text: null", "$.text must be a string, got null"),
        ("limit: some", "$.limit must be an integer of at least 1 or 'none', got 'some'"),
        (
            "models: [{id: m}, {id: n, contextWindow: big}]",
            "$.models[1].contextWindow must be an integer or null, got 'big'",
        ),
        (
            "models: [{id: m, contextWindw: 1}]",
            'unknown key $.models[0].contextWindw (did you mean "contextWindow"?)',
        ),
        (
            "timeoutms: 5",
            'unknown key $.timeoutms (did you mean "timeoutMs"?); allowed: '
            "extra, label, limit, mode, models, ratio, text, timeoutMs",
        ),
        ("label: ''", "$.label: string should have at least 1 character, got ''"),
        ("ratio: .nan", "$.ratio: input should be a finite number, got nan"),
        ("text: contradiction", "$: text contradicts itself"),
    ],
)
def test_an_invalid_config_names_the_path_what_is_allowed_and_the_nearest_key(
    folder: Folder, config: str, message: str
) -> None:
    problems = folder.problems(f"- id: a\n  name: $Sample\n  config:\n    extra: 1\n    {config}\n")
    line = 4 if config == "text: contradiction" else 5
    assert problems[0].startswith(f'c.yml:{line}, entry "a": invalid config: {message}')


def test_a_missing_key_is_reported_at_the_row_that_lacks_it(folder: Folder) -> None:
    assert folder.problems(
        "\n- {id: a, name: $Required}\n- id: b\n  name: $Sample\n  config:\n    models:\n      - {}\n"
    ) == [
        'c.yml:2, entry "a": invalid config: $.root is required: a string',
        'c.yml:7, entry "b": invalid config: $.models[0].id is required: a string',
    ]


def test_unknown_keys_of_a_lenient_entry_are_dropped_with_a_warning(folder: Folder) -> None:
    text = "- id: a\n  name: $LenientSample\n  config:\n    text: kept\n    timeoutms: 5\n    other: 6\n"
    assert folder.configs(text) == {"a": "kept"}
    assert folder.warnings(text) == [
        'c.yml:5, entry "a": unknown key $.timeoutms is ignored (did you mean "timeoutMs"?)',
        'c.yml:6, entry "a": unknown key $.other is ignored',
    ]


def test_a_lenient_entry_still_refuses_wrong_values_and_nested_unknown_keys(folder: Folder) -> None:
    problems = folder.problems("""
        - {id: a, name: $LenientSample, config: {other: 1, timeoutMs: 0}}
        - {id: b, name: $LenientSample, config: {models: [{id: m, other: 1}]}}
    """)
    assert [problem.split("invalid config: ")[1].split(";")[0] for problem in problems] == [
        "$.timeoutMs must be an integer from 1 to 1000, got 0",
        "unknown key $.models[0].other",
    ]


def test_a_key_is_written_in_camel_case_only(folder: Folder) -> None:
    (problem,) = folder.problems("\n- {id: a, name: bash, config: {timeout_ms: 5}}\n")
    assert problem == (
        'c.yml:2, entry "a": invalid config: unknown key $.timeout_ms (did you mean "timeoutMs"?); allowed: '
        + problem.partition("allowed: ")[2]
    )

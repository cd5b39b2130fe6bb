from __future__ import annotations

import asyncio

import pytest

from cordisd.kernel.mount import mount
from cordisd.kernel.names import PUBLISHED
from cordisd.kernel.scope import Scope
from kernel.conftest import Folder

PLUMBING = [name for name, reference in PUBLISHED.items() if "plumbing" in reference]


def test_every_plumbing_row_mounts_and_contributes_nothing(folder: Folder) -> None:
    rows = [
        f"- {{id: {name}, name: '@deepseek-ai/{name}'}}\n"
        for name in PLUMBING
        if name != "dsh-sandbox-policy"
    ]
    policy = "- {id: p, name: dsh-sandbox-policy, config: {mode: danger-full-access, workspaceRoot: /w}}\n"
    composition = folder.load("".join(rows) + policy)

    async def steps() -> None:
        scope = Scope("host")
        await mount(composition.entries, scope)
        await scope.close()

    asyncio.run(steps())
    assert composition.warnings == ()
    assert composition.session == ()


@pytest.mark.parametrize("name", PLUMBING)
def test_every_plumbing_entry_says_what_plays_its_part(name: str) -> None:
    from cordisd.kernel.names import resolve

    entry_class = resolve(name).import_class()
    assert entry_class.__doc__ is not None
    assert entry_class.__doc__.startswith(f"`{name}`: ")


def test_an_unknown_key_of_a_published_row_is_a_warning(folder: Folder) -> None:
    text = (
        "- {id: t, name: '@deepseek-ai/dsh-terminal-bash', config: {timeoutMs: 5, colums: 3}, color: red}\n"
    )
    assert folder.warnings(text) == [
        'c.yml:1, entry "t": unknown entry field "color"; '
        "allowed: id, name, config, disabled, group, inject, intercept, isolate",
        'c.yml:1, entry "t": unknown key $.colums is ignored (did you mean "cols"?)',
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            "dsh-terminal-bash, config: {rows: 0}",
            "$.rows must be an integer from 1 to 9007199254740991, got 0",
        ),
        (
            "dsh-sdk-jsonrpc-server, config: {maxTokensAsSuccess: 'no'}",
            "$.maxTokensAsSuccess must be a boolean, got 'no'",
        ),
        (
            "dsh-sandbox-policy, config: {mode: read-only}",
            "$.mode must be 'danger-full-access', got 'read-only'",
        ),
        ("dsh-sandbox-policy", "$.mode is required: 'danger-full-access'"),
        (
            "dsh-sandbox-local, config: {runnerCommand: [bwrap]}",
            "$.runnerCommand: list should have at most 0 items after validation, not 1, got ['bwrap']",
        ),
        (
            "dsh-llm-retry, config: {retryPolicy: {maxRetries: 1}}",
            "$.retryPolicy: the retry policy belongs to the provider's own row, as its retryPolicy",
        ),
        ("dsh-fs-local, config: {cwd: 5}", "$.cwd must be a string or null, got 5"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused(folder: Folder, row: str, problem: str) -> None:
    assert folder.problems(f"- {{id: a, name: {row}}}") == [f'c.yml:1, entry "a": invalid config: {problem}']

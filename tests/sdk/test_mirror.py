"""The synchronous classes have what the asynchronous ones have, under the same names."""

from __future__ import annotations

import inspect

import pytest

from cordisd_sdk import (
    AsyncAttachment,
    AsyncClient,
    AsyncPrompt,
    AsyncSession,
    Attachment,
    Client,
    Prompt,
    Session,
)

PLUMBING = {
    AsyncClient: {"announces", "connection", "release"},
    AsyncSession: {"detach", "hear", "lose"},
    AsyncPrompt: {"bind", "end_by_log", "has_heard_of", "hear", "lose", "more", "replay"},
    AsyncAttachment: {"end", "hear", "lose", "more"},
}
"""What the classes offer to each other, not to callers."""


@pytest.mark.parametrize(
    ("waits", "blocks"),
    [(AsyncClient, Client), (AsyncSession, Session), (AsyncPrompt, Prompt), (AsyncAttachment, Attachment)],
)
def test_every_method_has_a_blocking_one_with_the_same_parameters(waits: type, blocks: type) -> None:
    for name in {name for name in vars(waits) if not name.startswith("_")} - PLUMBING[waits]:
        mirrored = vars(blocks)[name]
        assert mirrored.__doc__
        if inspect.isfunction(mirrored):
            parameters = inspect.signature(mirrored).parameters
            assert list(parameters.values()) == list(inspect.signature(vars(waits)[name]).parameters.values())

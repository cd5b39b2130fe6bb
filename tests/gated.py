"""A mock model that answers when the test lets it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cordisd.mock import Received, Reply
from measure import PATIENCE_S


def gated(go: threading.Event, *replies: Reply) -> Callable[[Received], Reply]:
    """The script that gives these replies in order, the first one once `go` is set."""
    left = iter(replies)

    def script(request: Received) -> Reply:
        assert go.wait(PATIENCE_S)
        return next(left)

    return script

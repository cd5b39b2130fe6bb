"""Python client of the `cordisd` daemon: `Client`, and `AsyncClient` with the same surface for asyncio.

Each name is imported when it is first used: every run of pytest where this package is installed loads its
plugin, which needs none of them before a test does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordisd_sdk.attachment import AsyncAttachment
    from cordisd_sdk.client import AsyncClient
    from cordisd_sdk.connect import Notification
    from cordisd_sdk.errors import (
        ConnectionClosedError,
        NotListeningError,
        ProtocolError,
        RequestTimeoutError,
        RpcError,
        SdkError,
    )
    from cordisd_sdk.launch import DaemonOptions
    from cordisd_sdk.run import AsyncPrompt, RunResult
    from cordisd_sdk.session import AsyncSession, PromptOptions, SessionOptions
    from cordisd_sdk.sync import Attachment, Client, Prompt, Session
else:
    _MODULES = {
        "attachment": ["AsyncAttachment"],
        "client": ["AsyncClient"],
        "connect": ["Notification"],
        "errors": [
            "ConnectionClosedError",
            "NotListeningError",
            "ProtocolError",
            "RequestTimeoutError",
            "RpcError",
            "SdkError",
        ],
        "launch": ["DaemonOptions"],
        "run": ["AsyncPrompt", "RunResult"],
        "session": ["AsyncSession", "PromptOptions", "SessionOptions"],
        "sync": ["Attachment", "Client", "Prompt", "Session"],
    }

    def __getattr__(name):
        import importlib

        for module, names in _MODULES.items():
            if name in names:
                value = getattr(importlib.import_module(f"cordisd_sdk.{module}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "AsyncAttachment",
    "AsyncClient",
    "AsyncPrompt",
    "AsyncSession",
    "Attachment",
    "Client",
    "ConnectionClosedError",
    "DaemonOptions",
    "NotListeningError",
    "Notification",
    "Prompt",
    "PromptOptions",
    "ProtocolError",
    "RequestTimeoutError",
    "RpcError",
    "RunResult",
    "SdkError",
    "Session",
    "SessionOptions",
]

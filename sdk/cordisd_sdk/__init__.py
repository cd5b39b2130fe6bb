"""Python client of the `cordisd` daemon: `Client`, and `AsyncClient` with the same surface for asyncio."""

from cordisd_sdk.client import AsyncClient
from cordisd_sdk.connect import Notification
from cordisd_sdk.errors import (
    ConnectionClosedError,
    ProtocolError,
    RequestTimeoutError,
    RpcError,
    SdkError,
)
from cordisd_sdk.launch import DaemonOptions
from cordisd_sdk.run import AsyncPrompt, RunResult
from cordisd_sdk.session import AsyncSession, SessionOptions
from cordisd_sdk.sync import Client, Prompt, Session

__all__ = [
    "AsyncClient",
    "AsyncPrompt",
    "AsyncSession",
    "Client",
    "ConnectionClosedError",
    "DaemonOptions",
    "Notification",
    "Prompt",
    "ProtocolError",
    "RequestTimeoutError",
    "RpcError",
    "RunResult",
    "SdkError",
    "Session",
    "SessionOptions",
]

"""Published rows whose part is played by the daemon itself.

They let a published composition load unchanged: each checks its configuration, says what plays its part
here, and contributes nothing. A setting that would be silently disregarded to somebody's harm is refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from cordisd.events import JsonObject
from cordisd.kernel.entry import Entry
from cordisd.kernel.scope import Scope
from cordisd.settings import EntryConfig, Milliseconds, PositiveInt


class PlumbingEntry(Entry):
    """A row that is only checked."""

    lenient: ClassVar[bool] = True
    inert: ClassVar[bool] = True

    @asynccontextmanager
    async def mount(self, scope: Scope) -> AsyncIterator[None]:
        """Contribute nothing."""
        yield


class JsonRpcServerConfig(EntryConfig):
    max_tokens_as_success: bool = False
    """Whether a delegated run that ends at its token limit succeeded; no run is delegated here."""


class JsonRpcServerEntry(PlumbingEntry):
    """`dsh-sdk-jsonrpc-server`: the daemon always serves; `cordisd serve` chooses the transport."""

    Config = JsonRpcServerConfig


class LlmEntry(PlumbingEntry):
    """`dsh-llm`: the registry of model adapters is part of every daemon."""


class LlmRetryConfig(EntryConfig):
    retry_policy: JsonObject | None = None
    """Refused: the policy belongs to the row of the provider."""

    @field_validator("retry_policy")
    @classmethod
    def _belongs_elsewhere(cls, value: JsonObject | None) -> None:
        raise ValueError("the retry policy belongs to the provider's own row, as its retryPolicy")


class LlmRetryEntry(PlumbingEntry):
    """`dsh-llm-retry`: the agent loop repeats failed requests as the provider's `retryPolicy` says."""

    Config = LlmRetryConfig


class SandboxLocalConfig(EntryConfig):
    runner_command: list[str] = Field(default_factory=list, max_length=0)
    """Command that would wrap every process; only an empty one, since tools run unwrapped here."""
    probe_timeout_ms: Milliseconds = 5000
    """Time allowed to find out what the sandbox can do; nothing is probed here."""


class SandboxLocalEntry(PlumbingEntry):
    """`dsh-sandbox-local`: there is no sandbox here; run the daemon in a container to confine its tools."""

    Config = SandboxLocalConfig


class SandboxPolicyConfig(EntryConfig):
    mode: Literal["danger-full-access"]
    """What tools may touch. Nothing confines them here, and a policy that says otherwise is refused."""
    workspace_root: str | None = None
    """Folder that a stricter mode would confine writes to."""


class SandboxPolicyEntry(PlumbingEntry):
    """`dsh-sandbox-policy`: tools have the rights of the daemon."""

    Config = SandboxPolicyConfig


class SubprocessLocalEntry(PlumbingEntry):
    """`dsh-subprocess-local`: the guardian process starts and reaps every process of a session."""


class TerminalEntry(PlumbingEntry):
    """`dsh-terminal`: the bash entry opens its own pseudo-terminal."""


class TerminalBashConfig(EntryConfig):
    timeout_ms: Milliseconds = 30_000
    """Time limit of a terminal command; the limit of the bash tool's own row applies here."""
    rows: PositiveInt = 40
    """Height of the terminal; the bash entry's terminal has its own size."""
    cols: PositiveInt = 160
    """Width of the terminal; the bash entry's terminal has its own size."""


class TerminalBashEntry(PlumbingEntry):
    """`dsh-terminal-bash`: the bash entry drives its shell itself."""

    Config = TerminalBashConfig


class LocalFolderConfig(EntryConfig):
    cwd: str | None = None
    """Folder that relative paths start from; here it is the working directory of each session."""


class BashLocalEntry(PlumbingEntry):
    """`dsh-bash-local`: the executor behind one-shot shells; tools that need it bring their own here."""

    Config = LocalFolderConfig


class FsLocalEntry(PlumbingEntry):
    """`dsh-fs-local`: tools that read and write files do so themselves."""

    Config = LocalFolderConfig


class SessionPersistenceEntry(PlumbingEntry):
    """`dsh-session-persistence`: the log of a session is part of every daemon; `sessions-jsonl` stores it."""


class SessionCheckpointPolicyEntry(PlumbingEntry):
    """`dsh-session-checkpoint-policy`: events are written before they are sent; see `sessions-jsonl`."""


class SessionTitleEntry(PlumbingEntry):
    """`dsh-session-title`: a session is titled by its first prompt, within the agent entry's limits."""

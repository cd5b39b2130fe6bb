"""Drives one prompt through a child daemon, for the subcommands that do so."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from cordisd.cli.progress import BOLD, RED, REDRAW_S, Progress
from cordisd.errors import SessionNotFoundError
from cordisd.shapes import Limits
from cordisd_sdk import (
    AsyncClient,
    AsyncSession,
    DaemonOptions,
    RpcError,
    RunResult,
    SdkError,
    SessionOptions,
)

CANCEL_WAIT_S: Final = 10.0
SUCCESS: Final = ("completed", "structured_output")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a prompt. `result` is None when there is none; `refused`: the daemon did not start."""

    result: RunResult | None
    interrupted: bool
    refused: bool = False


class Task(NamedTuple):
    """A prompt, and the session in which it runs: a new one if there is none of that id."""

    text: str
    session_id: str | None = None
    limits: Limits = {}
    may_resume: bool = True
    """Whether a session that is stored goes on; it is refused otherwise."""


def drive(options: DaemonOptions, task: Task, progress: Progress) -> Outcome:
    """Run one prompt to its end, telling `progress`. Failures are told on stderr, not raised."""
    return asyncio.run(_drive(options, task, progress))


def exit_code_of(outcome: Outcome) -> int:
    """0 done, 1 failed, 2 the composition or an argument was refused, 130 interrupted."""
    if outcome.result is not None and outcome.result.stop_reason in SUCCESS:
        return 0
    if outcome.interrupted:
        return 130
    return 2 if outcome.refused else 1


class Interrupts:
    """Ctrl-C while a prompt runs: the first cancels the turn, in bounded time; the next kills the daemon."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._cancelling: asyncio.Task[None] | None = None
        self.session: AsyncSession | None = None
        """The session whose turn the first Ctrl-C cancels; before there is one it kills the daemon."""
        self.n_seen = 0

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGINT, self._strike)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)
        if self._cancelling is not None:
            self._cancelling.cancel()

    def _strike(self) -> None:
        self.n_seen += 1
        if self.session is None or self.n_seen > 1:
            self._client.kill()
        else:
            self._cancelling = self._loop.create_task(self._cancel(self.session))

    async def _cancel(self, session: AsyncSession) -> None:
        with contextlib.suppress(SdkError):
            await session.cancel()
        await asyncio.sleep(CANCEL_WAIT_S)
        self._client.kill()


async def _drive(options: DaemonOptions, task: Task, progress: Progress) -> Outcome:
    options = options | {"on_stderr": lambda line: progress.line(line, RED)}
    client = AsyncClient(**options)
    drawing = asyncio.create_task(_keep_drawn(progress))
    result: RunResult | None = None
    failure: str | None = None
    started = False
    with Interrupts(client) as interrupts:
        try:
            async with client:
                started = True
                session = await _open(client, task, options.get("preset"))
                progress.line(f"session {session.id}", BOLD)
                interrupts.session = session
                if not interrupts.n_seen:
                    result = await session.run(
                        task.text,
                        on_event=progress.show,
                        max_turns=task.limits.get("maxTurns"),
                        run_timeout_s=task.limits.get("timeoutSeconds"),
                    )
                    failure = _failure_of(result)
                interrupts.session = None
        except SdkError as error:
            failure = str(error).split("\n", 1)[0]  # the rest is stderr, which has been shown
        finally:
            drawing.cancel()
            progress.close()
    refused = not started and client.exit_code in (0, 2)
    has_said_why = refused and client.exit_code == 2
    if failure is not None and not interrupts.n_seen and not has_said_why:
        print(f"cordisd: {failure}", file=sys.stderr)
    return Outcome(result, interrupts.n_seen > 0, refused)


async def _open(client: AsyncClient, task: Task, preset: str | None) -> AsyncSession:
    session_id = task.session_id
    if session_id is not None and task.may_resume:
        try:
            session = await client.resume(session_id)
        except RpcError as error:
            if error.code != SessionNotFoundError.rpc_code:
                raise
        else:
            await _check_begun(session, task, preset)
            return session
    own: SessionOptions = {"limits": {"maxCost": task.limits["maxCost"]}} if "maxCost" in task.limits else {}
    return client.session(session_id, **own)


async def _check_begun(session: AsyncSession, task: Task, preset: str | None) -> None:
    """Refuse what only a new session can be given."""
    if "maxCost" in task.limits:
        raise SdkError(f'session "{session.id}" is there already; the cost of a new one only can be limited')
    if preset is not None and (begun_with := (await session.get())["preset"]) != preset:
        made = "no preset" if begun_with is None else f'the preset "{begun_with}"'
        raise SdkError(f'session "{session.id}" was begun with {made}, not with "{preset}", and keeps that')


async def _keep_drawn(progress: Progress) -> None:
    while True:
        progress.redraw()
        await asyncio.sleep(REDRAW_S)


def _failure_of(result: RunResult) -> str | None:
    if result.stop_reason in SUCCESS:
        return None
    if result.error is not None:
        status = f", HTTP {result.error['status']}" if "status" in result.error else ""
        return f"the run failed: {result.error['message']} ({result.error['code']}{status})"
    limit = f" ({result.limit['name']} {result.limit['allowed']:g})" if result.limit is not None else ""
    return f"the run ended early: {result.stop_reason}{limit}"

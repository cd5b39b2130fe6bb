"""Serves a composition on standard input and output and on sockets, from the first frame to a clean exit."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from cordisd.agent.host import Host
from cordisd.kernel.load import Composition
from cordisd.rpc.connections import Connections
from cordisd.rpc.service import Service
from cordisd.rpc.transports import claim_stdio
from cordisd.shell.guardian import Guardian

logger = logging.getLogger(__name__)

ANSWER_S: Final = 0.3
"""How long an ending daemon waits for its last answers to be taken."""
HIDE_S: Final = 0.5
"""When the daemon hides from its own user's programs, if no client has come before."""


def serve(composition: Composition, guardian: Guardian, service: Service, parent: int) -> int:
    """Serve until `shutdown`, a signal, or, on stdio, end of input or the parent's death; the exit code.

    `parent` is the process that started the daemon.

    Raises:
        CompositionError: an entry did not mount; nothing was served.
    """
    for warning in composition.warnings:
        logger.warning("%s", warning)
    _raise_file_limit()
    try:
        with asyncio.Runner() as runner:
            code = runner.run(_serve(composition, guardian, service, parent))
            runner.run(_end_tasks())
            _close(service)
            if threading.active_count() > 1:
                # One may read a log of gigabytes, or wait for a disk that is gone: nobody waits for that.
                logging.shutdown()
                os._exit(code)
            return code
    finally:
        _close(service)


async def _serve(composition: Composition, guardian: Guardian, service: Service, parent: int) -> int:
    loop = asyncio.get_running_loop()
    exit_code: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not exit_code.done():
            exit_code.set_result(code)

    _heed_signals(loop, end)
    host = Host(composition, guardian)
    try:
        if not await _start(host, exit_code):
            return exit_code.result()
        connections = Connections(host, lambda: end(0))
        loop.call_later(HIDE_S, connections.hide_daemon)
        for listener in service.listeners:
            connections.accept(listener, service.token)
        if service.listeners:
            places = " ".join(listener.url for listener in service.listeners)
            with suppress(OSError):  # nobody may want to know
                os.write(2, os.fsencode(f"cordisd: listening on {places}\n"))  # the one line that says: ready
        forget_parent = _nothing
        if service.stdio:
            connections.add_stdio(*claim_stdio(), lambda: end(0))
            forget_parent = _watch_parent(loop, parent, lambda: end(0))
        watch = None
        if service.idle_exit_s is not None:
            watch = asyncio.ensure_future(
                _end_when_idle(host, connections, service.idle_exit_s, lambda: end(0))
            )
        try:
            return await exit_code
        finally:
            if watch is not None:
                watch.cancel()
            forget_parent()
            _close(service)
            await host.abort()
            await connections.close(ANSWER_S)
    finally:
        await host.close()


async def _end_tasks() -> None:
    """Cancel what is still under way, and give it a moment to clean up."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=ANSWER_S)


def _close(service: Service) -> None:
    for listener in service.listeners:
        listener.close()


def _heed_signals(loop: asyncio.AbstractEventLoop, end: Callable[[int], None]) -> None:
    """The first signal ends the daemon in order, another one at once: the guardian kills what is left."""
    was_told = False

    def heed(number: int, code: int) -> None:
        nonlocal was_told
        if was_told:
            os._exit(128 + number)
        was_told = True
        end(code)

    for number, code in ((signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)):
        loop.add_signal_handler(number, heed, number, code)


async def _end_when_idle(
    host: Host, connections: Connections, idle_exit_s: float, end: Callable[[], None]
) -> None:
    busy_s = time.monotonic()
    while True:
        now_s = time.monotonic()
        if len(connections) or any(live.session.status != "idle" for live in host.live.values()):
            busy_s = now_s
        elif now_s - max(busy_s, connections.last_used_s) >= idle_exit_s:
            end()
            return
        await asyncio.sleep(min(1.0, idle_exit_s / 4))


async def _start(host: Host, exit_code: asyncio.Future[int]) -> bool:
    """Start the host; False when a signal came first, for an entry may take long to mount.

    Raises:
        CompositionError: an entry did not mount.
    """
    starting = asyncio.ensure_future(host.start())
    exit_code.add_done_callback(lambda _: starting.cancel())
    try:
        await starting
    except asyncio.CancelledError:
        if not exit_code.done():
            raise
    return not exit_code.done()


def _watch_parent(
    loop: asyncio.AbstractEventLoop, parent: int, on_death: Callable[[], None]
) -> Callable[[], None]:
    """Call `on_death` when our parent process ends, even if someone else holds our input open."""
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        loop.call_soon(on_death)
        return _nothing
    except OSError:  # an old kernel: end of input has to do
        return _nothing
    if os.getppid() != parent:  # it died while we started
        loop.call_soon(on_death)

    def died() -> None:
        loop.remove_reader(watched)
        on_death()

    loop.add_reader(watched, died)

    def forget() -> None:
        loop.remove_reader(watched)
        os.close(watched)

    return forget


def _nothing() -> None:
    """No parent was watched."""


def _raise_file_limit() -> None:
    """Every live shell takes three descriptors, every log one: use all that the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

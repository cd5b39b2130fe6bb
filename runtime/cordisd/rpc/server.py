"""Serves a composition on standard input and output, from the first frame to a clean exit."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable
from typing import Final

from cordisd.agent.host import Host
from cordisd.kernel.load import Composition
from cordisd.rpc.peer import Peer
from cordisd.rpc.transports import claim_stdio
from cordisd.shell.guardian import Guardian

logger = logging.getLogger(__name__)

ANSWER_S: Final = 0.3
"""How long an ending daemon waits for its last answers to be taken."""


def serve_stdio(composition: Composition, guardian: Guardian) -> int:
    """Serve until `shutdown`, end of input, a signal or the parent's death; returns the exit code.

    Raises:
        CompositionError: an entry did not mount; nothing was served.
    """
    for warning in composition.warnings:
        logger.warning("%s", warning)
    _raise_file_limit()
    return asyncio.run(_serve(composition, guardian))


async def _serve(composition: Composition, guardian: Guardian) -> int:
    loop = asyncio.get_running_loop()
    exit_code: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not exit_code.done():
            exit_code.set_result(code)

    for number, code in ((signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)):
        loop.add_signal_handler(number, end, code)
    host = Host(composition, guardian)
    try:
        if not await _start(host, exit_code):
            return exit_code.result()
        reader, writer = claim_stdio()
        peer = Peer(host, reader, writer, lambda: end(0))
        host.on_open = peer.attach
        forget_parent = _watch_parent(loop, lambda: end(0))
        try:
            return await exit_code
        finally:
            forget_parent()
            await host.abort()
            await peer.close(ANSWER_S)
    finally:
        await host.close()


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


def _watch_parent(loop: asyncio.AbstractEventLoop, on_death: Callable[[], None]) -> Callable[[], None]:
    """Call `on_death` when our parent process ends, even if someone else holds our input open."""
    parent = os.getppid()
    try:
        watched = os.pidfd_open(parent)
    except OSError:  # an old kernel, or a parent that is gone: end of input has to do
        return lambda: None
    if os.getppid() != parent:  # it died between the two calls
        loop.call_soon(on_death)

    def died() -> None:
        loop.remove_reader(watched)
        on_death()

    loop.add_reader(watched, died)

    def forget() -> None:
        loop.remove_reader(watched)
        os.close(watched)

    return forget


def _raise_file_limit() -> None:
    """Every live shell takes three descriptors, every log one: use all that the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 16) if hard != resource.RLIM_INFINITY else 1 << 16
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

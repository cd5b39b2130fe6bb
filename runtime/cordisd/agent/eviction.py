"""What a session that has long been idle need not keep in memory: its past, which the log has too.

Its shells, its realm and its agent stay, and so do its inbox and what it has spent: whatever does not begin a
turn is served without its past. A prompt brings that back, and the next request is as if nothing had been.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cordisd.session.restore import read_past
from cordisd.session.session import Session


@dataclass(slots=True)
class Eviction:
    """Lets go of the past of a session when that has been idle for `after_s`; None: never."""

    session: Session
    after_s: float | None
    _timer: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """The session is idle from now on."""
        self.close()
        if self.after_s is not None and self.session.log.path is not None:
            self._timer = asyncio.get_running_loop().call_later(self.after_s, self._evict)

    def close(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def recall(self) -> None:
        """Bring the past back, if it is gone. Callers hold `Host.in_order`, and begin their turn at once.

        Raises:
            LogError: the log cannot be read, or does not hold all that was written. The session is as it was.
        """
        session = self.session
        while session.is_evicted:
            session.log.commit()
            path, n_events = session.log.path, session.log.next_seq
            assert path is not None
            encode = session.adapter.encode_message
            past = await asyncio.to_thread(read_past, path, session.id, n_events, encode)
            if session.log.next_seq == n_events:  # else something has been logged meanwhile
                session.remember(*past)
                self.wait()  # the prompt may be one that begins no turn

    def _evict(self) -> None:
        self._timer = None
        log = self.session.log
        if self.session.status == "idle" and not self.session.is_evicted:
            log.flush()
            if log.next_seq > 0 and log.failure is None:
                self.session.evict()

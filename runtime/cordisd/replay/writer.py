"""The file of a recording under way: whole lines, by one process at a time, named at its end."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cordisd.errors import CordisError
from cordisd.events import JsonObject
from cordisd.replay.canonical import Mask, RequestHasher, Rules
from cordisd.replay.paths import Workspace
from cordisd.replay.recording import encode_line, end_line, exchange_lines
from cordisd.replay.secrets import MIN_SECRET_CHARS
from cordisd.replay.stream import hide_in_stream
from cordisd.replay.turns import Exchange

PART: Final = ".part"


class Writer:
    """One recording under way. After a failed write it takes no more, so that it never looks complete."""

    def __init__(
        self,
        target: Path,
        header: JsonObject,
        cwd: str,
        masks: Sequence[Mask],
        secrets: Sequence[str],
        redact: Sequence[str] = (),
    ) -> None:
        self._cwd, self._masks, self._secrets, self._redact = cwd, masks, set(secrets), redact
        self.rules = Rules(Workspace(cwd, secrets, redact), masks)
        self.turn = 0
        """The last turn that has a prompt in the file."""
        self._target = target
        self._part = target.with_name(target.name + PART)
        self._last: JsonObject = {}
        """Body of the last request."""
        self._hasher = RequestHasher()
        self._n_requests = 0
        self._digest = hashlib.sha256()
        self._failure: str | None = None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open_alone(self._part)
        except OSError as error:
            raise self._fault(error) from error
        try:
            self.write(header)
        except BaseException:
            self._close()
            raise

    def learn(self, secrets: Sequence[str]) -> None:
        """Keep these out, too: what a header says may be a secret that is in no variable."""
        new = {one for one in secrets if len(one) >= MIN_SECRET_CHARS} - self._secrets
        if new:
            self._secrets |= new
            workspace = Workspace(self._cwd, sorted(self._secrets), self._redact)
            self.rules = Rules(workspace, self._masks)

    def write(self, row: JsonObject) -> None:
        """Add one line."""
        self.add(encode_line(row))

    def add(self, data: bytes) -> None:
        """Add whole lines.

        Raises:
            CordisError: they cannot be written, or earlier ones could not.
        """
        if self._failure is not None:
            raise CordisError(self._failure)
        data = self.rules.workspace.redact(data)
        self._digest.update(data)
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            fault = self._fault(error)
            self._failure = str(fault)
            raise fault from error

    def keep(self, exchange: Exchange) -> None:
        """Add one exchange; its answer is as it came."""
        answer, workspace = exchange.answer, self.rules.workspace
        answer.chunks = hide_in_stream(workspace, answer.chunks)
        answer.headers = {name: workspace.hide(value) for name, value in answer.headers.items()}
        if answer.failure is not None:
            answer.failure = {**answer.failure, "message": workspace.hide(answer.failure["message"])}
        self.add(b"".join(exchange_lines(exchange, self._last, self._hasher)))
        self._last = exchange.body
        self._n_requests += 1

    def finish(self) -> None:
        """Write the end line and give the file its name; a broken one keeps the name that it has.

        Without a request there is nothing to play: then what has the name already stays.

        Raises:
            CordisError: it is broken.
        """
        try:
            if self._failure is None and self._n_requests == 0:
                os.unlink(self._part)
                return
            self.add(end_line(self._n_requests, self._digest.hexdigest()))
            os.replace(self._part, self._target)
        except OSError as error:
            raise self._fault(error) from error
        finally:
            self._close()

    def _close(self) -> None:
        os.close(self._file)

    def _fault(self, error: OSError) -> CordisError:
        reason = "another process records into it" if isinstance(error, BlockingIOError) else error.strerror
        return CordisError(f"cannot record: {self._part}: {reason}")


def _open_alone(path: Path) -> int:
    """The file, emptied; whoever has it open keeps others out, and one left by a dead process is nobody's.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be written.
    """
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), os.stat(path)):
            raise BlockingIOError  # it has just been finished, under its other name
        os.ftruncate(file, 0)
    except BaseException:
        os.close(file)
        raise
    return file

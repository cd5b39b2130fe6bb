"""The words in which the model is told how its command went."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Literal

from cordisd.shell.driver import LEFTOVER
from cordisd.shell.exchange import Ending
from cordisd.shell.output import HEAD_BYTES, TAIL_BYTES, Capture
from cordisd.shell.render import render, render_head, render_tail
from cordisd.shell.spill import Spill

Truncation = Literal["headTail", "reference"]
Trailer = Literal["reference", "always"]

RESET_NOTICE = (
    "[The persistent shell was reset: the next call starts in the workspace with a fresh directory and "
    "environment, and background jobs have been ended.]"
)
WAS_RESET_NOTICE = RESET_NOTICE.replace("the next call starts", "this call started")
_CLIPPED = (
    "<response clipped><NOTE>Only the first part of this output is shown, because it exceeds the limit. "
    "Search for what you need with `grep -n`, or print a range of lines.</NOTE>"
)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What the model reads, and the facts behind it, each independent of the others."""

    text: str
    exit_code: int | None
    """Of the command, or of the shell when that exited; None when there is none, or it is not known."""
    signal: str | None = None
    """Name of the signal that killed the shell."""
    timed_out: bool = False
    truncated: bool = False
    shell_reset: bool = False
    """The next call starts in a new shell."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended and what was done about it."""

    ending: Ending
    stopped: Ending | None
    """Why we ended the command ourselves: it `EXPIRED`, or was found `WAITING`."""
    exit_code: int | None
    signal: str | None
    shell_reset: bool
    reconnected: list[str]
    """Those of the shell's stdout and stderr that had to be led back to the terminal."""


def notice_before(outcome: Outcome, timeout_s: float) -> str:
    """What must be known before the output is read, if anything."""
    if outcome.stopped is Ending.EXPIRED:
        return (
            f"[The command did not finish in {timeout_s:g} s and was stopped; its output until then follows.]"
        )
    if outcome.stopped is Ending.WAITING:
        return (
            "[The command was stopped because it waited for input from the terminal, where nobody can type; "
            "its output until then follows.]"
        )
    return ""


def notice_after(outcome: Outcome, trailer: Trailer) -> str:
    """The lines that follow the output: how it ended, what has changed, the exit code."""
    notes: list[str] = []
    if outcome.stopped is None:
        if outcome.ending is Ending.DIED:
            notes.append(death_line(outcome.exit_code, outcome.signal))
        elif outcome.ending is Ending.BROKEN:
            notes.append("[The shell did not answer any more; the command may not have run to its end.]")
        elif outcome.exit_code is None:
            notes.append("[The shell did not say how the command ended; its exit code is unknown.]")
        elif outcome.ending is Ending.PROMPTED:
            notes.append("[The shell abandoned the command; the rest of it was not run.]")
    elif not outcome.shell_reset:
        notes.append(
            "[Everything that it had started was ended. The shell is still running, its state kept.]"
        )
    if outcome.reconnected:
        notes.append(
            f"[The command had redirected the shell's own {' and '.join(outcome.reconnected)}; "
            "for the next call it is the terminal again.]"
        )
    if outcome.shell_reset:
        notes.append(RESET_NOTICE)
    elif outcome.stopped is None and outcome.exit_code is not None:
        notes.append(exit_trailer(outcome.exit_code, trailer))
    return lines(*notes)


def capture_of(max_chars: int, spill: Spill | None = None) -> Capture:
    """A capture that keeps enough for `shown_output` to show so many characters."""
    n_head, n_tail = _split(max_chars)
    return Capture(max(HEAD_BYTES, 4 * n_head), max(TAIL_BYTES, 4 * n_tail), spill)


def shown_output(capture: Capture, max_chars: int, truncation: Truncation) -> tuple[str, bool]:
    """The output as text of about `max_chars` code points, and whether something was left out."""
    if capture.complete:
        text = _without_last_newline(render(capture.head() + capture.tail()))
        if len(text) <= max_chars:
            return text, False
        if truncation == "reference":
            return text[:max_chars] + _CLIPPED, True
        head, tail = _head_and_tail(text, text, max_chars)
        left_out = text[len(head) : len(text) - len(tail)]
        return head + _gap(len(left_out), "characters", left_out.count("\n"), capture.locate()) + tail, True
    if truncation == "reference":
        return render_head(capture.head())[:max_chars] + _CLIPPED, True
    last = capture.tail()
    head, tail = _head_and_tail(
        render_head(capture.head()), _without_last_newline(render_tail(last)), max_chars
    )
    ends_line = last.endswith(b"\n")
    n_bytes = capture.n_bytes - ends_line - len(head.encode()) - len(tail.encode())
    n_lines = capture.n_lines - ends_line - head.count("\n") - tail.count("\n")
    return head + _gap(max(n_bytes, 0), "bytes", max(n_lines, 0), capture.locate()) + tail, True


def background_section(background: Capture | None) -> str:
    """The labelled output that jobs have printed since the last call, or nothing."""
    if background is None or not background.n_bytes:
        return ""
    head, tail = LEFTOVER.sub(b"", background.head()), LEFTOVER.sub(b"", background.tail())
    if background.complete:
        text = render(head + tail)
    else:
        text = f"{render_head(head)}\n[... part of it omitted ...]\n{render_tail(tail)}"
    text = text.strip("\n")
    if not text:
        return ""
    return f"[output of background jobs since the last call]\n{text}\n[end of background output]"


def exit_trailer(status: int, trailer: Trailer) -> str:
    """`[exit code: N]`, as a line of its own; for status 0 only if `trailer` asks for it."""
    if trailer == "reference":
        return f"[exit code: {status}]" if status else ""
    name = signal_name(status - 128) if status > 128 else None
    return f"[exit code: {status} ({name})]" if name else f"[exit code: {status}]"


def death_line(exit_code: int | None, signal_word: str | None) -> str:
    """How the shell itself ended."""
    if signal_word is not None:
        return f"[shell killed by signal: {signal_word}]"
    return "[shell exited]" if exit_code is None else f"[shell exited: code {exit_code}]"


def ending_of(wait_status: int | None) -> tuple[int | None, str | None]:
    """Exit code and signal name of a process; one of them is None, both while it runs."""
    if wait_status is None:
        return None, None
    code = os.waitstatus_to_exitcode(wait_status)
    return (code, None) if code >= 0 else (None, signal_name(-code) or f"{-code}")


def signal_name(number: int) -> str | None:
    """`SIGKILL` for 9; None if there is no such signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def lines(*parts: str) -> str:
    """The parts that are not empty, each beginning on a line of its own."""
    return "\n".join(part for part in parts if part)


def _head_and_tail(head: str, tail: str, max_chars: int) -> tuple[str, str]:
    """The ends of a text in the proportion 6 to 10."""
    n_head, n_tail = _split(max_chars)
    return head[:n_head], tail[-n_tail:] if n_tail else ""


def _split(max_chars: int) -> tuple[int, int]:
    n_head = max_chars * 3 // 8
    return n_head, max_chars - n_head


def _gap(amount: int, unit: str, n_lines: int, copy: str) -> str:
    where = f"; {copy}" if copy else ""
    return f"\n[... {amount:,} {unit} omitted here, {n_lines:,} line ends among them{where} ...]\n"


def _without_last_newline(text: str) -> str:
    return text[:-1] if text.endswith("\n") else text

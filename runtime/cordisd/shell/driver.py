r"""The text typed into bash. The model's command is never typed: it travels in the command memfd.

One call is one short line. It loads the file into a variable, evals it with the two private descriptors
closed, then writes a status record to the control pipe and an end mark to the terminal. PROMPT_COMMAND
writes a prompt record whenever bash is about to read a line.

    S TOKEN STATUS     the command ran to its end
    T TOKEN STATUS     comes next; the status is 1 if stdout and stderr are still terminals
    L TOKEN 0          it could not be loaded, and did not run
    R TOKEN STATUS     a line without a command ran: bash is at its prompt again
    P STATUS           bash is at its prompt

Marks on the terminal are `\x1eTOKEN(` when the line begins, `\x1eTOKEN<` before the first byte of the
command's output, `\x1eTOKEN>` after the last, `\x1eTOKEN)` when the line ends. Between the outer and the
inner ones lies what background jobs print just then, and what `set -x`, `set -v` or a DEBUG trap says of the
line; after the command, bash lengthens the memfd if one of these is on. The token is random for each call and
typed in two halves, so that neither `set -v` nor an echo of the line can show it whole.

Typed lines begin with a blank, which keeps them out of a history that the model turns on. Everything of ours
runs with its output at /dev/null, which hides it from `set -x` and DEBUG traps. Every
word is written `\builtin word`, out of reach of aliases and functions (but one called `builtin`: `CURE`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection
from typing import Literal

COMMAND_FD = 250
CONTROL_FD = 251
MARK_LENGTH = 18
LEFTOVER = re.compile(rb"\x1e[0-9a-f]{16}[(<>)]|^[^\n]*\\builtin [^\n]* >&251;[^\n]*\n?", re.MULTILINE)
"""What may be left of ours in background output: a mark that came too late, lines echoed by `set -v`."""

Stdin = Literal["null", "tty"]

SHELL_ARGV = ["/bin/bash", "--noprofile", "--norc", "--noediting", "+o", "history", "+H", "-i"]

_PROMPT = r"""{ \builtin printf "P %s\n" "$?" >&251; } >/dev/null 2>&1"""
# After an unfinished quote in `eval`, bash takes the `if {` of the next line for words; another `eval`
# resets its parser.
_REASSERT = (
    "\\builtin eval ''; "
    # Never without PROMPT_COMMAND, should an interrupt come now; but an array of more would run them all.
    f"\\builtin declare +ilu PS0= PS1= PS2= PROMPT_COMMAND={shlex.quote(_PROMPT)}; "
    "case ${!PROMPT_COMMAND[*]} in 0) ;; *) \\builtin unset PROMPT_COMMAND; esac"
)

_TELL_TRACING = (
    "{ \\builtin trap -p DEBUG; case $- in *[xv]*) \\builtin printf x; esac; } >>/dev/fd/250; \\builtin :"
)
"""Makes the memfd longer than the command if lines are traced. In a file nobody can forge a record."""

START_LINE = b"\\builtin . /dev/fd/250\n"
"""Has bash read the file of `setup` from the command memfd."""

CURE = (
    b"\\unalias if then else fi case in esac { } ! [[ 2>/dev/null\n"
    b"POSIXLY_CORRECT=1\n"
    b"\\unset -f builtin unset eval printf mapfile declare enable shopt exec\n"
    b"\\unset POSIXLY_CORRECT\n"
    b"\\builtin enable printf mapfile eval declare unset shopt exec\n"
    b"\\builtin shopt -u inherit_errexit\n"
)
"""Lines that undo aliases of words that cannot be quoted, and a shadowed `builtin`: in POSIX mode special
builtins win over functions."""


_RECORD = re.compile(rb"(?:([STRL]) ([0-9a-f]{16}) (\d{1,3})|(P) (\d{1,3}))\Z")
_MAX_RECORD_BYTES = 64


def records(data: bytes) -> tuple[list[tuple[bytes, bytes, int]], bytes]:
    """Kind, token and status of the records in `data`, and the beginning of the next one.

    The rest was written by somebody who found the pipe; it is passed over.
    """
    *lines, rest = data.split(b"\n")
    found = [match.groups() for line in lines if (match := _RECORD.search(line))]
    return [
        (kind or prompt, token or b"", int(status or of_prompt))
        for kind, token, status, prompt, of_prompt in found
    ], rest[-_MAX_RECORD_BYTES:]


class Token:
    """The random name of one call, as it appears in records and marks."""

    __slots__ = ("halves", "marks", "text")

    def __init__(self) -> None:
        name = os.urandom(8).hex()
        self.halves = f"{name[:8]} {name[8:]}"
        self.text = name.encode()
        self.marks = tuple(b"\x1e%b%b" % (self.text, kind) for kind in (b"(", b"<", b">", b")"))


def call_line(token: Token, stdin: Stdin) -> bytes:
    """The line that runs the command in the memfd.

    Its condition makes sure that marks can be written: without a begin mark nothing has run.
    """
    source = "/dev/null" if stdin == "null" else "/dev/tty"
    return (
        f" if {{ \\builtin mapfile -d '' -t -u 250 __cordisd && "
        f"\\builtin printf '\\036%s%s(' {token.halves} >/dev/tty; }} >/dev/null 2>&1; then "
        f'! \\builtin eval "${{__cordisd-}}" <{source} 250<&- 251>&-; {_after_command(token)}; '
        f"else {{ \\builtin printf 'L %s%s 0\\n' {token.halves} >&251; }} >/dev/null 2>&1; fi\n"
    ).encode()


def sync_line(token: Token) -> bytes:
    """A line that only proves, by record R and the end mark, that bash reads lines again."""
    return f" {_at_prompt(token, '0')}\n".encode()


def reconnect_line(token: Token, names: Collection[str]) -> bytes:
    """Leads those of `stdout`, `stderr` in `names` that are no terminal to the terminal again.

    The status of its record R is 1 if that was needed for stdout, plus 2 if for stderr.
    """
    text = " { __cordisd_flags=$-; \\builtin set +xv; } 2>/dev/null; __cordisd=0; "
    for number, name in ((1, "stdout"), (2, "stderr")):
        if name in names:
            text += (
                f"[[ -t {number} ]] || {{ \\exec {number}>/dev/tty; __cordisd=$((__cordisd + {number})); }}; "
            )
    text += "{ "
    for flag in "xv":
        text += f"case $__cordisd_flags in *{flag}*) \\builtin set -{flag}; esac; "
    return f"{text}}} 2>/dev/null; {_at_prompt(token, '$__cordisd')}\n".encode()


def command_file(token: Token, command: bytes, last_status: int) -> bytes:
    """What the memfd holds for a call: a line of ours, the command, and the NUL that ends it."""
    # Without the mark the command must not run, or it might be run again as one that had not.
    # The empty argument is what `$_` holds then.
    first = (
        "\\builtin unset __cordisd 2>/dev/null; "  # or the command could read the token in it
        f"\\builtin printf '\\036%s%s<%s' {token.halves} '' >/dev/tty 2>/dev/null || \\builtin kill -INT $$"
    )
    if last_status:
        # `$?` continues from the last call. On the left of `&&`, errexit and ERR traps ignore it.
        first += (
            f"; {{ __cordisd_status() {{ \\builtin return {last_status}; }}; "
            "__cordisd_status '' && \\builtin :; } >/dev/null 2>&1"
        )
    return b"%b\n%b\0" % (first.encode(), command)


def setup_file(token: Token, cwd: str) -> bytes:
    """What a new shell reads first: our settings, then `cwd` or its nearest ancestor that can be entered.

    The status of its record R is 1 if it had to be an ancestor.
    """
    place, others = cwd, []
    while place != os.path.dirname(place):
        place = os.path.dirname(place)
        others.append(f"\\builtin cd -- {shlex.quote(place)}")
    enter = f"\\builtin cd -- {shlex.quote(cwd)} || {{ __cordisd=1; {' || '.join(others) or ':'}; }}"
    text = (
        "\\builtin set +o history +H; \\builtin shopt -s expand_aliases\n"
        f"__cordisd=0; {{ {enter}; }} >/dev/null 2>&1; \\builtin unset OLDPWD\n"
        f"{_at_prompt(token, '$__cordisd')}\n"
    )
    return text.encode("utf-8", "surrogateescape")


def _after_command(token: Token) -> str:
    """Reports the status of `eval` and whether stdout and stderr still are terminals."""
    return (
        f"{{ \\builtin printf 'S %s%s %s\\n' {token.halves} \"${{PIPESTATUS[0]}}\" >&251; {_REASSERT}; "
        f"{_TELL_TRACING}; "
        f"\\builtin printf '\\036%s%s>' {token.halves} >/dev/tty; }} >/dev/null 2>&1; "
        "! [[ -t 1 && -t 2 ]]; "
        f"{{ \\builtin printf 'T %s%s %s\\n' {token.halves} \"$?\" >&251; "
        f"\\builtin printf '\\036%s%s)' {token.halves} >/dev/tty; }} >/dev/null 2>&1"
    )


def _at_prompt(token: Token, status: str) -> str:
    return (
        f"{{ \\builtin printf 'R %s%s %s\\n' {token.halves} \"{status}\" >&251; {_REASSERT}; "
        f"\\builtin printf '\\036%s%s>\\036%s%s)' {token.halves} {token.halves} >/dev/tty; }} >/dev/null 2>&1"
    )

"""Random calls of bash and the editor for one session, each with the results that are right for it."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_SHOWN = 16_000
TIMEOUT_S = 4
RESET = (
    "[The persistent shell was reset: the next call starts in the workspace with a fresh directory and "
    "environment, and background jobs have been ended.]"
)
WAS_RESET = RESET.replace("the next call starts", "this call started")
KEPT = "[Everything that it had started was ended. The shell is still running, its state kept.]"
STOPPED = f"[The command did not finish in {TIMEOUT_S} s and was stopped; its output until then follows.]"
ESCAPES = [
    (r"\033[31mred\033[0m plain", "red plain"),
    (r"\033]0;title\007after", "after"),
    (r"10%%\r50%%\r100%%\ndone", "100%\ndone"),
    (r"abc\b\bXY", "aXY"),
    (r"end\033[", "end"),
    (r"end\033", "end"),
    (r"line\n\033]unended", "line\n"),
    (r"\033Pdevice\033\\after", "after"),
    (r"\377\376 bytes", "\ufffd\ufffd bytes"),
    (r"a\0b\001c", "abc"),
    (r"\033[6n\033[c\033Zquery", "query"),
    (r"\036\036mark\036", "mark"),
]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call, and whether a result text is right."""

    tool: str
    arguments: dict[str, object]
    is_right: Callable[[str], bool]
    expected: str


class Rollout:
    """What one model does in `folder`, and what it must be told. Iterating never ends."""

    def __init__(self, seed: str, folder: Path) -> None:
        self._random = random.Random(seed)
        self._folder = folder
        self._n = 0
        """Calls made; names things."""
        self._counter = 0
        """Value of `counter` in the shell."""
        self._status: int | None = 0
        """`$?`, if it can be known."""
        self._directory = folder
        self._files: dict[Path, list[str]] = {}

    def __iter__(self) -> Iterator[Call]:
        kinds = [
            (self._counts, 20), (self._shows_status, 10), (self._fails, 8), (self._changes_directory, 8),
            (self._prints, 12), (self._counts_lines, 4), (self._hears_escapes, 10), (self._writes_heredoc, 8),
            (self._reads_nothing, 4), (self._breaks_syntax, 4), (self._redirects, 2), (self._leaves_jobs, 4),
            (self._is_told_late, 3), (self._dies, 3), (self._is_killed_between, 1), (self._expires, 0.6),
            (self._creates, 8), (self._edits, 14), (self._inserts, 8), (self._views, 10), (self._misses, 4),
        ]  # fmt: skip
        while True:
            [(kind, _)] = self._random.choices(kinds, [weight for _, weight in kinds])
            yield from kind()

    def _bash(self, command: str, *expected: str, status: int | None = 0) -> Call:
        self._n += 1
        self._status = status
        return Call("bash", {"command": command}, lambda text: text in expected, " | ".join(expected))

    def _matching(self, command: str, pattern: str, status: int | None = 0) -> Call:
        self._n += 1
        self._status = status
        found = re.compile(pattern, re.DOTALL)
        return Call("bash", {"command": command}, lambda text: found.fullmatch(text) is not None, pattern)

    def _edit(self, command: str, path: Path, expected: str, **more: object) -> Call:
        """The snippet after an edit is left to the editor's tests; the content is compared by bash."""
        self._n += 1
        arguments = {"command": command, "path": str(path), **more}
        return Call(
            "str_replace_editor", arguments, lambda text: f"{text}\n".startswith(f"{expected}\n"), expected
        )

    def _is_new(self) -> None:
        self._counter, self._status, self._directory = 0, 0, self._folder

    def _counts(self) -> Iterator[Call]:
        self._counter += 1
        yield self._bash("counter=$((counter + 1)); echo $counter", str(self._counter))

    def _shows_status(self) -> Iterator[Call]:
        if self._status is not None:
            yield self._bash('echo "last: $?"', f"last: {self._status}")

    def _fails(self) -> Iterator[Call]:
        status = self._random.randint(1, 125)
        yield self._bash(f"echo out; (exit {status})", f"out\n[exit code: {status}]", status=status)

    def _changes_directory(self) -> Iterator[Call]:
        if self._directory == self._folder:
            self._directory = self._folder / f"d{self._random.randrange(5)}"
        else:
            self._directory = self._folder
        yield self._bash(
            f"mkdir -p {self._directory} && cd {self._directory} && pwd -P", str(self._directory)
        )

    def _prints(self) -> Iterator[Call]:
        size = int(10 ** self._random.uniform(0, 5.2))
        yield self._printing(f"head -c {size} /dev/zero | tr '\\0' x", "x" * size)
        if self._random.random() < 0.1:
            n_lines = self._random.randrange(100_000, 400_000)
            yield self._printing(f"yes abc | head -n {n_lines}", "abc\n" * n_lines)

    def _counts_lines(self) -> Iterator[Call]:
        n_lines = int(10 ** self._random.uniform(0, 4.4))
        yield self._printing(f"seq {n_lines}", "".join(f"{n + 1}\n" for n in range(n_lines)))

    def _printing(self, command: str, output: str) -> Call:
        text = output.removesuffix("\n")
        if len(text) <= MAX_SHOWN:
            return self._bash(command, text)
        n_head = MAX_SHOWN * 3 // 8
        head, tail = text[:n_head], text[n_head - MAX_SHOWN :]
        n_lines = text[n_head : len(text) - len(tail)].count("\n")
        left_out = f"{len(text) - MAX_SHOWN:,} (characters|bytes) omitted here, {n_lines:,} line"
        return self._matching(command, rf"{head}\n\[\.\.\. {left_out} [^\n]*\]\n{tail}")

    def _hears_escapes(self) -> Iterator[Call]:
        written, shown = self._random.choice(ESCAPES)
        yield self._bash(f"printf '{written}'", shown.removesuffix("\n"))

    def _writes_heredoc(self) -> Iterator[Call]:
        alphabet = "\t\x03\x04\x12\x15\x16\x1a\x1b\x7f\r\n !$`\\'\"{}();&|<>*?äß→😀ab"
        body = "".join(self._random.choices(alphabet, k=int(10 ** self._random.uniform(0, 4.5)))) + "\n"
        name = f"doc{self._n}"
        digest = hashlib.sha256(body.encode()).hexdigest()
        yield self._bash(
            f"cat > {name} <<'END OF IT'\n{body}END OF IT\nsha256sum < {name} | cut -c-64; rm {name}", digest
        )

    def _reads_nothing(self) -> Iterator[Call]:
        yield self._bash('cat; read line; echo "read: $?"', "read: 1")

    def _breaks_syntax(self) -> Iterator[Call]:
        command = self._random.choice(["if then", "echo 'unended", "for (", "((", "cat <<(", "} fi done"])
        yield self._matching(command, r".*(syntax error|unexpected).*\n\[exit code: [12]\]", status=None)

    def _redirects(self) -> Iterator[Call]:
        yield self._matching(
            "exec >/dev/null", r"\[The command had redirected the shell's own stdout[^\n]*\]"
        )

    def _leaves_jobs(self) -> Iterator[Call]:
        job = self._random.choice(
            ["(sleep 1000 &)", "(setsid sleep 1000 &)", "(trap '' TERM; sleep 1000 &)", "nohup sleep 1000 &"]
        )
        yield self._bash(f"{{ {job} }} >/dev/null 2>&1; disown -a; echo left", "left")

    def _is_told_late(self) -> Iterator[Call]:
        """A job prints between two calls, or while the second one runs: the line is told exactly once."""
        go, done = self._folder / f"go{self._n}", self._folder / f"done{self._n}"
        line = f"late {self._n}"
        job = f"until [ -e {go} ]; do sleep 0.01; done; echo {line}; touch {done}"
        yield self._bash(f"( ({job}) & ); echo started", "started")
        yield self._edit("create", go, f"New file created successfully at: {go}", file_text="")
        yield self._bash(
            f"until [ -e {done} ]; do sleep 0.01; done; rm {go} {done}; echo next",
            f"{line}\nnext",
            f"[output of background jobs since the last call]\n{line}\n[end of background output]\nnext",
        )

    def _dies(self) -> Iterator[Call]:
        status = self._random.randrange(256)
        command, end = self._random.choice(
            [
                (f"echo last; exit {status}", f"exit\n[shell exited: code {status}]"),
                ("echo last; kill -9 $$", "[shell killed by signal: SIGKILL]"),
                ("echo last; exec true", "[shell exited: code 0]"),
                (f"set -e; echo last; (exit {status or 1})", f"[shell exited: code {status or 1}]"),
            ]
        )
        yield self._bash(command, f"last\n{end}\n{RESET}")
        self._is_new()

    def _is_killed_between(self) -> Iterator[Call]:
        go = self._folder / f"go{self._n}"
        yield self._bash(
            f"( (until [ -e {go} ]; do sleep 0.01; done; kill -9 $$) & ); doomed=yes; echo started", "started"
        )
        yield self._edit("create", go, f"New file created successfully at: {go}", file_text="")
        end = "shell killed by signal: SIGKILL]"
        yield self._bash(
            "[ $doomed ] && sleep 3; echo survived",
            f"[{end}\n{RESET}",
            f"[before this call: {end}\n{WAS_RESET}\nsurvived",
        )
        self._is_new()

    def _expires(self) -> Iterator[Call]:
        command = self._random.choice(
            [
                "sleep 1000",
                "while :; do :; done",
                "(trap '' INT TERM; sleep 1000)",
                "sleep 1000 | cat",
                "sleep 1000; echo never",
            ]
        )
        yield self._bash(
            f"echo part; {command}",
            f"{STOPPED}\npart\n{KEPT}",
            f"{STOPPED}\npart\nKilled\n{KEPT}",
            status=None,
        )

    def _creates(self) -> Iterator[Call]:
        path = self._folder / f"file{self._n}"
        n_lines = int(10 ** self._random.uniform(0, 2.5))
        self._files[path] = [self._line() for _ in range(n_lines)]
        yield self._edit(
            "create", path, f"New file created successfully at: {path}", file_text=self._content(path)
        )
        yield self._compared(path)

    def _edits(self) -> Iterator[Call]:
        if not self._files:
            return
        path = self._random.choice(list(self._files))
        at = self._random.randrange(len(self._files[path]))
        old, new = self._files[path][at], self._line()
        yield self._edit(
            "str_replace", path, f"The file {path} has been edited successfully.", old_str=old, new_str=new
        )
        self._files[path][at] = new
        yield self._compared(path)

    def _inserts(self) -> Iterator[Call]:
        if not self._files:
            return
        path = self._random.choice(list(self._files))
        at, new = self._random.randint(0, len(self._files[path])), self._line()
        yield self._edit(
            "insert", path, f"The file {path} has been edited successfully.", insert_line=at, new_str=new
        )
        self._files[path].insert(at, new)
        yield self._compared(path)

    def _compared(self, path: Path) -> Call:
        digest = hashlib.sha256(self._content(path).encode()).hexdigest()
        return self._bash(f"sha256sum < {path} | cut -c-64", digest)

    def _views(self) -> Iterator[Call]:
        if not self._files:
            return
        path = self._random.choice(list(self._files))
        first = self._random.randint(1, len(self._files[path]))
        last = self._random.randint(first, min(len(self._files[path]), first + 50))
        numbered = list(enumerate(self._files[path], 1))[first - 1 : last]
        self._n += 1

        def is_right(text: str) -> bool:
            seen = [re.fullmatch(r" *(\d+)[ \t]+(.*)", line) for line in text.split("\n")]
            return [(int(line[1]), line[2]) for line in seen if line] == numbered

        arguments = {"command": "view", "path": str(path), "view_range": [first, last]}
        yield Call("str_replace_editor", arguments, is_right, json.dumps(numbered))

    def _misses(self) -> Iterator[Call]:
        path = self._folder / "never made"
        begin = f"Error: The path {path} does not exist"
        arguments = {"command": "str_replace", "path": str(path), "old_str": "a", "new_str": "b"}
        yield Call("str_replace_editor", arguments, lambda text: text.startswith(begin), begin)

    def _line(self) -> str:
        """Unlike any other, and no part of one."""
        self._n += 1
        words = "".join(self._random.choices("abc äß→😀 \"'\\$`", k=self._random.randrange(60)))
        return f"<{self._n}>{words}</{self._n}>"

    def _content(self, path: Path) -> str:
        return "".join(f"{line}\n" for line in self._files[path])

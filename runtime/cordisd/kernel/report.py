"""What is wrong with a composition, collected while it is read, each fault at its place in a file."""

from __future__ import annotations

from dataclasses import dataclass, field

from yaml.nodes import Node

from cordisd.errors import CompositionError, Problem


def place(node: Node, entry_id: str | None = None) -> str:
    """`file:line` of a node, followed by the entry it belongs to where that is known."""
    mark = node.start_mark
    return label(mark.name, mark.line + 1, entry_id)


def label(file: str, line: int | None, entry_id: str | None = None) -> str:
    """`file:line, entry "id"`; without a line for a fault of the whole file."""
    where = file if line is None else f"{file}:{line}"
    return where if entry_id is None else f'{where}, entry "{entry_id}"'


@dataclass(slots=True)
class Report:
    """Problems and warnings so far. A fault that two passes find at one place is kept once."""

    _problems: dict[tuple[str, int, str], Problem] = field(default_factory=dict)
    _warnings: dict[tuple[str, int, str], Problem] = field(default_factory=dict)
    _files: dict[str, int] = field(default_factory=dict)
    n_reported: int = 0
    """How many times a fault was reported, the same one twice included."""

    def problem(self, node: Node, message: str, entry_id: str | None = None) -> None:
        """Record a fault at `node`; the composition will not load."""
        mark = node.start_mark
        self.problem_at(mark.name, mark.line + 1, message, entry_id)

    def problem_at(self, file: str, line: int | None, message: str, entry_id: str | None = None) -> None:
        """Record a fault at a line (from 1) of `file`, or of the whole file."""
        self.n_reported += 1
        self._files.setdefault(file, len(self._files))
        self._problems.setdefault((file, line or 0, message), Problem(label(file, line, entry_id), message))

    def warn(self, node: Node, message: str, entry_id: str | None = None) -> None:
        """Record something that was ignored; the composition still loads."""
        mark = node.start_mark
        self._files.setdefault(mark.name, len(self._files))
        self._warnings.setdefault(
            (mark.name, mark.line + 1, message), Problem(place(node, entry_id), message)
        )

    def raise_problems(self) -> None:
        """Go on only when there is no fault.

        Raises:
            CompositionError: with every fault, in file order.
        """
        if self._problems:
            raise CompositionError(self._in_file_order(self._problems))

    def warnings(self) -> tuple[Problem, ...]:
        """The warnings, in file order."""
        return tuple(self._in_file_order(self._warnings))

    def _in_file_order(self, found: dict[tuple[str, int, str], Problem]) -> list[Problem]:
        ordered = sorted(found.items(), key=lambda item: (self._files[item[0][0]], item[0][1]))
        return [problem for _, problem in ordered]

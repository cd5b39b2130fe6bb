"""Which tool call a streamed delta belongs to, when ids and indexes may be missing, repeated or wrong.

A delta is routed by an id that is known, then by its index, then by arrival (the last call). It starts a
new call when it carries a name that cannot continue the call found: another name, or arguments after that
call's arguments are complete.
"""

from __future__ import annotations

from collections.abc import Callable

from cordisd.events import JsonObject, decode_json, encode_json

CallIndex = int | str | None


class Call:
    """One tool call under assembly. `id` is unique in the request; `sent_id` is what the server called it."""

    __slots__ = ("_encoded", "_parts", "block_index", "id", "index", "name", "sent_id")

    def __init__(self, block_index: int, id: str, sent_id: str | None, index: CallIndex, name: str) -> None:
        self.block_index = block_index
        self.id = id
        self.sent_id = sent_id
        self.index = index
        self.name = name
        self._parts: list[str] = []
        self._encoded = False

    def extend(self, arguments: object) -> str:
        """Take one delta's arguments; the text to log for it.

        Raises:
            ValueError: an object that holds an infinite number.
        """
        if arguments is None:
            return ""
        if isinstance(arguments, str):
            text = arguments
        else:
            self._encoded = True
            # Some servers open a call with `{}` as a placeholder and stream the real text after it.
            text = "" if arguments == {} else encode_json(arguments).decode("ascii")
        if text:
            self._parts.append(text)
        return text

    def close(self) -> str:
        """The text still to log once the last delta is in: `{}` for a call whose only arguments were that."""
        if not self._encoded or self._parts:
            return ""
        self._parts.append("{}")
        return "{}"

    @property
    def complete(self) -> bool:
        """The arguments so far are a whole JSON value."""
        try:
            decode_json("".join(self._parts))
        except (ValueError, RecursionError):
            return False
        return True

    def block(self) -> JsonObject:
        """The finished block. `originalId` stands beside an id that had to be replaced (null: none sent);
        `argumentsEncoded` says that the server sent a JSON value where a string belongs."""
        block: JsonObject = {
            "type": "tool-call",
            "id": self.id,
            "name": self.name,
            "arguments": "".join(self._parts),
        }
        if self.sent_id != self.id:
            block["originalId"] = self.sent_id
        if self._encoded:
            block["argumentsEncoded"] = True
        return block


class ToolCalls:
    """The calls of one response, in order of appearance.

    `is_taken(id)` tells the ids of the history; `first_number` numbers the ids made up here, and must grow
    from request to request by at least the calls made.
    """

    __slots__ = ("_by_id", "_by_index", "_is_taken", "_next_number", "all")

    def __init__(self, is_taken: Callable[[str], bool], first_number: int) -> None:
        self.all: list[Call] = []
        self._by_id: dict[str, list[Call]] = {}
        self._by_index: dict[CallIndex, Call] = {}
        self._is_taken = is_taken
        self._next_number = first_number

    def route(self, delta: JsonObject, new_block_index: int) -> tuple[Call, object]:
        """The call that `delta` belongs to (made at `new_block_index` if it is new), and its arguments."""
        function = delta.get("function")
        if not isinstance(function, dict):
            function = delta
        name = function.get("name")
        name = name if isinstance(name, str) else ""
        arguments = function.get("arguments")
        sent_id = delta.get("id")
        sent_id = sent_id if isinstance(sent_id, str) else None
        index = delta.get("index")
        index = index if isinstance(index, (int, str)) and not isinstance(index, bool) else None

        call = self._find(sent_id, index, name)
        if call is not None and name and call.name:
            another = name != call.name
            if another or (arguments not in (None, "") and call.complete):
                call = None
        if call is None:
            call = Call(new_block_index, self._unique(sent_id), sent_id, index, name)
            self.all.append(call)
            if sent_id:
                self._by_id.setdefault(sent_id, []).append(call)
        elif name and not call.name:
            call.name = name
        if index is not None:
            self._by_index[index] = call
        return call, arguments

    def _find(self, sent_id: str | None, index: CallIndex, name: str) -> Call | None:
        if sent_id and (known := self._by_id.get(sent_id)):
            if index is None:
                return known[-1]
            same_index = [call for call in known if call.index == index]
            if same_index:
                return same_index[-1]
            # A second head under the same id at another index is another call; a tail there is not.
            return None if name else known[-1]
        at_index = self._by_index.get(index) if index is not None else None
        if at_index is not None:
            # Servers that make up a new id for each delta send the name with the first one only.
            return None if sent_id and name and at_index.sent_id else at_index
        return self.all[-1] if self.all and not name else None

    def _unique(self, sent_id: str | None) -> str:
        if sent_id and sent_id not in self._by_id and not self._is_used(sent_id):
            return sent_id
        # Nine letters and digits: the only form that every chat template accepts.
        while self._is_used(made := f"call{self._next_number:05d}"):
            self._next_number += 1
        self._next_number += 1
        return made

    def _is_used(self, id: str) -> bool:
        return any(call.id == id for call in self.all) or self._is_taken(id)

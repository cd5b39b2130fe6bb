"""What the model is shown of a session: its surface events, each encoded once."""

from __future__ import annotations

from collections.abc import Callable

from cordisd.errors import CordisError
from cordisd.events import Event, JsonObject

Encoder = Callable[[JsonObject], bytes | None]


class History:
    """The surface of a session as messages ready for the wire, in order.

    `encode` turns a message into the provider's JSON, or None for one that is not sent.
    """

    def __init__(self, encode: Encoder) -> None:
        self._encode = encode
        self._seqs: list[int] = []
        self._messages: list[bytes | None] = []
        self.call_ids: set[str] = set()
        """Ids of every tool call that an assistant message of this session holds."""

    def add(self, event: Event) -> None:
        """Fold one surface event in.

        Raises:
            UnsupportedContentError: the message cannot be sent; it is on the surface, but left out.
            CordisError: a replacement whose range is not on the surface.
        """
        message = event.data if event.type == "user/message" else event.data["message"]
        if event.type == "assistant/message":
            self.call_ids |= {block["id"] for block in message["content"] if block["type"] == "tool-call"}
        first, last = len(self._seqs), len(self._seqs)
        if isinstance(event.surface_op, dict):
            first = self._position(event.surface_op["start"])
            last = self._position(event.surface_op["end"]) + 1
            if last <= first:
                raise CordisError(f"event {event.seq} replaces an empty range of the surface")
        self._seqs[first:last] = [event.seq]
        self._messages[first:last] = [None]
        self._messages[first] = self._encode(message)

    def messages(self) -> list[bytes]:
        """The messages to send, oldest first."""
        return [message for message in self._messages if message is not None]

    def _position(self, seq: int) -> int:
        try:
            return self._seqs.index(seq)
        except ValueError:
            raise CordisError(f"event {seq} is not on the surface of this session") from None

"""A scriptable, fault-injecting server of OpenAI-style chat completions, to test agents against.

    from cordisd.mock import MockModel, MockModelThread, call, text

    async with MockModel([call("c1", "bash", {"command": "id"}), text("done")]) as mock:
        ...                                  # point a client at mock.url; read mock.requests afterwards
    with MockModelThread([text("hi")]) as mock:                       # the same in a thread of its own
        ...

The n-th request gets the n-th reply; a script may also be a function, async or not, from the `Received`
request to its reply. An `Answer` says what the model says: it is sent as a stream or as one JSON object, as
the request asks, with the `faults` it names. A `RawReply` is bytes, with pauses and cuts between them.
`MockModel(…, faults={"cut-rst": 0.1}, seed=7)` spoils answers at random, the same ones each time. `FAULTS`
are all there are. A `Playlist` chooses by what a request says; `cordisd.mock.script_file.read_playlist` reads
one from the file that `cordisd mock-model` serves.
"""

from cordisd.mock.answer import Answer, Call, Token, call, calls, text
from cordisd.mock.faults.table import FAULTS, Fault
from cordisd.mock.parts import Cut, Hang, Part, Pause, RawReply, Verbatim
from cordisd.mock.playlist import Match, Playlist, Rule
from cordisd.mock.received import Received
from cordisd.mock.server import MockModel, Reply, Script
from cordisd.mock.sse import DONE, delta, error, error_object, event, json_body, stream, usage
from cordisd.mock.thread import MockModelThread

__all__ = [
    "DONE",
    "FAULTS",
    "Answer",
    "Call",
    "Cut",
    "Fault",
    "Hang",
    "Match",
    "MockModel",
    "MockModelThread",
    "Part",
    "Pause",
    "Playlist",
    "RawReply",
    "Received",
    "Reply",
    "Rule",
    "Script",
    "Token",
    "Verbatim",
    "call",
    "calls",
    "delta",
    "error",
    "error_object",
    "event",
    "json_body",
    "stream",
    "text",
    "usage",
]

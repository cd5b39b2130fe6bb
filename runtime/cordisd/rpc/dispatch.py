"""From a request to the body of its answer: finds the method, checks its params, maps its errors.

Imported with the first request after `initialize`. This is our own and not jsonrpcserver's: that library adds
75 ms to every start (it imports jsonschema), and it answers some turns of the event loop after the method has
returned, so a prompt's first events could not be kept in front of the turn that follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cordisd.errors import MethodNotFoundError, nearest
from cordisd.events import JsonObject
from cordisd.rpc.methods import METHODS
from cordisd.rpc.params import read_params

if TYPE_CHECKING:
    from cordisd.rpc.peer import Peer


async def dispatch(method: str, params: JsonObject, peer: Peer) -> Mapping[str, Any]:
    """The result of the method.

    Raises:
        CordisError: the request cannot be served; with the code and the text for the client.
    """
    served = METHODS.get(method)
    if served is None:
        raise MethodNotFoundError(f'unknown method "{method}"{nearest(method, METHODS)}')
    return await served.run(peer, read_params(served.params, method, params))

"""`initialize`: what a connection chooses for its sessions; checked by hand: pydantic takes 70 ms."""

from __future__ import annotations

import os
from typing import Final

from cordisd import __version__
from cordisd.agent.agent import check_required
from cordisd.agent.host import Host
from cordisd.agent.settings import SessionSettings
from cordisd.errors import InvalidParamsError
from cordisd.events import JsonObject
from cordisd.wire import MAX_FRAME_BYTES, METHODS, NOTIFICATIONS, PROTOCOL_VERSION

MAX_SAFE_INTEGER: Final = 2**53 - 1
FIELDS: Final = frozenset(
    {"cwd", "provider", "model", "maxTokens", "reasoningEffort", "preset", "requirePreset", "token"}
)


async def initialize(host: Host, params: JsonObject) -> tuple[SessionSettings, JsonObject]:
    """The checked choices, and the answer.

    Raises:
        CordisError: a field does not fit, or there is no such provider or preset.
    """
    host.check_serving()
    unknown = params.keys() - FIELDS
    if unknown:
        raise InvalidParamsError(f"initialize: unknown field {sorted(unknown)[0]}")
    for name in ("cwd", "provider", "model", *({"preset", "requirePreset", "token"} & params.keys())):
        if not isinstance(params.get(name), str) or not params[name]:
            raise InvalidParamsError(f"initialize: {name} must be a non-empty string")
    limit, effort = params.get("maxTokens"), params.get("reasoningEffort")
    if "maxTokens" in params and not (type(limit) is int and 1 <= limit <= MAX_SAFE_INTEGER):
        raise InvalidParamsError("initialize maxTokens must be a positive safe integer")
    if "reasoningEffort" in params and not (isinstance(effort, str) and effort):
        raise InvalidParamsError("initialize reasoningEffort must be a non-empty string")
    config = host.configure(params["provider"], params["model"], limit, effort)
    preset, required = params.get("preset"), params.get("requirePreset")
    agent = await host.try_out(host.preset(preset))
    check_required(agent, required)
    return SessionSettings(os.path.abspath(params["cwd"]), config, preset, required), {
        **agent.identity(),
        "serverInfo": {"name": "cordisd", "version": __version__},
        "protocolVersion": PROTOCOL_VERSION,
        "capabilities": {"methods": list(METHODS), "notifications": list(NOTIFICATIONS)},
        "maxFrameBytes": MAX_FRAME_BYTES,
    }

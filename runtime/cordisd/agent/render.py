"""The first model request of a session that is never run: exactly the bytes that would be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cordisd.agent.agent import assembling
from cordisd.agent.host import Host
from cordisd.agent.preset import Preset
from cordisd.agent.settings import SessionSettings
from cordisd.agent.turn import assemble, prepare_request
from cordisd.errors import LogWriteError
from cordisd.events import JsonObject
from cordisd.services.models import ModelRegistry
from cordisd.services.tools import ToolRegistry
from cordisd.session.header import SessionHeader
from cordisd.session.history import History
from cordisd.session.log import SessionLog
from cordisd.session.realm import Realm
from cordisd.session.session import Session, new_message

if TYPE_CHECKING:
    from cordisd.preset_shapes import AgentIdentity, PresetRenderResult


def _never(error: LogWriteError) -> None:
    raise error  # nothing is written


class Rendering(NamedTuple):
    """What a model would be sent first. `body` is the request's, byte for byte."""

    identity: AgentIdentity
    system: str
    tools: list[JsonObject]
    parameters: JsonObject
    body: bytes

    def as_json(self) -> PresetRenderResult:
        """The result of `preset/render`; `request` is the body as text."""
        return {
            **self.identity,
            "system": self.system,
            "tools": self.tools,
            "parameters": self.parameters,
            "request": self.body.decode("utf-8"),
        }


async def first_request(host: Host, preset: Preset, settings: SessionSettings, prompt: str) -> Rendering:
    """The request that the prompt `prompt` would begin a session with; `settings.preset` is not looked at.

    It goes the way of a real session up to the model, without a log on disk and without a shell.

    Raises:
        CordisError: whatever would keep such a session from its first request, but for the lock of a frozen
            profile: what it would send is shown before it is locked.
    """
    async with host.trial(preset, settings.cwd, settings.config) as agent:
        realm = agent.scope.get(Realm)
        adapter = host.scope.get(ModelRegistry).get(agent.config.provider)
        session = Session(
            SessionHeader(id="rendered", created_at=0, cwd=settings.cwd),
            SessionLog(None, on_failure=_never),
            realm,
            agent.scope,
            agent.config,
            adapter,
            History(adapter.encode_message),
        )
        session.add_user_message(new_message([{"type": "text", "text": prompt}], {"kind": "user"}))
        with assembling(preset):
            assembly = assemble(session, agent.scope.get(ToolRegistry).all())
        request = prepare_request(session, assembly, first_step=True)
        return Rendering(
            agent.identity(),
            request.system,
            [tool.as_json() for tool in request.tools],
            adapter.parameters(agent.config),
            adapter.encode_request(request),
        )

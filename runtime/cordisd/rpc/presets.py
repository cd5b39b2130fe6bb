"""The methods about presets and profiles: which there are, and what exactly the model would see of one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from cordisd.agent import sessions
from cordisd.agent.agent import Agent, check_lock
from cordisd.agent.check import prompt_problems
from cordisd.agent.host import Host
from cordisd.agent.preset import AGENT_FILE, Listed, Roster
from cordisd.agent.render import first_request
from cordisd.errors import CordisError, InvalidParamsError
from cordisd.events import JsonObject
from cordisd.rpc import params as p
from cordisd.services.models import RequestConfig

if TYPE_CHECKING:
    from cordisd import preset_shapes, shapes
    from cordisd.rpc.peer import Peer


async def list_presets(peer: Peer, params: p.Nothing) -> preset_shapes.PresetListResult:
    """`preset/list`: the agents that a session can have, with their digests; broken ones with the reason."""
    return cast("preset_shapes.PresetListResult", await listing(peer.host))


async def listing(host: Host) -> JsonObject:
    """The default preset of a host's roster, and every preset with its digest or its problem."""
    roster = host.scope.find(Roster) or Roster(())
    return {
        "default": roster.default,
        "presets": [await _listed(host, preset) for preset in roster.list()],
    }


async def select(peer: Peer, params: p.SelectPreset) -> shapes.SessionCreateResult:
    """`preset/select`: another preset for a session that has no event yet."""
    async with peer.host.in_order(params.session_id):
        peer.own(params.session_id)
        hearers = peer.connections.hearers(params.session_id)
        live = await sessions.select_preset(peer.host, params.session_id, params.preset)
        for hearer in hearers:  # they attached to the session that this one takes the place of
            if params.session_id not in hearer.feeds:
                hearer.feeds.attach(live)
    return {"sessionId": live.session.id, **live.agent.identity(), "cwd": live.session.realm.cwd}


async def render(peer: Peer, params: p.RenderPreset) -> preset_shapes.PresetRenderResult:
    """`preset/render`: the first request that a session with this preset would send, byte for byte."""
    base = await peer.settings()
    config = peer.host.configure(
        params.provider or base.config.provider,
        params.model or base.config.model,
        params.max_tokens or base.config.chosen_max_tokens,
        base.config.chosen_effort,
    )
    cwd = os.path.normpath(os.path.join(base.cwd, params.cwd or ""))
    preset = peer.host.preset(params.preset or base.preset)
    rendering = await first_request(peer.host, preset, base._replace(cwd=cwd, config=config), params.prompt)
    return rendering.as_json()


async def get_profile(peer: Peer, params: p.GetProfile) -> preset_shapes.ProfileGetResult:
    """`profile/get`: the hashes of a frozen profile, with the prompt and the tools that they are of."""
    if params.session_id is not None:
        agent = peer.host.get(params.session_id).agent
    else:
        agent = await peer.host.try_out(peer.host.preset(params.preset))
    return cast("preset_shapes.ProfileGetResult", profile_of(agent))


def profile_of(agent: Agent) -> JsonObject:
    """The id, the hashes, the prompt and the tools of a frozen agent.

    Raises:
        InvalidParamsError: it is not frozen.
    """
    identity = agent.identity()
    if "profile" not in identity:
        raise InvalidParamsError(f"{agent.preset} is not a frozen profile")
    document = agent.fingerprint.document
    return {**identity["profile"], "system": document["system"], "tools": document["tools"]}


async def _listed(host: Host, preset: Listed) -> JsonObject:
    digest = profile = None
    problem = preset.problem
    if problem is None:
        try:
            async with host.trial(host.preset(preset.name), os.getcwd(), RequestConfig("", "")) as agent:
                identity = agent.identity()
                digest, profile = identity["digest"], identity.get("profile")
                check_lock(agent, os.environ)
                problems = prompt_problems(agent, host, str(preset.folder / AGENT_FILE))
                problem = "\n".join(map(str, problems)) or None
        except CordisError as error:
            problem = str(error)
        except Exception as error:  # a preset may run anybody's code; the others are listed all the same
            problem = f"{preset.name}: {type(error).__name__}: {error}"
    return {
        "name": preset.name,
        "title": preset.label.title,
        "description": preset.label.description,
        "trust": preset.trust,
        "path": str(preset.folder),
        "digest": digest,
        "profile": profile,
        "problem": problem,
    }

"""A recording made in memory, and a player driven as a daemon would drive it."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cordisd.errors import ReplayMismatchError
from cordisd.events import JsonObject
from cordisd.replay.paths import Workspace
from cordisd.replay.player import Player
from cordisd.replay.turns import Answer, Chunk, Exchange, Recording, Turn
from cordisd.services.models import ModelRequest, RequestConfig
from cordisd.services.traffic import ToolOutcome, TurnStart


def tool(name: str) -> JsonObject:
    schema = {
        "type": "object",
        "properties": {"c": {"type": "string", "enum": ["a", "b"]}},
        "required": ["c"],
    }
    return {
        "type": "function",
        "function": {"name": name, "description": f"the {name}", "parameters": schema},
    }


def called(call_id: str, arguments: str) -> JsonObject:
    call = {"id": call_id, "type": "function", "function": {"name": "bash", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def result(call_id: str, text: str) -> JsonObject:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def answer(text: str) -> Answer:
    return Answer(200, {}, 1, [Chunk(2, text.encode())], end_ms=3)


def recording(prompt: str = "do", session: str = "s", path: str = "r.jsonl", **header: Any) -> Recording:
    """Two turns, four requests, two calls."""
    members = {"model": "m", "stream": True, "temperature": 0.5, "tools": [tool("bash"), tool("edit")]}
    messages = [
        [{"role": "system", "content": "work"}, {"role": "user", "content": prompt}],
        [called("c1", '{"c": "ls {{cwd}}"}'), result("c1", "{{cwd}}/f")],
        [called("c2", "{}"), result("c2", "two")],
        [{"role": "assistant", "content": "done"}, {"role": "user", "content": "more"}],
    ]
    outcomes = (
        [ToolOutcome("c1", "bash", "{{cwd}}/f", False)],
        [ToolOutcome("c2", "bash", "two", False)],
        [],
        [],
    )
    exchanges = [
        Exchange(
            {**members, "messages": [one for some in messages[: n + 1] for one in some]},
            answer(f"answer {n}"),
            list(outcomes[n]),
        )
        for n in range(4)
    ]
    first = {
        "type": "recording",
        "version": 1,
        "session": session,
        "composition": None,
        "agent": {},
        **header,
    }
    turns = [Turn(1, [], exchanges[:3], "completed"), Turn(2, [], exchanges[3:], "completed")]
    return Recording(Path(path), first, turns)


async def play(
    player: Player, asked: Recording, session: str = "live", cwd: str = "/here", results: bool = True
) -> str:
    """What a daemon that asks what `asked` has reads; raises where the player does."""
    workspace, said = Workspace(cwd), []
    transport = player.connect(lambda: pytest.fail("the network is used"))
    for turn in asked.turns:
        player.begin_turn(TurnStart(session, turn.number, cwd, {}, []))
        for exchange in turn.exchanges:
            request = ModelRequest(session, cwd, RequestConfig("p", "m"), "", [], [])
            body = workspace.show(json.dumps(exchange.body)).encode()
            response = await transport.post(request, "", {}, [body[:9], body[9:]])
            while data := await response.read():
                said.append(data.decode())
                await asyncio.sleep(0)
            for outcome in exchange.results if results else []:
                player.note_result(session, outcome._replace(text=workspace.show(outcome.text)))
        player.end_turn(session, turn.number, turn.stop_reason)
    return " ".join(said)


def failure(player: Player, asked: Recording, **more: Any) -> str:
    with pytest.raises(ReplayMismatchError) as caught:
        asyncio.run(play(player, asked, **more))
    return str(caught.value)


def changed(body: JsonObject, place: tuple[Any, ...], new: Any) -> JsonObject:
    body = copy.deepcopy(body)
    *way, last = place
    holder: Any = body
    for key in way:
        holder = holder[key]
    holder[last] = new
    return body

"""Recordings as the script of a mock model: each request gets, over HTTP, what was recorded for the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

from cordisd.mock import Cut, Part, Pause, RawReply, Received
from cordisd.replay.canonical import Rules, read_masks, request_hash
from cordisd.replay.compare import explain, likeness
from cordisd.replay.paths import Workspace
from cordisd.replay.turns import Answer, Exchange, Recording


def replies_of(
    recordings: Sequence[Recording], cwd: str, *, paced: bool = False
) -> Callable[[Received], RawReply]:
    """A script of `recordings` for clients that work in `cwd`.

    A request that was recorded several times, a retried one for instance, gets its answers in turn, and the
    last one from then on. One that was not recorded is answered 400, with how it differs from the nearest.
    """
    workspace = Workspace(cwd)
    rules = [Rules(workspace, read_masks(one.header.get("masks", {}))) for one in recordings]
    known = [_by_request(one) for one in recordings]
    asked: Counter[tuple[int, str]] = Counter()

    def reply(received: Received) -> RawReply:
        try:
            bodies = [rule.body([received.body]) for rule in rules]
        except ValueError as error:
            return _refusal(f"the request is not JSON: {error}")
        for place, (recording, body) in enumerate(zip(recordings, bodies, strict=True)):
            key = place, request_hash(body)
            if same := known[place].get(key[1]):
                exchange = same[min(asked[key], len(same) - 1)]
                asked[key] += 1
                return _reply(exchange.answer, workspace, str(recording.path), paced=paced)
        candidates = [
            (likeness(exchange.body, body), recording, exchange.body, body)
            for recording, body in zip(recordings, bodies, strict=True)
            for exchange in recording.exchanges
        ]
        if not candidates:
            return _refusal("no recording has a request")
        _, recording, recorded, body = max(candidates, key=lambda one: one[0])
        return _refusal(f"the request was not recorded. {recording.path}: {explain(recorded, body)}")

    return reply


def _by_request(recording: Recording) -> dict[str, list[Exchange]]:
    found: dict[str, list[Exchange]] = {}
    for exchange in recording.exchanges:
        found.setdefault(request_hash(exchange.body), []).append(exchange)
    return found


def _refusal(message: str) -> RawReply:
    body = {"error": {"message": message, "type": "replay_mismatch", "code": None}}
    return RawReply([json.dumps(body).encode()], 400, {"Content-Type": "application/json"}, "length")


def _reply(answer: Answer, workspace: Workspace, source: str, *, paced: bool) -> RawReply:
    parts: list[Part] = []
    at_ms = 0
    for chunk in answer.chunks:
        if paced and chunk.at_ms > at_ms:
            parts.append(Pause((chunk.at_ms - at_ms) / 1000))
            at_ms = chunk.at_ms
        parts.append(workspace.show_bytes(chunk.data))
    if answer.failure is not None:
        parts.append(Cut("rst" if answer.status is None else "fin"))
    headers = {"Content-Type": "text/event-stream", **answer.headers}
    if "content-type" in answer.headers:
        del headers["Content-Type"]
    return RawReply(parts, answer.status or 200, headers, "chunked", source=source)

"""Which recording a session plays: one that begins with the session's first request, and is free."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cordisd.errors import ReplayMismatchError
from cordisd.events import JsonObject
from cordisd.replay.canonical import Mask, Rules, read_masks, request_hash
from cordisd.replay.compare import explain, likeness
from cordisd.replay.paths import Workspace
from cordisd.replay.turns import Exchange, Recording

SecretValues = Callable[[Sequence[str]], Sequence[str]]
"""The values of the daemon's secrets, and of these variables."""


class _Group(NamedTuple):
    """Recordings that were made with the same rules."""

    masks: list[Mask]
    secret_names: list[str]
    redact: list[str]
    places: list[int]
    beginnings: dict[str, list[int]]
    """Places of those that begin with a request, by its hash."""


class Bound(NamedTuple):
    """A recording, and the rules by which a session's traffic is compared with it."""

    recording: Recording
    rules: Rules


class Binder:
    """Gives each recording to one session at most."""

    def __init__(self, recordings: Sequence[Recording], secrets: SecretValues) -> None:
        self._recordings = recordings
        self._secrets = secrets
        self._owners: dict[int, str] = {}
        groups: dict[str, _Group] = {}
        for place, recording in enumerate(recordings):
            masks, names = recording.header.get("masks", {}), recording.header.get("secrets", [])
            redact = recording.header.get("redact", [])
            made = _Group(read_masks(masks), names, redact, [], {})
            group = groups.setdefault(repr((masks, names, redact)), made)
            if exchanges := recording.exchanges:
                group.places.append(place)
                group.beginnings.setdefault(request_hash(exchanges[0].body), []).append(place)
        self._groups = list(groups.values())

    def bind(self, session_id: str, cwd: str, body: Sequence[bytes], *, by_content: bool) -> Bound:
        """The recording of a session that asks its first request.

        Of several that fit, it is that of the session's own id, else the first one. Unless `by_content`, one
        that does not fit will do: that of the session's id, else the one that is most like it.

        Raises:
            ReplayMismatchError: none fits that is free; tells how the most likely one differs.
        """
        rules: dict[int, Rules] = {}
        bodies: dict[int, JsonObject] = {}
        fitting: list[int] = []
        for group in self._groups:
            workspace = Workspace(cwd, self._secrets(group.secret_names), group.redact)
            own = Rules(workspace, group.masks)
            found = own.body(body)
            rules |= dict.fromkeys(group.places, own)
            bodies |= dict.fromkeys(group.places, found)
            fitting += group.beginnings.get(request_hash(found), [])
        free = [place for place in sorted(rules) if place not in self._owners]

        def is_foreign(place: int) -> tuple[bool, int]:
            return self._recordings[place].session_id != session_id, place

        def like(place: int) -> tuple[tuple[int, float], bool]:
            return likeness(self._beginning(place), bodies[place]), not is_foreign(place)[0]

        place = min(set(fitting).intersection(free), key=is_foreign, default=None)
        if place is None and free and not by_content:
            place = min(free, key=is_foreign)
            if is_foreign(place)[0]:
                place = max(free, key=like)
        if place is not None:
            self._owners[place] = session_id
            return Bound(self._recordings[place], rules[place])
        if fitting:
            raise self._taken(session_id, fitting)
        if not rules:
            raise ReplayMismatchError(
                f'session "{session_id}" asks the model, but no recording has a request'
            )
        nearest = max(free or sorted(rules), key=like)
        raise self._unlike(nearest, bodies[nearest], len(rules))

    def _beginning(self, place: int) -> JsonObject:
        return self._recordings[place].exchanges[0].body

    def _taken(self, session_id: str, fitting: Sequence[int]) -> ReplayMismatchError:
        players = ", ".join(sorted({f'"{self._owners[place]}"' for place in fitting}))
        return ReplayMismatchError(
            f'session "{session_id}" asks the first request of {self._recordings[fitting[0]].path}, which is '
            f"played by session {players} already; a recording is played once, unless it is given again"
        )

    def _unlike(self, place: int, found: JsonObject, n_recordings: int) -> ReplayMismatchError:
        recording = self._recordings[place]
        text = f"request 1 of {len(recording.exchanges)}: {explain(self._beginning(place), found)}"
        others = f"of {n_recordings} recordings this is the nearest\n" if n_recordings > 1 else ""
        return ReplayMismatchError(f"{recording.path}: {text}\n{others}{again(recording)}")

    def nearest(self, found: JsonObject, expected: Exchange) -> str:
        """Which other recorded request is exactly this one, or nearer to it than the expected one."""
        best, place = likeness(expected.body, found), ""
        for recording in self._recordings:
            for number, exchange in enumerate(recording.exchanges, 1):
                if exchange is not expected and (score := likeness(exchange.body, found)) > best:
                    best, place = score, f"\nnearest recorded request: {recording.path}, request {number}"
        return place


def again(recording: Recording) -> str:
    """What to do about a difference that is meant."""
    return f"record it again, or take the change over with: cordisd replay --refresh {recording.path}"

"""Random input for a daemon, made from its own OpenRPC document.

A piece is a stretch of bytes: mostly one line, sometimes several, sometimes a part of one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

Json = Any
Strategy = st.SearchStrategy[Any]

TEXTS: Strategy = st.text(st.characters(), max_size=20)  # lone surrogates included
JSON: Strategy = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
IDS: Strategy = st.one_of(
    st.integers(),
    st.integers(min_value=-(10**400), max_value=10**400),
    TEXTS,
    st.floats(allow_nan=False, allow_infinity=False),
)
WORDS: dict[str, Strategy] = {
    "cwd": st.sampled_from([*[".", "..", "/"] * 2, "/nowhere", "\0", "a\udc80"]),
    "path": st.sampled_from([*[".", "..", "/"] * 2, "/nowhere", "\0", "a\udc80", " "]),
    "provider": st.just("deepseek-official"),
    "preset": st.sampled_from(["minimal", "rl-minimal-v1", "nope", "../minimal"]),
    "contentBlocks": st.lists(
        st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}), min_size=1, max_size=3
    ),
}
"""Values of params that get past the first look."""
UNWANTED = "shutdown"
"""It would end the daemon."""


def from_schema(schema: Json, schemas: dict[str, Json]) -> Strategy:
    """Values that a schema accepts, of those that our documents have."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return st.deferred(lambda: from_schema(schemas[name], schemas))
    if "anyOf" in schema:
        return st.one_of([from_schema(one, schemas) for one in schema["anyOf"]])
    if "enum" in schema or "const" in schema:
        return st.sampled_from(schema.get("enum", [schema.get("const")]))
    match schema.get("type"):
        case "string":
            return st.text(st.characters(), min_size=schema.get("minLength", 0), max_size=20)
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum"))
            return st.floats(low, schema.get("maximum"), allow_nan=False, allow_infinity=False)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
        case "array":
            low = schema.get("minItems", 0)
            return st.lists(from_schema(schema.get("items", {}), schemas), min_size=low, max_size=low + 2)
        case "object":
            return _objects(schema, schemas)
        case _:
            return JSON


def _objects(schema: Json, schemas: dict[str, Json]) -> Strategy:
    required = schema.get("required", ())
    fields = {name: from_schema(part, schemas) for name, part in schema.get("properties", {}).items()}
    known = st.fixed_dictionaries(
        {name: part for name, part in fields.items() if name in required},
        optional={name: part for name, part in fields.items() if name not in required},
    )
    if schema.get("additionalProperties") is False:
        return known
    return st.builds(lambda more, own: {**more, **own}, st.dictionaries(TEXTS, JSON, max_size=2), known)


def requests(document: Json, digests: Sequence[str], sessions: Sequence[str]) -> Strategy:
    """Requests whose params the document allows; the daemon may still have reasons to refuse them."""
    schemas = document["components"]["schemas"]
    session = st.sampled_from([*[*sessions] * 3, "../s", ".", "s" * 300])
    words = {
        **WORDS,
        "requirePreset": st.sampled_from(digests),
        "sessionId": session,
        "newSessionId": session,
    }
    methods = [method for method in document["methods"] if method["name"] != UNWANTED]
    return st.one_of([_requests(method, schemas, words) for method in methods])


def _requests(method: Json, schemas: dict[str, Json], words: dict[str, Strategy]) -> Strategy:
    fields = {}
    for one in method["params"]:
        any_value = from_schema(one["schema"], schemas)
        fields[one["name"]] = st.one_of(*[words.get(one["name"], any_value)] * 5, any_value)
    required = {one["name"] for one in method["params"] if one["required"]}
    params = st.fixed_dictionaries(
        {name: values for name, values in fields.items() if name in required},
        optional={name: values for name, values in fields.items() if name not in required},
    )
    head = {"jsonrpc": st.just("2.0"), "id": IDS, "method": st.just(method["name"])}
    if required:
        return st.fixed_dictionaries({**head, "params": params})
    return st.fixed_dictionaries(head, optional={"params": params})


@st.composite
def mutated(draw: st.DrawFn, frames: Strategy) -> Json:
    """A frame in which something has another value, is gone, or is new, on any level."""
    frame = json.loads(json.dumps(draw(frames)))
    for _ in range(draw(st.integers(1, 3))):
        place = frame
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
                place = place[key]
                continue
            if draw(st.booleans()):
                place[key] = draw(JSON)
            elif draw(st.booleans()):
                del place[key]
            elif isinstance(place, dict):
                place[draw(TEXTS)] = draw(JSON)
            else:
                place.append(draw(JSON))
            break
    return frame


def encoded(values: Strategy) -> st.SearchStrategy[bytes]:
    """One line for each value, in any of the ways in which JSON can be written."""

    def encode(value: Json, is_ascii: bool, indent: bool, end: bytes) -> bytes:
        text = json.dumps(value, ensure_ascii=is_ascii, separators=None if indent else (",", ":"))
        return text.encode("utf-8", "surrogatepass") + end

    ends = st.sampled_from([b"\n", b"\n", b"\r\n", b" \t\n", b"\n\n"])
    return st.builds(encode, values, st.booleans(), st.booleans(), ends)


@st.composite
def damaged(draw: st.DrawFn, lines: st.SearchStrategy[bytes]) -> bytes:
    """A line some of whose bytes are others, gone, or new."""
    line = bytearray(draw(lines))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(line) - 1)))
        width = draw(st.integers(0, 4))
        line[at : at + width] = draw(st.binary(max_size=3))
    return bytes(line) + b"\n"


def pieces(document: Json, digests: Sequence[str], sessions: Sequence[str]) -> st.SearchStrategy[list[bytes]]:
    """What to send, piece by piece; the last line is whole. The digests are of agents that there are."""
    valid = requests(document, digests, sessions)
    notifications = valid.map(lambda frame: {name: frame[name] for name in frame if name != "id"})
    frames = st.one_of(valid, mutated(valid), notifications)
    batches = st.lists(st.one_of(frames, frames, JSON), max_size=5)
    lines = st.one_of(
        *[encoded(valid)] * 3,
        encoded(st.one_of(mutated(valid), notifications)),
        encoded(batches),
        encoded(JSON),
        damaged(encoded(valid)),
        st.binary(max_size=40).map(lambda data: data + b"\n"),
    )
    return st.tuples(
        st.lists(lines, min_size=1, max_size=12), st.lists(st.integers(0, 4000), max_size=6)
    ).map(lambda drawn: cut(b"".join(drawn[0]), drawn[1]))


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """`data` in pieces."""
    ends = sorted({place % len(data) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False) if end > start]

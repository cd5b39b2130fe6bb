"""The working directory and secrets in texts and in streams, cut anywhere."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cordisd.replay.paths import TOKEN, Workspace
from cordisd.replay.stream import hide_in_stream
from cordisd.replay.turns import Chunk

SECRET_VALUE = 'sk-"ä\\n/0123456789'
DIRECTORIES = ["/w", "/work/a-b", "/tmp/w", "/home/u/x.y", "/tmp/w/deeper"]
PIECES = [
    *[
        "/w",
        "/work/a-b",
        "/tmp",
        "/w/",
        "/tmp/w",
        "/home/u/x.y",
        "2",
        "x",
        "\n",
        "\\n",
        "\\u00e9",
        '"',
        " ",
        ".",
    ],
    *["{", "{{", "}}", "{{cwd", "!}}", TOKEN, "{{cwd!}}", "é", "\ud800", "/deeper", "\\", "\0", "\b", "\t"],
]
texts = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
directories = st.sampled_from(DIRECTORIES)


def stream(deltas: list[str], key: str, ends: str) -> bytes:
    """Events of these deltas, each of them a piece of the text or of the arguments of a call."""

    def delta(text: str) -> dict[str, object]:
        if key != "arguments":
            return {key: text}
        return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}

    events = [{"choices": [{"index": 0, "delta": delta(text)}]} for text in deltas]
    return b"".join(
        b"data: "
        + json.dumps(event, ensure_ascii=number % 2 == 0).encode("utf-8", "surrogatepass")
        + ends.encode()
        for number, event in enumerate(events)
    )


def cut(data: bytes, places: list[int]) -> list[Chunk]:
    places = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [Chunk(n, data[a:b]) for n, (a, b) in enumerate(pairwise(places))]


def said(chunks: list[Chunk], key: str) -> str:
    """The whole text of a stream."""
    found = []
    for line in b"".join(chunk.data for chunk in chunks).splitlines():
        if line.startswith(b"data: {"):
            try:
                [choice] = json.loads(line[6:])["choices"]
            except ValueError:
                continue
            delta = choice["delta"]
            found.append(
                delta["tool_calls"][0]["function"]["arguments"] if key == "arguments" else delta[key]
            )
    return "".join(found)


@given(texts, directories)
def test_a_hidden_text_is_shown_as_it_was(text: str, cwd: str) -> None:
    workspace = Workspace(cwd)
    hidden = workspace.hide(text)
    assert workspace.show(hidden) == text
    data = text.encode("utf-8", "surrogatepass")
    shown = workspace.show_bytes(hidden.encode("utf-8", "surrogatepass"))
    assert shown == data


@given(texts, directories, directories)
def test_a_text_shown_elsewhere_is_hidden_as_before(text: str, cwd: str, other: str) -> None:
    hidden, elsewhere = Workspace(cwd).hide(text), Workspace(other)
    assume(other not in hidden)
    assert elsewhere.hide(elsewhere.show(hidden)) == hidden


@given(
    st.lists(texts, max_size=6),
    st.sampled_from(["content", "reasoning_content", "arguments"]),
    st.sampled_from(["\n\n", "\r\n\r\n"]),
    st.lists(st.integers(0, 2000), max_size=8),
    directories,
    directories,
)
def test_a_stream_says_the_same_in_its_directory_and_is_hidden_as_before_elsewhere(
    deltas: list[str], key: str, ends: str, places: list[int], cwd: str, other: str
) -> None:
    chunks = cut(stream(deltas, key, ends), places)
    workspace, elsewhere = Workspace(cwd), Workspace(other)
    hidden = hide_in_stream(workspace, chunks)
    shown = [Chunk(chunk.at_ms, workspace.show_bytes(chunk.data)) for chunk in hidden]
    assert said(shown, key) == said(chunks, key)
    assert hide_in_stream(workspace, shown) == hidden
    if other not in said(hidden, key) and other.encode() not in b"".join(chunk.data for chunk in hidden):
        moved = [Chunk(chunk.at_ms, elsewhere.show_bytes(chunk.data)) for chunk in hidden]
        assert hide_in_stream(elsewhere, moved) == hidden


@given(st.binary(max_size=60), st.lists(st.integers(0, 60), max_size=5), directories)
def test_bytes_that_are_no_events_are_hidden_and_shown_too(noise: bytes, places: list[int], cwd: str) -> None:
    data = b": " + noise + b" " + cwd.encode() + b" {{cwd}} " + noise[::-1]
    workspace = Workspace(cwd)
    hidden = hide_in_stream(workspace, cut(data, places))
    assert b" " + cwd.encode() + b" " not in b"".join(chunk.data for chunk in hidden)
    shown = [Chunk(chunk.at_ms, workspace.show_bytes(chunk.data)) for chunk in hidden]
    assert b"".join(chunk.data for chunk in shown) == data
    assert hide_in_stream(workspace, shown) == hidden


@given(st.lists(st.integers(0, 400), max_size=6), st.lists(st.integers(0, 40), max_size=4))
def test_a_secret_is_hidden_however_it_is_written_and_cut(places: list[int], cuts: list[int]) -> None:
    workspace = Workspace("/w", [SECRET_VALUE])
    arguments = json.dumps({"key": SECRET_VALUE, "path": "/w/x"})
    text = f"{SECRET_VALUE} and {arguments}"
    pieces = [text[a:b] for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True)]
    for key in ("content", "arguments"):
        hidden = hide_in_stream(workspace, cut(stream(pieces, key, "\n\n"), places))
        shown = [Chunk(chunk.at_ms, workspace.show_bytes(chunk.data)) for chunk in hidden]
        assert said(shown, key) == '{{secret}} and {"key": "{{secret}}", "path": "/w/x"}'
        assert hide_in_stream(workspace, shown) == hidden


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/tmp/w/a /tmp/w2 /tmp/w. x/tmp/w //tmp/w", "{{cwd}}/a /tmp/w2 {{cwd}}. x/tmp/w /{{cwd}}"),
        ('{"c": "cd /tmp/w\\n/tmp/w/x"}', '{"c": "cd {{cwd}}\\n{{cwd}}/x"}'),
        ("{{/tmp/w}} {{cwd}} {{cwd!}}", "{{{{cwd}}}} {{cwd!}} {{cwd!!}}"),
    ],
)
def test_only_the_directory_itself_is_a_token(text: str, hidden: str) -> None:
    assert Workspace("/tmp/w").hide(text) == hidden


@pytest.mark.parametrize(
    ("data", "hidden"),
    [
        (
            b'{"message": {"content": "\\/tmp\\/w \\u002ftmp/w"}}',
            b'{"message":{"content":"{{cwd}} {{cwd}}"}}',
        ),
        (b'\xef\xbb\xbfdata: {"a":\ndata: "\\/tmp/w"}\n\n', b'\xef\xbb\xbfdata: {"a":"{{cwd}}"}\n\n'),
        (b'data:{"a": "/tmp/w \xff"}\n\n: /tmp/w\n\n', b'data:{"a": "{{cwd}} \xff"}\n\n: {{cwd}}\n\n'),
        (b'data: {"choices": [{"delta": {"tool_calls": [{"index": [{}]}]}}], "/tmp/w": 1}\n\n', None),
        (b"data: " + b'{"a":' * 3000 + b'"/tmp/w"\n\n', None),
    ],
)
def test_odd_bodies_are_hidden_too(data: bytes, hidden: bytes | None) -> None:
    workspace = Workspace("/tmp/w")
    [chunk] = hide_in_stream(workspace, [Chunk(0, data)])
    assert chunk.data == (data.replace(b"/tmp/w", b"{{cwd}}") if hidden is None else hidden)
    assert hide_in_stream(workspace, [Chunk(0, workspace.show_bytes(chunk.data))]) == [chunk]


def test_what_has_no_token_keeps_its_bytes_and_its_cuts() -> None:
    chunks = cut(stream(["a", "\\", "é", "/tm", "p/x"], "content", "\r\n\r\n"), [3, 50, 90, 130])
    assert hide_in_stream(Workspace("/tmp/w"), chunks) == chunks

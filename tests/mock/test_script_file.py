"""Script files: what can be written in one, and what is said of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest

from cordisd.cli.mock_model import HELP
from cordisd.mock import (
    DONE,
    FAULTS,
    Answer,
    Call,
    Cut,
    Hang,
    MockModelThread,
    Pause,
    RawReply,
    Received,
    Reply,
    Token,
)
from cordisd.mock.script_file import ScriptError, read_playlist
from mock_requests import STREAMED, WHOLE, exchange, http_chunks, post, split

HI = Received("POST", "/v1/chat/completions", (), json.dumps(WHOLE).encode(), 0)


def written(folder: Path, text: str) -> Path:
    path = folder / "s.yml"
    path.write_text(dedent(text))
    return path


def replies(folder: Path, text: str, n: int = 1) -> list[Reply]:
    """The replies to that many requests."""
    playlist = read_playlist(written(folder, text))
    return [playlist(HI) for _ in range(n)]


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ScriptError) as caught:
        read_playlist(written(folder, text))
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [str(problem).removeprefix(f"{folder}/s.yml:") for problem in caught.value.problems]


def test_an_answer_says_all_that_a_model_can(tmp_path: Path) -> None:
    script = """
        - text: [Hel, lo]
          reasoning: hm
          calls:
            - {name: bash, arguments: {command: é}}
            - {name: bash, arguments: '{"comm', id: x}
            - {name: ls, arguments: ['{"a"', ':1}'], id: null}
            - {name: pwd}
          finish: null
          usage: {prompt_tokens: 1}
          prompt_token_ids: [1, 2]
          headers: {x-request-id: r1}
          faults: {crlf: true, latency: 0.5, broken-arguments: "null"}
        """
    assert replies(tmp_path, script) == [
        Answer(
            text=["Hel", "lo"],
            reasoning=["hm"],
            calls=[
                Call("bash", ['{"command": "é"}'], "call_1"),
                Call("bash", ['{"comm'], "x"),
                Call("ls", ['{"a"', ":1}"], None),
                Call("pwd", ["{}"], "call_4"),
            ],
            finish=None,
            usage={"prompt_tokens": 1},
            prompt_token_ids=[1, 2],
            headers={"x-request-id": "r1"},
            faults={"crlf": None, "latency": 0.5, "broken-arguments": "null"},
            source=f"{tmp_path}/s.yml:2",
        )
    ]


def test_what_is_left_out_is_as_in_an_answer_made_by_hand(tmp_path: Path) -> None:
    source = f"{tmp_path}/s.yml:1"
    assert replies(tmp_path, "- text: a\n- usage: null\n  refusal: no", 2) == [
        Answer(text=["a"], source=source),
        Answer(refusal=["no"], usage=None, source=source.replace(":1", ":2")),
    ]
    assert replies(tmp_path, "- tokens: [{text: a, id: 1, logprob: -2}]") == [
        Answer(tokens=[Token("a", 1, -2)], source=source)
    ]


def test_an_error_is_an_object_or_a_page(tmp_path: Path) -> None:
    script = """
        - error: {status: 429, message: slow, code: 7, headers: {Retry-After: "1"}}
          faults: {latency: 0.5}
        - error: {status: 502, html: <html>}
        """
    limited, page = replies(tmp_path, script, 2)
    assert isinstance(limited, RawReply) and isinstance(limited.parts[0], bytes)
    assert isinstance(page, RawReply)
    assert json.loads(limited.parts[0])["error"] == {
        "message": "slow",
        "type": "rate_limit_error",
        "param": None,
        "code": 7,
    }
    assert (limited.status, limited.headers["Retry-After"], limited.faults) == (429, "1", {"latency": 0.5})
    assert (page.status, page.headers["Content-Type"], page.parts) == (502, "text/html", [b"<html>"])


def test_a_stream_can_be_written_part_by_part(tmp_path: Path) -> None:
    script = r"""
        - stream:
            - event: {choices: []}
            - text: ": é\n\n"
            - hex: ff 0a
            - pause: 1
            - done: true
            - hang: true
          headers: {Content-Type: text/plain}
        - stream: [{cut: rst}]
        """
    stream, cut = replies(tmp_path, script, 2)
    assert isinstance(stream, RawReply) and isinstance(cut, RawReply)
    assert stream.headers == {"Content-Type": "text/plain"}
    event = b'data: {"choices": []}\n\n'
    assert stream.parts == [event, ": é\n\n".encode(), b"\xff\n", Pause(1), DONE, Hang()]
    assert cut.parts == [Cut("rst")]


def test_when_a_reply_is_given_is_written_beside_it(tmp_path: Path) -> None:
    script = """
        - {text: else, default: true}
        - {text: never, match: {user: bye}}
        - {text: a, repeat: 2}
        - {text: hi, match: {user: (?i)^HI$, system: brief, model: m}}
        """
    given = replies(tmp_path, script, 5)
    assert [reply.text for reply in given if isinstance(reply, Answer)] == [
        ["hi"],
        ["a"],
        ["a"],
        ["else"],
        ["else"],
    ]
    always = replies(tmp_path, "- {text: a, repeat: always}\n- {text: b}", 3)
    assert [reply.source for reply in always] == [f"{tmp_path}/s.yml:1"] * 3
    once = replies(tmp_path, "- {text: a, default: true, repeat: 1}", 2)
    assert isinstance(once[1], RawReply) and once[1].status == 400


def test_a_script_may_be_json_and_may_be_empty(tmp_path: Path) -> None:
    assert replies(tmp_path, json.dumps([{"text": "a"}])) == [
        Answer(text=["a"], source=f"{tmp_path}/s.yml:1")
    ]
    assert isinstance(replies(tmp_path, "[]")[0], RawReply)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {txt: a}", '1: invalid reply: unknown key $.txt (did you mean "text"?)'),
        ("-\n  text: 5", "2: invalid reply: $.text must be a string or a list or null, got 5"),
        (
            "- text: a\n  faults:\n    crlff: true",
            '3: invalid reply: unknown fault "crlff" (did you mean "crlf"?)',
        ),
        ("- {text: a, faults: {pace: -1}}", "the fault pace must be a number from 0 to 3600, got -1"),
        ("- {text: a, faults: {pace: false}}", "the fault pace must be a number from 0 to 3600, got False"),
        ("- {text: a, faults: {crlf: 3}}", "the fault crlf takes no parameter; write true, got 3"),
        ("- {text: a, faults: {html-error: 200}}", "html-error must be an integer from 400 to 599, got 200"),
        ("- {text: a, faults: {cut-rst: 2}}", "cut-rst must be a number from 0 to 1, got 2"),
        ("- {text: a, faults: {split-random: 0}}", "split-random must be a number of at least 1, got 0"),
        ("- {text: a, faults: {broken-arguments: x}}", "must be one of cut, newline, empty"),
        ("- text: a\n  match: {user: '('}", "2: invalid reply: $.match.user is no regular expression"),
        ("- {text: a, match: {headers: {a: '['}}}", "$.match.headers.a is no regular expression"),
        ("- {text: a, match: {}}", "$.match: a match needs at least one of user, tool"),
        ("- {error: {status: 200}}", "$.error.status must be an integer from 400 to 599, got 200"),
        ("- {text: a, error: {status: 500}}", "text and error cannot both be answered"),
        ("- {error: {status: 500}, headers: {a: b}}", "the headers of an error stand below error"),
        ("- {text: a, tokens: [{text: a, id: 1}]}", "text and tokens say the same"),
        ("- {repeat: 2}", "nothing to answer: write text"),
        ("- {text: a, repeat: 0}", "$.repeat must be an integer of at least 1 or 'always'"),
        ("- {text: a, headers: {a b: c}}", "$.headers.a b"),
        ('- {text: a, headers: {a: "b\\r\\nc: d"}}', "$.headers.a"),
        ("- {stream: [{cut: rst, pause: 1}]}", "$.stream[0]: a part has exactly one key"),
        ("- {stream: [{hex: zz}]}", "$.stream[0]: hex is pairs of hexadecimal digits"),
        ("- {calls: [{arguments: {}}]}", "$.calls[0].name is required: a string"),
        ("- {text: a, text: b}", 'duplicate key "text", first on line 1'),
        ("- {text: !!js process.env.X}", "1: a script holds no !!js expressions"),
        ("- hello", "1: a reply is a mapping"),
        ("text: a", "1: a script is a list of replies"),
        ("- {text: a", "is not YAML"),
        ("", "is empty"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    (told,) = problems(tmp_path, text)
    assert said in told


def test_every_mistake_is_told(tmp_path: Path) -> None:
    told = problems(tmp_path, "- {txt: a}\n- hello\n- {text: a, faults: {no: true, pace: x}}\n")
    assert [line.partition(":")[0] for line in told] == ["1", "2", "3", "3"]
    assert f"known: {', '.join(FAULTS)}" in told[2]


def test_a_script_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"no\.yml: config file not found"):
        read_playlist(tmp_path / "no.yml")


def test_the_script_in_the_help_can_be_served(tmp_path: Path) -> None:
    lines = HELP.splitlines()
    example = "\n".join(line for line in lines if line.startswith(("    - ", "      ")))
    playlist = read_playlist(written(tmp_path, example))
    with MockModelThread(playlist) as mock:
        answers = [split(exchange(mock.url, post(STREAMED))) for _ in range(7)]
        assert [status for status, _, _ in answers] == [200, 200, 429, 200, 200, 200, 200]
    assert b'"content": "Anything else"' in b"".join(http_chunks(answers[6][2]))

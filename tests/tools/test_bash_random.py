"""Random text in, random bytes out, random sizes: nothing is changed, and nothing reaches the next call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cordisd.shell.output import Capture
from cordisd.shell.report import shown_output

DELIMITER = "END OF RANDOM TEXT"
GAP = re.compile(
    r"\n\[\.\.\. ([\d,]+) (bytes|characters) omitted here, ([\d,]+) line ends among them \.\.\.\]\n"
)
GAP_CHARS = 100
few = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
many = settings(few, max_examples=200)

hazards = st.sampled_from(
    [
        "\t",
        "\r",
        "\x03",
        "\x04",
        "\x1a",
        "\x1b[A",
        "\x7f",
        "\\",
        "'",
        '"',
        "`",
        "$(x)",
        "${y}",
        "!!",
        "E",
        "<<E",
        "\n",
        " ",
    ]
)
bodies = st.lists(hazards | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))).map(
    "".join
)

escapes = [
    b"",
    b"[",
    b"[31",
    b"[31m",
    b"]0;t",
    b"\\",
    b"P",
    b"_",
    b"(",
    b"[6n",
    b"[c",
    b"[?1049h",
    b"X",
    b"^",
]
controls = b"\x07\x90\x9b\x9d\x1e\r\n\b\0\x0e\x13\xc3\xff"
forgeries = [b"\x1e0123456789abcdef>", b"S 0123456789abcdef 0 0\n", b"P 0\n", b"\xf0\x9f", b"text"]
fragments = st.sampled_from(
    [*(b"\x1b" + end for end in escapes), *(bytes([one]) for one in controls), *forgeries]
)
garbage = st.lists(fragments | st.binary(max_size=40), max_size=30).map(b"".join)

visible = st.characters(codec="utf-8", categories=["L", "N", "S", "Zs"], exclude_characters="\ufffd")
lines = st.lists(st.text(visible, max_size=40), min_size=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


@few
@given(st.lists(bodies, min_size=1, max_size=6))
def test_a_heredoc_body_arrives_byte_for_byte(bash_bench, folder: Path, texts: list[str]) -> None:
    commands = [f"cat > f{n} <<'{DELIMITER}'\n{body}\n{DELIMITER}" for n, body in enumerate(texts)]
    told = bash_bench().run(*commands, "echo ok", folder=folder)
    assert told.texts == [*[""] * len(texts), "ok"]
    for n, body in enumerate(texts):
        assert (folder / f"f{n}").read_bytes() == body.encode() + b"\n"


@few
@given(st.lists(bodies, min_size=1, max_size=6))
def test_a_command_cut_at_any_place_ends_and_harms_no_later_one(
    bash_bench, folder: Path, texts: list[str]
) -> None:
    """As a word in quotes that may be left open: bash says what it thinks of it, or runs it."""
    commands = [f": '{body.replace('`', '').replace('$(', '')}" for body in texts]
    told = bash_bench().run("kept=yes; set -f", *commands, "echo ok; echo $kept", folder=folder)
    assert told.texts[-1] == "ok\nyes"


@few
@given(st.lists(garbage, min_size=1, max_size=6))
def test_printed_garbage_never_damages_the_next_call(bash_bench, folder: Path, outputs: list[bytes]) -> None:
    steps = []
    for n, output in enumerate(outputs):
        (folder / f"g{n}").write_bytes(output)
        steps += [f"cat g{n}", "echo ok", f"cat g{n} >/dev/tty; (exit 3)", "echo $?"]
    told = bash_bench().run(*steps, folder=folder)
    for at in range(0, len(steps), 4):
        shown, ok, shown_by_terminal, status = told.texts[at : at + 4]
        assert (ok, status) == ("ok", "3")
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", shown)
        assert shown_by_terminal == (f"{shown}\n[exit code: 3]" if shown else "[exit code: 3]")


@few
@given(lines, st.integers(1, 40_000), st.booleans())
def test_output_of_any_size_keeps_its_first_and_its_last_line(
    bash_bench, folder: Path, some: list[str], n_lines: int, ends_line: bool
) -> None:
    whole = "\n".join(some[n % len(some)] for n in range(n_lines))
    first, last = f"first{some[0]}\n", f"\nlast{some[-1]}"
    whole = first + whole + last
    (folder / "o").write_text(whole + "\n" * ends_line)
    shown, ok = bash_bench().run("cat o", "echo ok", folder=folder).texts
    assert ok == "ok"
    assert shown.startswith(first) and shown.endswith(last)
    assert len(shown) <= 16_000 + GAP_CHARS
    assert "\ufffd" not in shown
    if len(whole) <= 16_000:
        assert shown == whole
    else:
        assert_counted(whole, shown)


def assert_counted(whole: str, shown: str) -> None:
    """The gap of `shown` tells exactly what of `whole` is missing."""
    [gap] = GAP.finditer(shown)
    head, tail = shown[: gap.start()], shown[gap.end() :]
    assert whole.startswith(head) and whole.endswith(tail)
    missing = whole[len(head) : len(whole) - len(tail)]
    amount = len(missing) if gap[2] == "characters" else len(missing.encode())
    assert int(gap[1].replace(",", "")) == amount
    assert int(gap[3].replace(",", "")) == missing.count("\n")


@many
@given(
    st.text(visible, min_size=1, max_size=5),
    st.integers(1, 3000),
    st.integers(20, 400),
    st.tuples(st.integers(100, 600), st.integers(100, 600)),
    st.booleans(),
    st.data(),
)
def test_a_cut_at_any_size_is_valid_and_exactly_counted(
    word: str, n: int, max_chars: int, sizes: tuple[int, int], ends_line: bool, data: st.DataObject
) -> None:
    whole = word * n if data.draw(st.booleans()) else "\n".join([word] * n)
    raw = whole.encode() + b"\n" * ends_line
    capture = Capture(*sizes)
    at = 0
    while at < len(raw):
        step = data.draw(st.integers(1, 4000))
        capture.append(raw[at : at + step])
        at += step
    shown, truncated = shown_output(capture, max_chars, "headTail")
    shown.encode()
    assert "\ufffd" not in shown
    assert len(shown) <= max_chars + GAP_CHARS
    assert (shown == whole) == (not truncated)
    if truncated:
        assert_counted(whole, shown)
    else:
        assume(len(whole) <= max_chars)
    clipped, _ = shown_output(capture, max_chars, "reference")
    kept = clipped.partition("<response clipped>")[0]
    assert whole.startswith(kept) and kept

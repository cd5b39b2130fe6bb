"""Family C: any bytes, any amount: the model reads text, bounded, and the next call knows nothing of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from processes import gone

BACKGROUND = "[output of background jobs since the last call]\n{}\n[end of background output]\n"
GAP = re.compile(
    r"\n\[\.\.\. ([\d,]+) (bytes|characters) omitted here, ([\d,]+) line ends among them \.\.\.\]\n"
)
CLIPPED = re.compile(r"<response clipped><NOTE>.*</NOTE>\Z")
MOST_GROWTH_BYTES = 8_000_000


def omitted(text: str) -> tuple[str, int, str, int, str]:
    """Head, amount, unit, line ends and tail of a text with a gap."""
    match = GAP.search(text)
    assert match is not None, text[:200]
    amount, unit, lines = match.groups()
    number = int(amount.replace(",", "")), int(lines.replace(",", ""))
    return text[: match.start()], number[0], unit, number[1], text[match.end() :]


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever had."""
    [line] = (one for one in Path(f"/proc/{pid}/status").read_text().split("\n") if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (r"printf 'a\x96b'", "a\ufffdb"),
        (r"printf '\xf0\x9f\n\x8e\x89'", "\ufffd\n\ufffd\ufffd"),
        (r"printf '\xf0\x9f'; sleep .05; printf '\x8e\x89'", "🎉"),
        (r"printf '\e[31mred\e[0m\r\n\e]0;title\atext\n'", "red\ntext"),
        (r"printf '\e[6n\e]11;?\a\e[c\e[>c\e[?6n\e]10;?\e\\\eP+q544e\e\\'", ""),
        (r"printf '\e(B\e)0\e#8x\e7y\e8\ec\eMz'", "xyz"),
        (r"printf '\e_apc\e\\x \e^pm\e\\y \eXsos\e\\z \ePdcs\e\\.'", "x y z ."),
        (r"printf '\x9b31mred\x9b0m'", "red"),
        (r"printf '\e]8;;http://x\e\\link\e]8;;\e\\ after'", "link after"),
        (r"printf '\e[?1049h\e[2J\e[Hx\e[?1049l'", "x"),
        (r"for i in $(seq 500); do printf '\r%3d%%' $i; done; echo", "500%"),
        (r"for i in $(seq 200); do printf '%d\r' $i; done; echo", "200"),
        (r"printf 'a\r\nb\r\n' > f; cat f", "a\nb"),
        (r"printf 'a\r\r\nb\n\r\nc'", "a\nb\n\nc"),
        (r"printf 'ab\bc'", "ac"),
        (r"printf '\b\bab\b\b\bc\n\bd'", "c\nd"),
        (r"printf 'a\0b\a\v\f\x1e\x7fc'", "abc"),
        (r"printf 'a\tb'", "a\tb"),
        (r"printf '\n\n  a  \n\n'", "\n\n  a  \n"),
        (r"printf 'a\u2028b é 日本'", "a\u2028b é 日本"),
        ("seq 3 > /dev/null; seq 2 >&2", "1\n2"),
        ("ls --color=always -d .; git -c color.ui=always --version | cut -c1-3", ".\ngit"),
    ],
)
def test_terminal_output_becomes_text(bash_kept, command: str, shown: str) -> None:
    assert bash_kept(command).texts == [shown]


@pytest.mark.parametrize(
    "command",
    [
        r"printf '\033['",
        r"printf '\033'",
        r"printf '\033]0;x'",
        r"printf '\033P'",
        r"printf '\033_'",
        r"printf '\x9d'",
        r"printf '\xf0\x9f'",
        r"printf '\r'",
        r"printf '\b\b\b'",
        r"printf '\016\033(0'",
        r"printf '\023'",
        "head -c 4096 /dev/urandom",
        "head -c 300 /dev/urandom",
        "head -c 200 /bin/true",
        r"printf '\e[6n\e]11;?\a\e[c'",
        r"printf 'no newline'",
    ],
)
def test_nothing_that_is_printed_reaches_the_next_call(bash_kept, command: str) -> None:
    [words] = bash_kept(command).texts
    words.encode()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", words)


def test_an_unterminated_string_sequence_costs_its_line_only(bash_kept) -> None:
    assert bash_kept(r"printf 'a\033]0;x\nb\n\033Pq\nc\n'").texts == ["a\nb\n\nc"]


def test_long_output_keeps_its_first_and_last_lines_and_counts_the_rest(bash_kept) -> None:
    told = bash_kept("seq 1 20000")
    head, n, unit, n_lines, tail = omitted(told.texts[0])
    full = "\n".join(map(str, range(1, 20001)))
    assert (len(head), len(tail), unit) == (6000, 10000, "characters")
    assert full == head + full[6000 : 6000 + n] + tail
    assert n_lines == full[6000 : 6000 + n].count("\n")
    assert told.facts == [{"truncated": True}]


@pytest.mark.parametrize(("n", "truncated"), [(15_999, False), (16_000, False), (16_001, True)])
def test_the_limit_is_exact(bash_kept, n: int, truncated: bool) -> None:
    told = bash_kept(f"printf 'x%.0s' {{1..{n}}}; echo")
    assert (told.facts == [{"truncated": True}]) == truncated
    assert (told.texts[0] == "x" * n) != truncated


def test_a_smaller_limit_is_kept(bash_kept) -> None:
    head, n, unit, _, tail = omitted(bash_kept("seq 1 2000", maxOutputChars=160).texts[0])
    full = "\n".join(map(str, range(1, 2001)))
    assert (head, tail) == (full[:60], full[-100:])
    assert (n, unit) == (len(full) - 160, "characters")


def test_a_larger_limit_is_kept(bash_kept) -> None:
    assert bash_kept("seq 1 50000", maxOutputChars=1_000_000).texts == ["\n".join(map(str, range(1, 50001)))]


def test_reference_truncation_keeps_the_beginning_only(bash_kept) -> None:
    told = bash_kept("seq 1 20000", "seq 1 2000000", "(exit 3)", truncation="reference")
    full = "\n".join(map(str, range(1, 20001)))
    for words in told.texts[:2]:
        assert CLIPPED.search(words)
        assert CLIPPED.sub("", words) == full[:16_000]
    assert told.texts[2] == "[exit code: 3]"


@pytest.mark.parametrize(
    ("command", "first", "last", "n_bytes", "n_lines"),
    [
        ("seq 1 2000000", "1\n2\n3\n", "\n1999999\n2000000", 14_888_896, 2_000_000),
        ("yes | head -c 100000000", "y\ny\n", "\ny\ny", 100_000_000, 50_000_000),
        ("head -c 20000000 /dev/zero | tr '\\0' x", "xxx", "xxx", 20_000_000, 0),
        (
            "echo first; head -c 8000000 /dev/zero | tr '\\0' x; echo; echo last",
            "first\nx",
            "x\nlast",
            8_000_012,
            3,
        ),
    ],
)
def test_very_long_output_is_bounded_in_memory_and_exactly_counted(
    bash_bench, bash_kept, command: str, first: str, last: str, n_bytes: int, n_lines: int
) -> None:
    daemon = bash_bench().daemon.process.pid
    bash_bench().run("echo warm", folder=Path("/"))
    before = peak_bytes(daemon)
    told = bash_kept(command)
    head, n, unit, n_lines_omitted, tail = omitted(told.texts[0])
    assert head.startswith(first) and tail.endswith(last)
    assert (len(head), len(tail), unit) == (6000, 10000, "bytes")
    ends_line = n_lines > 0
    assert n == n_bytes - 16_000 - ends_line
    assert n_lines_omitted == n_lines - head.count("\n") - tail.count("\n") - ends_line
    assert peak_bytes(daemon) - before < MOST_GROWTH_BYTES
    assert told.took_s[0] < 20


@pytest.mark.load
def test_half_a_gigabyte_is_read_to_its_end(bash_bench, bash_kept, tmp_path: Path, long: bool) -> None:
    """TB-041."""
    n_mib = 500 if long else 200
    bash_bench().run("echo the first turn of a daemon loads modules", folder=tmp_path)
    daemon = bash_bench().daemon.process.pid
    before = peak_bytes(daemon)
    told = bash_kept(f"yes | head -c {n_mib}M; echo done; (exit 4)")
    head, n, _, _, tail = omitted(told.texts[0])
    assert head.startswith("y\ny\n") and tail.endswith("y\ndone\n[exit code: 4]")
    assert n == n_mib * 1024 * 1024 + 5 - 16_001
    assert peak_bytes(daemon) - before < MOST_GROWTH_BYTES


@pytest.mark.parametrize("character", ["é", "日", "🎉"])
@pytest.mark.parametrize("n", [10_000, 20_000, 100_001])
def test_no_character_is_cut_in_pieces(bash_kept, character: str, n: int) -> None:
    """Item 21."""
    [words] = bash_kept(f"printf '{character}%.0s' {{1..{n}}}").texts
    words.encode()
    shown = words
    if n > 16_000:
        head, _, _, _, tail = omitted(words)
        shown = head + tail
    assert shown == character * min(n, 16_000)


def test_a_job_that_prints_between_calls_is_heard_of_once(bash_bench, tmp_path: Path) -> None:
    """Item 16, F-5: also what it prints in escape sequences, and how it ended."""
    bench = bash_bench()
    job = r"(until [ -e go ]; do sleep .01; done; printf 'LA\e[1mTE\r\n'; exit 3) & echo $!"
    session = bench.begin("kept=yes; env true", job, folder=tmp_path)
    bench.wait([session])
    pid = int(bench.told(session).texts[1].split("\n")[-1])
    (tmp_path / "go").touch()
    assert gone({pid})
    bench.begin("echo b", "echo c; echo $kept", "echo ok", folder=tmp_path, session=session)
    first, second, ok = bench.finish(session).texts
    assert first.startswith(BACKGROUND.format("LATE") + "b")
    assert (first + second).count("Exit 3") == 1, "TB-055: how it ended is told"
    assert second.endswith("c\nyes")
    assert ok == "ok"


def test_a_flood_between_calls_is_bounded(bash_bench, tmp_path: Path) -> None:
    bench = bash_bench()
    session = bench.begin(
        "(until [ -e go ]; do sleep .01; done; seq 1 300000) & disown; echo $!", folder=tmp_path
    )
    bench.wait([session])
    pid = int(bench.told(session).texts[0].split("\n")[-1])
    (tmp_path / "go").touch()
    assert gone({pid})
    bench.begin("echo b", "echo ok", folder=tmp_path, session=session)
    first, ok = bench.finish(session).texts
    assert first.startswith(BACKGROUND.split("{")[0] + "1\n2\n")
    assert first.endswith("\n299999\n300000\n[end of background output]\nb")
    assert "omitted" in first and len(first) < 22_000
    assert ok == "ok"

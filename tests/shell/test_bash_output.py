"""What the model sees of a command's output: bounded, rendered, labelled."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial

import pytest

from cordisd.shell.bash import Bash
from measure import SOON_S
from processes import exists


def _rss_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (r"printf 'a\x96b'", "a\ufffdb"),
        (r"printf 'ab\bc\0d\a'", "acd"),
        (r"printf 'a\r\nb\r\r\nc\n'", "a\nb\nc"),
        (r"for i in $(seq 200); do printf '\r%3d%%' $i; done; echo", "200%"),
        (r"printf '\e[31mred\e[0m\r\n\e]0;title\atext\n'", "red\ntext"),
        (r"printf '\e[6n\e]11;?\a\e[c'", ""),
        (r"printf '\e(B\e)0\e#8x\e7y\eP1$r\e\\z'", "xyz"),
        (r"printf '\e[?1049hx\e[?1049l'; tput clear 2>/dev/null; true", "x"),
    ],
)
def test_terminal_control_is_rendered_to_text(texts, command: str, shown: str):
    assert texts(command) == [shown]


@pytest.mark.parametrize(
    "command",
    [
        r"printf '\033['",
        r"printf '\033'",
        r"printf '\033]0;x'",
        r"printf '\033P'",
        "head -c 4096 /dev/urandom",
    ],
)
def test_an_unterminated_sequence_does_not_reach_the_next_call(texts, command: str):
    assert texts(command, "echo next")[1] == "next"


def test_an_unterminated_title_costs_its_line_only(texts):
    assert texts(r"printf 'a\033]0;x\nb\n'") == ["a\nb"]


def test_long_output_keeps_its_head_and_tail_and_tells_what_is_missing(texts):
    (text,) = texts("seq 1 20000")
    assert text.startswith("1\n2\n3\n") and text.endswith("\n19999\n20000")
    full = "\n".join(map(str, range(1, 20001)))
    assert f"{len(full) - 16_000:,} characters omitted" in text
    assert len(text) < 16_200


def test_very_long_output_is_counted_in_bytes_and_lines(texts):
    (text,) = texts("seq 1 2000000")
    assert text.startswith("1\n2\n") and text.endswith("\n2000000")
    assert "14,872,8" in text and "bytes omitted" in text
    assert len(text) < 16_200


def test_ten_megabytes_are_read_quickly_in_little_memory(drive):
    async def body(bash: Bash) -> None:
        await bash.run("true")
        before = _rss_bytes()
        start = time.monotonic()
        result = await bash.run("head -c 10000000 /dev/zero | tr '\\0' x")
        assert time.monotonic() - start < SOON_S  # 0.1 s on an idle machine
        assert result.truncated and result.text.endswith("xxx")
        assert _rss_bytes() - before < 8_000_000

    drive(body)


def test_reference_truncation_keeps_the_head_only(texts):
    (text,) = texts("seq 1 20000", truncation="reference")
    assert text.startswith("1\n2\n") and "<response clipped>" in text and "20000" not in text


def test_characters_are_never_cut_in_pieces(texts):
    (text,) = texts("printf '🎉%.0s' {1..70000}")
    assert "\ufffd" not in text
    text.encode()


def test_the_trailer_can_show_every_status(texts):
    assert texts("true", "false", "(kill -9 $BASHPID)", trailer="always") == [
        "[exit code: 0]",
        "[exit code: 1]",
        "Killed\n[exit code: 137 (SIGKILL)]",
    ]


def test_output_of_jobs_between_calls_is_delivered_once_and_labelled(drive, tmp_path):
    async def body(bash: Bash) -> None:
        job = "(until [ -e go ]; do sleep 0.01; done; printf 'LA\\e[1mTE\\n'; touch f) & disown"
        assert (await bash.run(job)).text.startswith("[1] ")
        (tmp_path / "go").touch()
        await exists(tmp_path / "f")
        assert (await bash.run("echo b")).text == (
            "[output of background jobs since the last call]\nLATE\n[end of background output]\nb"
        )
        assert (await bash.run("echo c")).text == "c"

    drive(body)


def test_a_flood_between_calls_is_bounded(drive, tmp_path):
    async def body(bash: Bash) -> None:
        await bash.run("(until [ -e go ]; do sleep 0.01; done; seq 1 200000; touch f) & disown")
        (tmp_path / "go").touch()
        await exists(tmp_path / "f")
        text = (await bash.run("echo b")).text
        assert text.endswith("200000\n[end of background output]\nb") and len(text) < 22_000

    drive(body)


def test_a_server_started_with_an_ampersand_does_not_hold_the_call(texts):
    first, second = texts("sleep 60 & echo started", "kill -0 $! && echo alive")
    assert first.endswith("started") and second == "alive"


def test_two_sessions_do_not_mix(guardian, tmp_path):
    async def main() -> None:
        shells = [Bash(guardian, f"s{n}", str(tmp_path), partial(dict, os.environ)) for n in range(8)]
        results = await asyncio.gather(
            *(shell.run(f"for i in 1 2 3; do echo {n}; sleep .02; done") for n, shell in enumerate(shells))
        )
        assert [result.text for result in results] == [f"{n}\n{n}\n{n}" for n in range(8)]
        for shell in shells:
            await shell.close()
        await guardian.close()

    asyncio.run(main())

"""Family A: whatever the text of a command holds, bash gets it whole and the next call is clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from measure import SOON_S

TABBED = "all:\n\tcc -o a a.c\n\t\tdeep\tin side\n"
CONTROLS = [chr(code) for code in (*range(1, 32), 127) if chr(code) != "\n"]

"""What the catalogue allows for a long or an unfinished command; milliseconds on an idle machine."""


def heredoc(body: str, file: str = "f") -> str:
    """A command that writes `body`, which ends its last line, to `file`."""
    assert body.endswith("\n")
    return f"cat > {file} <<'END OF TEXT'\n{body}END OF TEXT"


@pytest.mark.parametrize("size", [1, 40])
def test_tabs_of_a_heredoc_reach_the_file(bash_kept, tmp_path: Path, size: int) -> None:
    told = bash_kept(heredoc(TABBED * size), "grep -c $'\\t' f")
    assert told.texts == ["", str(2 * size)]
    assert (tmp_path / "place" / "f").read_text() == TABBED * size


@pytest.mark.parametrize("quote", ["cat <<'E'\n\tx\nE", "printf '%s\\n' '\tx'", 'echo "\tx"', "echo $'\\tx'"])
def test_a_tab_is_a_tab_in_every_kind_of_quote(bash_kept, quote: str) -> None:
    assert bash_kept(quote).texts == ["\tx"]


def test_every_control_byte_of_a_quoted_heredoc_reaches_the_file(bash_kept, tmp_path: Path) -> None:
    bodies = [*(f"<{one}>{one}{one}\n{one}\n" for one in CONTROLS), "".join(CONTROLS) + "\n"]
    told = bash_kept(*(heredoc(body, f"f{n}") for n, body in enumerate(bodies)))
    assert told.texts == [""] * len(bodies)
    for n, body in enumerate(bodies):
        assert (tmp_path / "place" / f"f{n}").read_bytes() == body.encode()


def test_a_control_byte_before_a_word_belongs_to_the_word(bash_kept) -> None:
    told = bash_kept("\fcd /", "\x12cd /", "\x18\x05", "echo a\x7fb | od -An -c")
    assert [words.rpartition("\n")[2] for words in told.texts[:3]] == ["[exit code: 127]"] * 3
    assert r"$'\fcd'" in told.texts[0]
    assert told.texts[3].split() == ["a", "177", "b", r"\n"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("for i in 1 2 3; do\n  echo $i\ndone", "1\n2\n3"),
        ("# list files\necho a", "a"),
        ("# only a comment", "(no output)"),
        ("echo one\necho two", "one\ntwo"),
        ("echo trailing \\", "trailing \\"),
        ("echo a # no newline after this", "a"),
        ("cat <<'EOF' > t\na $HOME b\nEOF\ncat t", "a $HOME b"),
        ("cat <<EOF\n<p>x</p>\nEOF", "<p>x</p>"),
        ("cat <<EOF\nx\nEOF", "x"),
        ("cat <<-EOF\n\tx\n\tEOF", "x"),
        ("(cat <<EOF\nx\nEOF\n)", "x"),
        ("cat > f <<EOF\na\nEOF\nod -An -c f", r"   a  \n"),
        ("cat <<'E'\n\n  two\n\ndone\nfi\nE", "\n  two\n\ndone\nfi"),
        ("printf '%s' 'a != b'", "a != b"),
        ('echo "!!" !x', "!! !x"),
        ("awk 'BEGIN { if (!(1 != 1)) print \"!\" }'", "!"),
        ("printf a", "a"),
        ("printf 'a\\n'", "a"),
        ("printf 'a\\n\\n'", "a\n"),
        ("printf '\\n'", "(no output)"),
        ("echo é 日本 🎉 \u200b.", "é 日本 🎉 \u200b."),
        ("echo \ud83c\udf89 \ud800", "🎉 \ufffd"),
        ("echo $'a\\'b' \"c'd\" 'e\"f' g\\'h", "a'b c'd e\"f g'h"),
        ("echo `echo \\`echo deep\\``", "deep"),
        ("f() {\n  echo in f\n}\nf", "in f"),
        ("case x in\n  x) echo matched ;;\nesac", "matched"),
        ("echo a #\r\necho b", "a\nb"),
        ("if true\nthen echo yes\nfi; echo \"}\" ')' ';'", "yes\n} ) ;"),
    ],
)
def test_the_command_is_run_as_it_is(bash_kept, command: str, shown: str) -> None:
    [logged] = bash_kept(command).texts
    assert (logged or "(no output)") == shown


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("echo 'x", "unexpected EOF while looking for matching `''"),
        ('echo "x', "unexpected EOF while looking for matching `\"'"),
        ("echo `date", "unexpected EOF while looking for matching ``'"),
        ("cat <<'EOF\nx\nEOF", "unexpected EOF while looking for matching `''"),
        ("if true; then", "syntax error: unexpected end of file"),
        ("(", "syntax error: unexpected end of file"),
        (")", "syntax error near unexpected token `)'"),
        ("echo a;;", "syntax error near unexpected token `;;'"),
        ("}", "syntax error near unexpected token `}'"),
        ("fi", "syntax error near unexpected token `fi'"),
    ],
)
def test_unfinished_syntax_is_an_error_at_once(bash_kept, command: str, complaint: str) -> None:
    told = bash_kept(command)
    assert told.texts == [f"bash: {complaint}\n[exit code: 2]"]
    assert told.took_s[0] < SOON_S


def test_an_unfinished_substitution_is_an_error_at_once(bash_kept) -> None:
    [words] = bash_kept("echo $(date").texts
    assert words.startswith("bash: unexpected EOF while looking for matching `)'\n[exit code: ")


def test_what_stands_before_a_syntax_error_on_another_line_has_run(bash_kept) -> None:
    [words] = bash_kept("echo a\necho b)\necho c").texts
    assert words == "a\nbash: syntax error near unexpected token `)'\n[exit code: 2]"


def test_an_unterminated_heredoc_ends_with_the_command(bash_kept) -> None:
    told = bash_kept("cat <<EOF\nx", "echo $?")
    warning, x = told.texts[0].split("\n")
    assert warning.startswith("bash: warning: here-document at line ")
    assert warning.endswith(" delimited by end-of-file (wanted `EOF')")
    assert (x, told.texts[1]) == ("x", "0")
    assert told.took_s[0] < SOON_S


def test_lines_are_counted_one_by_one(bash_kept) -> None:
    """Not from 1, because two lines of ours come before; no message of an interactive bash shows it."""
    first, second = bash_kept("echo $LINENO\n\necho $LINENO").texts[0].split("\n")
    assert int(second) - int(first) == 2


@pytest.mark.parametrize("size", [5_000, 70_000, 300_000, 1_000_000])
def test_a_long_single_line_is_run_whole(bash_kept, size: int) -> None:
    assert bash_kept(f"printf %s '{'x' * size}' | wc -c").texts == [str(size)]


@pytest.mark.parametrize("n_lines", [50, 120, 2000])
def test_a_heredoc_of_many_lines_is_written_whole_and_soon(bash_kept, tmp_path: Path, n_lines: int) -> None:
    body = "".join(f"{n:079}\n" for n in range(n_lines))
    told = bash_kept(heredoc(body) + "\nwc -c < f")
    assert told.texts == [str(80 * n_lines)]
    assert told.took_s[0] < 5  # 0.02 s on an idle machine; line by line 2000 of them take longer
    assert (tmp_path / "place" / "f").read_text() == body


def test_a_heredoc_of_commands_is_text(bash_kept, tmp_path: Path) -> None:
    body = "\n\n   leading\nif\n  then\nEOF\nEND OF TEX\ntrailing  \n`date` $(date) ${x} \\\n!!\n$$\n"
    assert bash_kept(heredoc(body)).texts == [""]
    assert (tmp_path / "place" / "f").read_text() == body


@pytest.mark.parametrize("command", ["", " ", " \n\t", "echo a\0b", "\0"])
def test_a_command_that_bash_cannot_be_given_is_refused(bash_kept, command: str) -> None:
    told = bash_kept(command)
    [words] = told.texts
    assert told.failed == [True]
    assert words.startswith("Error: the command ")
    assert ("NUL" in words) == ("\0" in command)


def test_nothing_gets_into_the_history_nor_out_of_it(bash_bench, bash_kept, tmp_path: Path) -> None:
    history = bash_bench().home / ".bash_history"
    history.write_text("before\n")
    try:
        told = bash_kept("echo secret", "history; fc -l; echo $HISTFILE", "history -a; history -w; history")
        assert told.texts == ["secret", "/dev/null", ""]
        bash_bench().run("echo secret", "exit", "echo secret", folder=tmp_path)
        assert history.read_text() == "before\n"
    finally:
        history.unlink()


def test_a_history_that_the_model_turns_on_shows_nothing_of_ours(bash_texts) -> None:
    *_, words = bash_texts("set -o history", "echo a", "history")
    assert "builtin" not in words

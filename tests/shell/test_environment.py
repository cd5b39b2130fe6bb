"""The environment of tools: no secret of the daemon, nothing that waits for a person."""

from __future__ import annotations

from cordisd.shell.environment import tool_environment


def test_secrets_and_settings_of_the_daemon_are_left_out():
    inherited = {
        "DEEPSEEK_BASE_URL": "x",
        "OPENAI_API_KEY": "x",
        "DSH_HOME": "x",
        "CORDISD_X": "x",
        "MY_KEY": "x",
        "MONKEY": "kept",
        "GITHUB_TOKEN": "kept",
        "PROMPT_COMMAND": "x",
    }
    made = tool_environment(inherited, secret_names={"MY_KEY"})
    assert inherited.keys() & made.keys() == {"MONKEY", "GITHUB_TOKEN"}


def test_named_variables_are_passed_and_added():
    made = tool_environment(
        {"OPENAI_API_KEY": "x"}, pass_names=["OPENAI_API_KEY"], extra={"PAGER": "less", "A": "1"}
    )
    assert made["OPENAI_API_KEY"] == "x" and made["PAGER"] == "less" and made["A"] == "1"


def test_the_locale_becomes_utf_8():
    assert tool_environment({"LC_ALL": "C"}).get("LC_ALL") is None
    assert tool_environment({"LC_ALL": "C"})["LANG"] == "C.UTF-8"
    assert tool_environment({"LANG": "de_DE.UTF-8"})["LANG"] == "de_DE.UTF-8"

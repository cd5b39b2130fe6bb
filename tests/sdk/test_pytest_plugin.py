"""The pytest plugin, as a project that uses it sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cordisd.mock import Answer, MockModelThread, Received, call, text
from cordisd.replay.recording import read_recording
from recorded_sessions import record

pytest_plugins = ["pytester"]

CONFTEST = """
import os
import pytest

@pytest.fixture
def cordisd_options():
    return {"composition": "minimal", "base_url": os.environ.get("MODEL_URL", "http://no-model.invalid")}
"""
MODULE = """
import os
import pytest

DRIFTS = "DRIFTS" in os.environ

@pytest.mark.parametrize("name", ["a b"])
def test_lists(cordisd_session, cordisd_workspace, name):
    (cordisd_workspace / (name + "2" * DRIFTS)).touch()
    assert cordisd_session.run("ls").final_response == "listed"

class TestOther:
    @pytest.mark.cordisd_recording("elsewhere/chosen.jsonl", masks={"time": r"\\d{18,}"})
    def test_chooses(self, cordisd_session):
        cordisd_session.run("date")
        if not DRIFTS:
            cordisd_session.run("bye")

def test_fails_by_itself(cordisd_session):
    assert cordisd_session.run("bye").final_response == "never said"

def test_asks_nothing(cordisd_session):
    pass

def test_without_an_agent():
    pass

@pytest.mark.cordisd_recording(mask={})
def test_misspells(cordisd_session):
    pass
"""


def answer(request: Received) -> Answer:
    """A model that runs what it is told, then says that it did."""
    said = [message for message in request.json["messages"] if message["role"] != "system"]
    last = said[-1]
    if last["role"] == "tool":
        return text("listed")
    if last["content"] == "bye":
        return text("bye")
    command = "date +%s%N" if last["content"] == "date" else "ls"
    return call("c1", "bash", {"command": command})


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with the test module above."""
    for name in ("DSH_SYSTEM_PROMPT", "PYTEST_ADDOPTS", "DRIFTS", "MODEL_URL"):
        monkeypatch.delenv(name, raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_it=MODULE)
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "cordisd_sdk.pytest", "-p", "no:cacheprovider", "-rA", *options)


def test_a_project_records_replays_and_is_told_what_drifts(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MockModelThread(answer) as mock:
        monkeypatch.setenv("MODEL_URL", mock.url)
        recorded = run(project, "--cordisd-record")
    monkeypatch.delenv("MODEL_URL")
    recorded.assert_outcomes(passed=3, failed=2, errors=1)
    paths = [path.relative_to(project.path) for path in project.path.rglob("*.jsonl")]
    found = sorted(str(path) for path in paths if not path.parts[0].startswith("runpytest"))
    assert found == [
        "elsewhere/chosen.jsonl",
        "recordings/test_it/test_lists-a-b.jsonl",
    ]
    recorded.stdout.fnmatch_lines([f"recorded */{name}" for name in (found[1], found[0])])
    recorded.stdout.fnmatch_lines(
        [
            "*unexpected keyword argument 'mask'*",
            "nothing was recorded: the test has not prompted the session",
        ]
    )
    chosen = read_recording(project.path / "elsewhere" / "chosen.jsonl")
    assert (chosen.session_id, chosen.header["composition"]) == ("chosen", "minimal")
    assert chosen.exchanges[0].results[0].text == "{{time}}"

    chosen_tests = ("-k", "lists or chooses or without")
    run(project, *chosen_tests).assert_outcomes(passed=3)
    monkeypatch.setenv("DRIFTS", "1")
    drifted = run(project, *chosen_tests)
    drifted.assert_outcomes(passed=1, failed=2)
    drifted.stdout.fnmatch_lines(
        [
            "the result of call c1 (bash) differs",
            "--- recorded",
            "-'a b'",
            "+'a b2'",
            "recording: */recordings/test_it/test_lists-a-b.jsonl",
            "in this test: pytest --cordisd-refresh 'test_it.py::test_lists[[]a b[]]' (or --cordisd-record)",
        ]
    )
    drifted.stdout.fnmatch_lines(["the test has made 2 of 3 recorded model requests"])
    for noise in ("*assert cordisd_session*", "*During handling*"):
        drifted.stdout.no_fnmatch_line(noise)
    drifted.stdout.fnmatch_lines(["FAILED test_it.py::test_lists[[]a b[]] - Failed: the result of call c1 *"])


def test_a_recording_is_played_with_its_own_prompts(project: pytest.Pytester) -> None:
    record(project.path / "recs", "one")
    project.makepyfile(
        test_it="""
        def test_plays(cordisd_replay):
            cordisd_replay("recs/one.jsonl")

        def test_has_none(cordisd_session):
            cordisd_session.run("hello")

        def test_is_another(cordisd_replay, monkeypatch):
            monkeypatch.setenv("DSH_SYSTEM_PROMPT", "Drifted.")
            cordisd_replay("recs", "--tools", "recorded")
        """
    )
    played = run(project)
    played.assert_outcomes(passed=1, failed=1, errors=1)
    played.stdout.fnmatch_lines(
        [
            "there is no recording */recordings/test_it/test_has_none.jsonl",
            "record it: pytest --cordisd-record 'test_it.py::test_has_none'",
        ]
    )
    played.stdout.fnmatch_lines(["FAILED */recs/one.jsonl", "*messages[[]0[]] (system).content differs"])
    played.stdout.no_fnmatch_line("*During handling*")
    refreshed = run(project, "--cordisd-refresh", "-k", "test_plays")
    refreshed.assert_outcomes(passed=1)
    refreshed.stdout.fnmatch_lines(["unchanged */recs/one.jsonl (4 requests, *"])


def test_a_daemon_that_does_not_start_is_told_without_a_traceback(project: pytest.Pytester) -> None:
    (project.path / "broken.yml").write_text("- {id: x, name: bassh}\n")
    project.makeconftest(CONFTEST.replace('"minimal"', '"broken.yml"'))
    broken = run(project, "--cordisd-record", "-k", "asks_nothing")
    broken.assert_outcomes(errors=1)
    broken.stdout.fnmatch_lines(["cordisd: *broken.yml:1*bassh*"])
    broken.stdout.fnmatch_lines(["ERROR test_it.py::test_asks_nothing - Failed: cordisd: *"])
    broken.stdout.no_fnmatch_line("*During handling*")


def test_record_and_refresh_exclude_each_other(project: pytest.Pytester) -> None:
    refused = run(project, "--cordisd-record", "--cordisd-refresh")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*--cordisd-record and --cordisd-refresh exclude each other"])


def test_a_run_that_does_not_use_the_plugin_loads_nothing_else_for_it() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import cordisd_sdk.pytest; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cordisd_sdk", "cordisd_sdk.pytest"]


def test_the_names_of_the_sdk_come_from_its_modules(tmp_path: Path) -> None:
    import cordisd_sdk

    assert {name: getattr(cordisd_sdk, name).__module__ for name in cordisd_sdk.__all__}
    assert set(cordisd_sdk.__all__) <= set(dir(cordisd_sdk))
    with pytest.raises(AttributeError, match="has no attribute 'Clientt'"):
        _ = cordisd_sdk.Clientt

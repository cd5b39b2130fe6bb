"""pytest plugin: tests of an agent that run without a model, against recordings of one.

    def test_the_bug_is_fixed(cordisd_session, cordisd_workspace):
        (cordisd_workspace / "sums.py").write_text("def add(a, b): return a - b")
        result = cordisd_session.run("Fix sums.py.")
        assert result.stop_reason == "completed"

`pytest --cordisd-record` asks the model of `cordisd_options`, and writes a recording beside the test module:
`recordings/MODULE/TEST.jsonl`. Without the option a real daemon plays it strictly, with real tools, and the
test fails with a diff where a prompt, a tool or a result is another. `--cordisd-refresh` writes what is asked
now into the recording and keeps the model's answers.

`cordisd_replay(path)` plays a recording, or a folder of them, with the prompts that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from cordisd_sdk.launch import DaemonOptions
    from cordisd_sdk.recorded import Choices, Mode, RecordedRun
    from cordisd_sdk.sync import Session

MARKER: Final = "cordisd_recording"
WRITTEN: Final = "cordisd_recording"
"""Property of a test's report: the recording that it has written."""

_run_key: pytest.StashKey[RecordedRun] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("cordisd", "recorded agents (cordisd)")
    group.addoption(
        "--cordisd-record",
        action="store_true",
        help="ask the model, and write the recordings of the selected tests that pass",
    )
    group.addoption(
        "--cordisd-refresh",
        action="store_true",
        help="write what is asked now into the recordings of the selected tests; the answers stay",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker.

    Raises:
        UsageError: options that exclude each other.
    """
    config.addinivalue_line(
        "markers",
        f"{MARKER}(path=None, *, masks={{}}, tools='live', on_divergence='fail'): the recording of this "
        "test; masks are regular expressions by name, for text that is another each time",
    )
    if config.option.cordisd_record and config.option.cordisd_refresh:
        raise pytest.UsageError("--cordisd-record and --cordisd-refresh exclude each other")


@pytest.fixture
def cordisd_options() -> DaemonOptions:
    """`cordisd_sdk.DaemonOptions` of the daemon; override it to choose composition, model or address."""
    return {}


@pytest.fixture
def cordisd_workspace(tmp_path: Path) -> Path:
    """The folder in which the tools of `cordisd_session` work, empty at first."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def cordisd_session(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    cordisd_workspace: Path,
    cordisd_options: DaemonOptions,
) -> Iterator[Session]:
    """A new session, in a daemon of its own, that is played from the test's recording, or recorded."""
    from cordisd_sdk.errors import SdkError
    from cordisd_sdk.recorded import RecordedRun
    from cordisd_sdk.sync import Client

    item: pytest.Item = request.node
    mode, choices = _mode(item.config), _choices(item)
    if mode != "record" and not choices.path.is_file():
        pytest.fail(
            f"there is no recording {choices.path}\nrecord it: pytest --cordisd-record {item.nodeid!r}",
            pytrace=False,
        )
    run = RecordedRun(mode, choices, item.nodeid, tmp_path / "cordisd")
    client = Client(**run.daemon_options({"cwd": cordisd_workspace, **cordisd_options}))
    try:
        client.start()
    except SdkError as error:
        refused = client.exit_code == 2  # and has said why
        raise pytest.fail.Exception(client.stderr_tail if refused else str(error), pytrace=False) from None
    run.client = client
    item.stash[_run_key] = run
    with client:
        yield client.session(run.session_id)
    del item.stash[_run_key]


@pytest.fixture
def cordisd_replay(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`cordisd_replay(path, *options)`: what `cordisd replay` does; fails with what differs.

    A relative path begins at the folder of the test module.
    """
    item: pytest.Item = request.node

    def play(path: str | Path, *options: str) -> None:
        from cordisd_sdk.recorded import replay

        refreshes = _mode(item.config) == "refresh"
        done = replay(item.path.parent / path, *options, *(["--refresh"] if refreshes else []))
        if done.returncode:
            pytest.fail((done.stdout + done.stderr).rstrip("\n"), pytrace=False)
        if refreshes:
            item.user_properties.append((WRITTEN, done.stdout.rstrip("\n")))

    return play


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Have what the recording holds against a test be its failure, in the place of what followed from it."""
    try:
        result = yield
    except (KeyboardInterrupt, pytest.exit.Exception):
        raise
    except BaseException:
        if (run := item.stash.get(_run_key, None)) and (problem := run.end(passed=False)):
            raise pytest.fail.Exception(problem, pytrace=False) from None
        raise
    if run := item.stash.get(_run_key, None):
        if problem := run.end(passed=True):
            pytest.fail(problem, pytrace=False)
        if run.written:
            item.user_properties.append((WRITTEN, run.written))
    return result


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the recordings that were written."""
    properties = [pair for report in terminalreporter.getreports("passed") for pair in report.user_properties]
    written = [text for name, text in properties if name == WRITTEN]
    if written:
        terminalreporter.section("cordisd recordings")
        for text in written:
            terminalreporter.write_line(text)


def _mode(config: pytest.Config) -> Mode:
    if config.option.cordisd_record:
        return "record"
    return "refresh" if config.option.cordisd_refresh else "replay"


def _choices(item: pytest.Item) -> Choices:
    """What the closest marker says of the test's recording."""
    from cordisd_sdk.recorded import default_path

    marker = item.get_closest_marker(MARKER)
    try:
        choices = _of_marker() if marker is None else _of_marker(*marker.args, **marker.kwargs)
    except TypeError as error:
        problem = str(error).replace("_of_marker()", "the marker")
        raise pytest.fail.Exception(f"@pytest.mark.{MARKER}: {problem}", pytrace=False) from None
    path = choices.path if choices.path.name else default_path(item.path.stem, item.nodeid)
    return choices._replace(path=item.path.parent / path)


def _of_marker(
    path: str | Path = "",
    *,
    masks: dict[str, str] | None = None,
    tools: str = "live",
    on_divergence: str = "fail",
) -> Choices:
    from cordisd_sdk.recorded import Choices

    return Choices(Path(path), dict(masks or {}), tools, on_divergence)

"""Options of the test tiers, and the figures that load tests report."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

_FIGURE = "figure"


class _Figures:
    """Collects the figures from the reports of tests, wherever they ran."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            name = report.location[2]
            self.lines += [f"{name}: {line}" for kind, line in report.user_properties if kind == _FIGURE]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("load", "load tier (pytest -m load)")
    group.addoption("--long", action="store_true", help="run the long forms of the load tests")
    group.addoption("--seed", type=int, help="of the load tests; without it a new one, which is printed")
    golden = parser.getgroup("golden", "golden files")
    golden.addoption("--update-golden", action="store_true", help="write what is sent now into tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Figures(), "figures")
    if config.option.seed is None:
        config.option.seed = random.randrange(1 << 32)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.pluginmanager.get_plugin("figures")
    if figures and figures.lines:
        terminalreporter.section(f"load figures, --seed {config.option.seed}")
        for line in figures.lines:
            terminalreporter.write_line(line)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Seed of everything random in a load test; the same for all tests of a run."""
    return int(request.config.option.seed)


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Whether the long form is asked for."""
    return bool(request.config.option.long)


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`report(line)` has the line printed at the end of the run, whether or not the test passes."""

    def add(line: str) -> None:
        request.node.user_properties.append((_FIGURE, line))

    return add

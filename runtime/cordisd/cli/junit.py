"""Verdicts as a JUnit report, which GitLab, Jenkins and others read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from cordisd.cli.verdict import Verdict

SUITE: Final = "cordisd replay"
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even escaped."""


def write(path: Path, verdicts: Sequence[Verdict]) -> None:
    """Write the report: a test case for each recording, with the text of its failure.

    Raises:
        OSError: it cannot be written.
    """
    counts = {
        "tests": str(len(verdicts)),
        "failures": str(sum(one.outcome == "failed" for one in verdicts)),
        "errors": str(sum(one.outcome == "error" for one in verdicts)),
        "skipped": "0",
        "time": _seconds(sum(one.elapsed_s for one in verdicts)),
    }
    suites = ElementTree.Element("testsuites", {"name": SUITE, **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": SUITE, **counts})
    for verdict in verdicts:
        suite.append(_case(verdict))
    ElementTree.indent(suites)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suites).write(path, encoding="utf-8", xml_declaration=True)


def _case(verdict: Verdict) -> ElementTree.Element:
    file = Path(verdict.name)
    folders = [part for part in file.parent.parts if part not in (file.anchor, "..")]
    names = {"classname": _legible(".".join(folders) or SUITE), "name": _legible(file.stem)}
    attributes = {**names, "file": _legible(verdict.name), "time": _seconds(verdict.elapsed_s)}
    case = ElementTree.Element("testcase", attributes)
    if verdict.outcome != "ok":
        kind = "failure" if verdict.outcome == "failed" else "error"
        message = _legible(verdict.message)
        told = {"message": message.split("\n", 1)[0], "type": kind}
        ElementTree.SubElement(case, kind, told).text = message
    if verdict.notes:
        ElementTree.SubElement(case, "system-out").text = _legible("\n".join(verdict.notes))
    return case


def _legible(text: str) -> str:
    return _NOT_XML.sub("�", text)


def _seconds(duration_s: float) -> str:
    return f"{duration_s:.3f}"

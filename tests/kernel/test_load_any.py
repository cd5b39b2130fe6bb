from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cordisd.errors import CompositionError
from cordisd.kernel.load import load
from cordisd.kernel.rows import FIELDS
from kernel.conftest import ENTRIES

_SCALARS = [
    *(f"{ENTRIES}:{name}" for name in ("Sample", "Sample", "LenientSample", "Required", "Missing")),
    *(
        "a",
        "b",
        "cordis:group",
        "cordis:include",
        "true",
        "null",
        "5",
        "on",
        "c.yml",
        "x.yml",
        "dsh-terminal",
        "nowhere",
    ),
    *("!!js process.env.A", "!!js process.env.B", "!!js '1'", "!!js (", "!foo a", "!!int a", "*r", "<<"),
]
_KEYS = [
    *FIELDS,
    "insert",
    "patches",
    "path",
    "text",
    "timeoutMs",
    "models",
    "extra",
    "limit",
    "mode",
    "oops",
]


def _mapping(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.builds("{}: {}".format, st.sampled_from(_KEYS), values), max_size=5)
    anchor = st.sampled_from(["", "", "", "&r "])
    return st.builds(lambda pairs, anchor: f"{anchor}{{{', '.join(pairs)}}}", pairs, anchor)


def _sequence(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(values, max_size=3).map(lambda items: f"[{', '.join(items)}]")


_VALUES = st.recursive(
    st.sampled_from(_SCALARS), lambda inner: st.one_of(_mapping(inner), _sequence(inner)), max_leaves=12
)
_DOCUMENTS = st.lists(_mapping(_VALUES), max_size=4).map(lambda rows: "".join(f"- {row}\n" for row in rows))


@settings(max_examples=100, deadline=None)
@given(_DOCUMENTS, _DOCUMENTS, _DOCUMENTS)
def test_any_three_documents_load_or_are_problems_with_a_place(
    main: str, included: str, patches: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("c.yml", main), ("x.yml", included), ("p.yml", patches)):
            Path(folder, name).write_text(text, encoding="utf-8")
        try:
            load(Path(folder, "c.yml"), patches=[Path(folder, "p.yml")], env={"A": "1"})
        except CompositionError as error:
            assert error.problems
            assert all(problem.where.startswith(folder) and problem.message for problem in error.problems)

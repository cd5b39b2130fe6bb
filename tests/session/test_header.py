from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordisd.errors import SessionNotFoundError
from cordisd.session.header import SessionHeader
from cordisd.session.store import SessionStore
from log_samples import finished_session, header

FULL = SessionHeader("s", 12, "/w", "p", 4, "fork", 1, "minimal", {"digest": "d"})
BARE = {"type": "session", "version": 0, "id": "s", "createdAt": 12, "delegationDepth": 0}


def test_a_header_has_the_keys_of_the_format_in_its_order_and_ours_last() -> None:
    assert list(FULL.as_dict().items()) == [
        ("type", "session"),
        ("version", 0),
        ("id", "s"),
        ("createdAt", 12),
        ("cwd", "/w"),
        ("parentSession", "p"),
        ("seedLength", 4),
        ("origin", "fork"),
        ("delegationDepth", 1),
        ("agentPreset", "minimal"),
        ("cordisd", {"digest": "d"}),
    ]


def test_absent_fields_are_left_out() -> None:
    assert SessionHeader("s", 12).as_dict() == BARE


def test_a_header_comes_back_as_it_was() -> None:
    assert SessionHeader.from_dict(FULL.as_dict()) == FULL
    assert SessionHeader.from_dict(BARE) == SessionHeader("s", 12)


def test_a_key_of_another_program_is_ignored() -> None:
    assert SessionHeader.from_dict({**BARE, "elsewhere": 1}) == SessionHeader("s", 12)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"type": "turn/start"}, "not a header"),
        ({"version": 3}, "version"),
        ({"version": True}, "version"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"createdAt": -1}, "createdAt"),
        ({"createdAt": 1.5}, "createdAt"),
        ({"createdAt": True}, "createdAt"),
        ({"cwd": None}, "cwd"),
        ({"seedLength": "4"}, "seedLength"),
        ({"delegationDepth": None}, "delegationDepth"),
        ({"cordisd": []}, "cordisd"),
        ({"sandboxMode": "read-only"}, "sandboxMode is retired"),
        ({"approvalPolicy": "never"}, "approvalPolicy is retired"),
    ],
)
def test_a_wrong_field_is_refused_by_name(change: dict[str, Any], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        SessionHeader.from_dict({**BARE, **change})


def test_the_delegation_depth_is_required() -> None:
    with pytest.raises(ValueError, match="delegationDepth"):
        SessionHeader.from_dict({key: value for key, value in BARE.items() if key != "delegationDepth"})


def test_a_store_tells_the_header_of_a_log_and_leaves_the_log_alone(tmp_path: Path) -> None:
    store = SessionStore(tmp_path)
    file = store.create(header(cordisd={"digest": "d"}))
    file.append(finished_session()[:3])
    file.close()
    cut = file.path.read_bytes()[:-5]
    file.path.write_bytes(cut)
    assert store.header("s1") == header(cordisd={"digest": "d"})
    assert file.path.read_bytes() == cut
    file.path.write_bytes(cut[:20])
    assert store.header("s1") is None
    with pytest.raises(SessionNotFoundError):
        store.header("s2")

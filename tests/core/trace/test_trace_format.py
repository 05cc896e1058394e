"""The published format: the pages are what the code says, every recorded line keeps to them, and version 1 stays readable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

import jsonschema
import pytest

from etude.core.trace.change import TextChange
from etude.core.trace.document import PAGE, SCHEMA, schema_text, update_tables
from etude.core.trace.entry import FORMAT_VERSION, EntryType, SessionHeader
from etude.core.trace.message import Message
from etude.core.trace.migrations import MIGRATIONS, SessionError, steps_from
from etude.core.trace.reader import read_rows, read_session
from etude.core.trace.schema import check_file, json_schema, objections
from etude.core.trace.session import Recorder
from etude.core.trace.tail import SessionTail
from etude.core.trace.writer import SessionWriter

DOCS = Path(__file__).parents[3] / "docs"
V1 = Path(__file__).parent / "data" / "v1.jsonl"

# One entry of each type that the agent, a person or a grader adds, in addition to those of `fill`.
LATER: list[tuple[EntryType, dict[str, Any]]] = [
    ("message", Message("user", "use the other file", delivery="steer").to_json()),
    ("message", Message("user", "", delivery="stop").to_json()),
    ("effort", {"effort": "high"}),
    ("approval", {"call_id": "c1", "name": "shell", "decision": "denied", "by": "user", "reason": "no"}),
    ("edit", TextChange("a.py", "x\n", "y\nz\n").to_entry("c1")),
    ("undo", {"edits": [12], "paths": ["a.py"], "by": "user"}),
    ("fault", {"kind": "PolicyError", "message": "503", "infra": True}),
    ("verdict", {"score": 1.0, "reason": "", "components": {"outcome": 1.0}}),
    ("foreign", {"foreign": {"type": "progress"}}),
]
LINK = {"vcs": "git", "repository": "/r", "commit": "a" * 40, "record": "u", "lines": 3, "paths": ["a.py"]}


@pytest.fixture
def recorded(fill: Callable[[Recorder], Recorder], header: SessionHeader, tmp_path: Path) -> Path:
    writer = SessionWriter(tmp_path / "s.jsonl", header)
    fill(writer)
    for kind, data in [*LATER, ("link", LINK)]:
        writer.append(kind, data)  # pyright: ignore[reportArgumentType]
    writer.close()
    return tmp_path / "s.jsonl"


def test_the_published_pages_are_what_the_code_says() -> None:
    page = (DOCS / PAGE).read_text()
    assert page == update_tables(page), "run: python -m etude.core.trace.document"
    assert (DOCS / SCHEMA).read_text() == schema_text(), "run: python -m etude.core.trace.document"
    assert f"version {FORMAT_VERSION}" in page.splitlines()[0]


def test_every_line_that_is_recorded_keeps_to_the_published_schema(recorded: Path) -> None:
    validator = jsonschema.Draft202012Validator(json.loads((DOCS / SCHEMA).read_text()))
    rows = read_rows(recorded)
    assert {row["type"] for row in rows} >= {kind for kind, _ in LATER} | {"session", "fork", "summary", "link"}
    for row in rows:
        assert [e.message for e in validator.iter_errors(row)] == [], row
    assert check_file(recorded) == []


@pytest.mark.parametrize(
    ("change", "objection"),
    [
        ({"type": "mesage"}, "none of session, message"),
        ({"role": "robot"}, "message.role"),
        ({"text": 3}, "message.text"),
        ({"colour": "red"}, "message.colour"),
        ({"delivery": "later"}, "message.delivery"),
        ({"id": -1}, "message.id"),
    ],
)
def test_a_line_that_breaks_the_format_is_named_by_schema_and_check(change: dict[str, Any], objection: str) -> None:
    row = {"type": "message", "id": 0, "parent": None, "at_s": 0.5, "role": "user", "text": "hi"}
    assert objections(row) == []
    found = objections(row | change)
    assert len(found) == 1 and objection in found[0]
    assert not jsonschema.Draft202012Validator(json_schema()).is_valid(row | change)


def test_a_version_1_session_is_read_whole() -> None:
    session = read_session(V1)
    assert read_rows(V1)[0]["version"] == 1 and session.header.version == FORMAT_VERSION == 2
    assert session.header.effort == "medium"
    assert session.header.harness_facts == {"settings": session.header.settings}
    assert [entry.type for entry in session.entries] == [
        *("message", "completion", "tool_result", "message", "completion", "summary", "completion", "counters", "end")
    ]
    segments = session.segments()
    assert [s.ids.tolist() for s in segments] == [
        [4, 50, 2, 5, 60, 2, 6, 70, 2, 4, 71, 2, 5, 80, 2],
        [4, 50, 2, 4, 8, 90, 2, 5, 2],
    ]
    assert segments[0].routes is not None and segments[0].versions.max() == 4
    assert check_file(V1) == [], "migrated, it keeps to the present format"


def test_a_version_1_session_is_followed_like_any_other() -> None:
    tail = SessionTail(V1)
    entries = tail.read()
    assert tail.header == read_session(V1).header
    assert [(e.id, e.type, e.data) for e in entries] == [(e.id, e.type, e.data) for e in read_session(V1).entries]


def test_every_older_version_has_a_way_to_the_present_one() -> None:
    assert sorted(MIGRATIONS) == list(range(1, FORMAT_VERSION))
    for version in (None, True, "2", FORMAT_VERSION + 1):
        with pytest.raises(SessionError, match="reads up to"):
            steps_from(version)
    with pytest.raises(SessionError, match="no migration from 0"):
        steps_from(0)


def test_a_header_with_a_foreign_key_is_refused(tmp_path: Path) -> None:
    row = {**read_rows(V1)[0], "version": 2, "mood": "good"}
    (tmp_path / "s.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(SessionError, match="mood"):
        read_session(tmp_path / "s.jsonl")
    header = json.dumps({**read_rows(V1)[0], "version": 2})
    (tmp_path / "s.jsonl").write_text(f'{header}\n{{"type":"end"}}\n')
    with pytest.raises(SessionError, match=r"s\.jsonl:2 has no id, parent, at_s"):
        read_session(tmp_path / "s.jsonl")
    (tmp_path / "s.jsonl").write_text("[1]\n")
    with pytest.raises(SessionError, match="no object"):
        read_session(tmp_path / "s.jsonl")


def test_an_entry_whose_parent_has_no_tokens_is_refused_by_line(recorded: Path) -> None:
    lines = recorded.read_text().splitlines()
    row = json.loads(lines[2])
    assert row["parent"] == 0 and row["tokens"] > 0
    recorded.write_text("\n".join([*lines[:2], json.dumps({**row, "parent": 7}), *lines[3:]]) + "\n")
    with pytest.raises(SessionError, match=r"s\.jsonl:3: its parent 7 is no entry with tokens"):
        read_session(recorded)

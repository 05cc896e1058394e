"""Signals: off until asked for, measured once, without secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etude.agent.git_links.signals import MOMENTS_S, SignalStore, follow_up
from etude.core.trace.entry import SessionHeader
from etude.core.trace.writer import SessionWriter

DAY_S = 86400.0


def of(store: SignalStore, kind: str) -> list[dict[str, Any]]:
    return [row for row in store.rows() if row["kind"] == kind]


def test_nothing_is_collected_until_it_is_switched_on(lab: Any) -> None:
    lab.session("s", ("a.py", "agent_line = 1\n"))
    store = SignalStore(lab.home)
    assert not store.on and store.collect(1e9) == [] and not store.file.exists()
    store.add({"session_id": "s", "kind": "kept", "n": "x"})
    assert not (lab.home / "signals").exists()
    store.turn(True)
    assert store.on and len(store.collect(1e9)) > 0
    store.turn(False)
    assert not store.on and store.collect(2e9) == [] and len(store.rows()) > 0, (
        "what was collected stays until forgotten"
    )


def test_lines_kept_are_measured_once_at_each_moment(lab: Any) -> None:
    lab.session("s", ("a.py", "one_line = 1\ntwo_lines = 2\n"), ("b.py", "three = 3333\nfour = 44444\n"), began=1000.0)
    store = SignalStore(lab.home)
    store.turn(True)
    store.collect(1000.0 + MOMENTS_S["5min"] - 1)
    assert of(store, "kept") == []
    lab.write("a.py", "a person was here\none_line = 1\n")
    store.collect(1000.0 + 600)
    (lab.root / "b.py").unlink()
    store.collect(1000.0 + 700)
    store.collect(1000.0 + 8 * DAY_S)
    store.collect(1000.0 + 9 * DAY_S)
    rows = [(r["moment"], r["lines"], r["kept"], r["share"], round(r["age_s"])) for r in of(store, "kept")]
    assert rows == [("5min", 4, 3, 0.75, 600), ("7days", 4, 1, 0.25, round(8 * DAY_S))]


def test_a_session_that_goes_on_or_whose_folder_is_gone_is_not_measured(lab: Any) -> None:
    writer = lab.session("live", ("a.py", "one_line = 1\n"), ended=False)
    store = SignalStore(lab.home)
    store.turn(True)
    assert store.collect(1e9) == []
    lab.end(writer)
    lab.root.rename(lab.root.with_name("away"))
    store.collect(1e9)
    assert of(store, "kept") == [] and len(of(store, "rejected")) == 1


def test_talk_is_measured_and_its_secrets_are_gone_before_anything_is_stored(lab: Any) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    writer = SessionWriter(lab.home / "s.jsonl", SessionHeader("s", created_unix_s=1.0), every="line")
    clock = iter([0.0, 1.5, 2.0, 4.0, 5.0, 9.0, 9.5])
    writer._start = 0.0
    for kind, data in [
        ("message", {"role": "user", "text": "do it"}),
        ("completion", {"finish": "stop"}),
        ("completion", {"finish": "stop"}),
        (
            "message",
            {"role": "user", "text": f"no, still fails with {key} for jane.doe@acme-corp.com", "delivery": "steer"},
        ),
        ("completion", {"finish": "stop"}),
        ("approval", {"call_id": "c", "name": "shell", "decision": "denied", "by": "user"}),
        ("undo", {"edits": [7, 8], "paths": ["a.py"], "by": "user"}),
    ]:
        at = next(clock)
        writer.append(kind, data)  # pyright: ignore[reportArgumentType]
        writer.session.entries[-1] = type(writer.session.entries[-1])(
            len(writer.session.entries) - 1, None, kind, at, data
        )  # pyright: ignore
    writer.close()
    from etude.core.trace.writer import write_session

    writer.session.entries.append(type(writer.session.entries[-1])(7, None, "end", 9.5, {"reason": "done"}))
    write_session(lab.home / "s.jsonl", writer.session)
    store = SignalStore(lab.home)
    store.turn(True)
    store.collect(1e9)
    [said] = of(store, "follow_up")
    assert said["class"] == "correction" and "<SECRET_GITHUB_TOKEN_1>" in said["text"] and "<EMAIL_1>" in said["text"]
    assert key not in store.file.read_text() and "jane.doe" not in store.file.read_text()
    assert [(r["first_s"], r["all_s"], r["turns"]) for r in of(store, "latency")] == [(1.5, 2.0, 2), (1.0, 1.0, 1)]
    assert [(r["edits_undone"], r["calls_denied"]) for r in of(store, "rejected")] == [(2, 1)]


def test_a_line_torn_by_a_kill_is_left_out(lab: Any) -> None:
    lab.session("s", ("a.py", "one_line = 1\n"))
    store = SignalStore(lab.home)
    store.turn(True)
    rows = store.collect(1e9)
    with open(store.file, "ab") as file:
        file.write(json.dumps(rows[0]).encode()[:-5])
    assert store.rows() == rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("please undo that", "rejection"),
        ("Revert it", "rejection"),
        ("No, I meant the other file", "correction"),
        ("it still fails on empty input", "correction"),
        ("you forgot the tests", "correction"),
        ("thanks, looks good", "approval"),
        ("why did you rename it?", "question"),
        ("How does it work", "question"),
        ("now add a test", "continuation"),
        ("go on", "continuation"),
        ("the parser in core.py", "other"),
        ("", "other"),
    ],
)
def test_the_class_of_a_message_is_decided_by_rules(text: str, expected: str) -> None:
    assert follow_up(text) == expected

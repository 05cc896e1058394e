"""Edits told by the workspace's journal become entries behind their call, one a file, and the counters' changes."""

from __future__ import annotations

from etude.harness.counters import Counters
from etude.harness.edit_log import EditLog
from etude.harness.todo import TodoList
from etude.trace.entry import Header
from etude.trace.message import ToolCall
from etude.trace.schema import objections
from etude.trace.session import Recorder


def test_an_edit_in_several_steps_is_one_entry_and_one_that_came_to_nothing_is_none() -> None:
    recorder, counters = Recorder(Header("s")), Counters(("edit",))
    log = EditLog(recorder, counters)
    log("a.py", b"one\n", b"two\n")
    log("a.py", b"two\n", b"two\nthree\n")
    log("b.py", None, b"x\n")
    log("b.py", b"x\n", None)
    log("picture", b"\xff\x00", b"\xfe\x00")
    changes = log.changes()
    counters.call(ToolCall("c1", "edit", {}), failed=False, facts={"edits": 1.0})
    assert log.answered("c1", changes) == [0]
    [entry] = recorder.session.entries
    assert (entry.data["path"], entry.data["kind"], entry.data["added"], entry.data["removed"]) == (
        "a.py",
        "change",
        2,
        1,
    )
    assert objections(entry.to_json()) == []
    counts = counters.report(TodoList(), 0)
    assert (counts["diff_files"], counts["diff_added"], counts["edits_without_read"]) == (1, 2, 1)


def test_calls_do_not_share_their_edits() -> None:
    recorder, counters = Recorder(Header("s")), Counters(("edit",))
    log = EditLog(recorder, counters)
    for number, (before, after) in enumerate([(None, b"x\n"), (b"x\n", b"y\n")]):
        log("a.py", before, after)
        changes = log.changes()
        counters.call(ToolCall(f"c{number}", "edit", {}), failed=False, facts={"edits": 1.0})
        log.answered(f"c{number}", changes)
    assert [(e.data["call_id"], e.data["kind"]) for e in recorder.session.entries] == [
        ("c0", "create"),
        ("c1", "change"),
    ]
    assert log.changes() == []

"""A session with a turn of each kind, as the command meets it."""

from __future__ import annotations

from pathlib import Path

from etude.core.trace.change import TextChange
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.writer import SessionWriter

FOREIGN = Path(__file__).parents[1] / "agent" / "importers" / "data"


def record(path: Path, *, said: str = "look", answer: str = "def tally", name: str = "s-1", ended: bool = True) -> Path:
    """A session with a turn of each kind."""
    header = SessionHeader(
        name,
        task_id="t-1",
        harness="a" * 16,
        harness_facts={"system": "Be brief."},
        policy="model",
        created_unix_s=1.7e9,
    )
    writer = SessionWriter(path, header, every="line")
    add = writer.append
    root = add("message", Message("user", "fix tally").to_json(), tokens=EntryTokens([0, 1], 2))
    turn = Message("assistant", said, thinking="hm", calls=(ToolCall("c0", "read", {"path": "core.py"}),))
    usage = {"input_tokens": 1200, "cached_tokens": 1000, "output_tokens": 30, "seconds": 0.25}
    data = {"message": turn.to_json(), "finish": "stop", "usage": usage}
    number = add("completion", data, parent=root, tokens=EntryTokens([1, 0], 0, [-0.5, -1.0], [2, 3]))
    add(
        "tool_result",
        {"call_id": "c0", "name": "read", "text": answer, "failed": False, "seconds": 0.125},
        parent=number,
    )
    add("tool_result", {"call_id": None, "name": "", "text": "malformed: stray", "failed": True}, parent=number)
    add("message", Message("user", "the other file", delivery="steer").to_json())
    add("edit", TextChange("core.py", "a\n", "b\nc\n").to_entry("c0"))
    add("summary", {"number": 1, "text": "half done", "state": ["todo tests"]})
    if ended:
        add("counters", {"counters": {"turns": 1.0, "calls": 0.0}})
        add("end", {"reason": "done", "message": "fixed", "seconds": {"all": 0.5}})
    writer.close()
    return path

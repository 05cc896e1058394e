"""Messages to an editor: pure functions of the entries of a session and the parts of a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import acp
import pytest
from acp.schema import EmbeddedResourceContentBlock
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.acp.server import UnusableBlock, text_of
from etude.agent.acp.updates import Updates, plan
from etude.agent.harness.presets.preset import preset
from etude.core.trace.entry import Entry
from etude.core.trace.message import Message, ToolCall

FOLDER = Path("/project")


def updates() -> Updates:
    return Updates(preset("search_replace"), FOLDER)


def completion(message: Message) -> Entry:
    return Entry(0, None, "completion", 0.0, {"message": message.to_json(), "finish": "stop"})


def said(result: list[Any]) -> str:
    return "".join(update.content.text for update in result if update.session_update == "agent_message_chunk")


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=8), st.integers(0, 8))
def test_however_a_turn_comes_in_pieces_its_text_is_reported_once(pieces: list[str], streamed: int) -> None:
    face = updates()
    result = [update for piece in pieces[:streamed] for update in face.delta("text", piece)]
    result += face.entry(completion(Message("assistant", "".join(pieces))))
    assert said(result) == "".join(pieces)


def test_a_turn_that_was_tried_again_is_reported_whole_and_the_next_is_not_mixed_up_with_it() -> None:
    face = updates()
    face.delta("text", "I thi")
    assert said(face.entry(completion(Message("assistant", "We think")))) == "We think"
    assert said(face.entry(completion(Message("assistant", "We go on")))) == "We go on"


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "title", "path"),
    [
        ("read_file", {"target_file": "a/b.py"}, "read", "read_file a/b.py", "/project/a/b.py"),
        ("run_terminal_cmd", {"command": "make test\nmake"}, "execute", "make test", None),
        ("grep", {"pattern": "x" * 300}, "search", "grep " + "x" * 114 + "…", None),
        ("mcp__shelf__add", {"a": 1}, "other", "mcp__shelf__add", None),
        ("no_such_tool", {"path": 5}, "other", "no_such_tool", None),
    ],
)
def test_a_call_is_identified_by_what_it_does(
    name: str, arguments: Any, kind: str, title: str, path: str | None
) -> None:
    (result,) = updates().entry(completion(Message("assistant", calls=(ToolCall("c", name, arguments),))))
    assert (result.kind, result.title) == (kind, title)
    assert [place.path for place in result.locations or []] == ([path] if path else [])


def test_several_edits_of_one_call_are_diffs_next_to_each_other() -> None:
    face = updates()
    for name in ("a.py", "b.py"):
        face.on_file_change(name, b"old\n", b"new\n")
    rows = [{"call_id": "c", "path": name, "hunks": [{"new_start": 1}]} for name in ("a.py", "b.py")]
    result = [face.entry(Entry(0, None, "edit", 0.0, row))[0] for row in rows]
    assert [diff.path for diff in result[-1].content] == ["/project/a.py", "/project/b.py"]
    assert face.entry(Entry(0, None, "edit", 0.0, rows[0]))[0].content is None  # of a loaded session: no lines are kept


def test_a_plan_is_the_list_without_what_was_cancelled() -> None:
    shown = "[x] 1 look\n[>] two fix the sign\n[-] 3 dream\n[ ] 4 test it"
    result = [(one.content, one.status) for one in plan(shown).entries]
    assert result == [("look", "completed"), ("fix the sign", "in_progress"), ("test it", "pending")]


def test_a_prompt_of_blocks_is_one_text() -> None:
    link = acp.resource_link_block("b.py", "file:///project/src/my%20file.py")
    web = acp.resource_link_block("page", "https://example.org/x")
    file = acp.resource_block(acp.embedded_text_resource("file:///project/a.py", "x = 1\n"))
    text = text_of([acp.text_block("fix"), link, web, file], FOLDER)
    assert text == 'fix\n[src/my file.py]\n[https://example.org/x]\n<file path="a.py">\nx = 1\n\n</file>'


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([acp.text_block(" \n")], "an empty prompt"),
        ([acp.audio_block("aGk=", "audio/wav")], "not the audio"),
        ([acp.resource_block(acp.embedded_blob_resource("file:///x", "aGk="))], "not the binary resource"),
    ],
)
def test_what_can_not_be_read_is_refused_by_name(blocks: list[EmbeddedResourceContentBlock], words: str) -> None:
    with pytest.raises(UnusableBlock, match=words):
        text_of(blocks, FOLDER)

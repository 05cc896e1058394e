"""Logs of other agents: what maps is mapped, what does not is kept, what is dropped is counted, what is broken is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.importers import atif, claude_code, codex, openhands
from etude.agent.importers.draft import ForeignError
from etude.agent.importers.read import AGENTS, read_foreign
from etude.core.trace.schema import check_file, objections
from etude.core.trace.session import Session
from etude.core.trace.writer import write_session

DATA = Path(__file__).parent / "data"
LOGS = {
    "claude-code": DATA / "claude_code.jsonl",
    "codex": DATA / "codex.jsonl",
    "openhands": DATA / "openhands",
    "atif": DATA / "atif.json",
}


def outline(session: Session) -> list[tuple]:
    """Type, parent, and what tells an entry apart."""
    rows = []
    for entry in session.entries:
        data = entry.data
        if entry.type == "completion":
            message = data["message"]
            mark: Any = (message["text"], [(c["id"], c["name"]) for c in message.get("calls", [])])
        elif entry.type == "tool_result":
            mark = (data["call_id"], data["name"], data["text"], data["failed"])
        else:
            mark = data.get("text", data.get("effort", data.get("path", data.get("decision", ""))))
        rows.append((entry.type, entry.parent, mark))
    return rows


@pytest.mark.parametrize("agent", AGENTS)
def test_an_imported_session_keeps_to_our_format_and_accounts_for_every_line(agent: str, tmp_path: Path) -> None:
    session = read_foreign(LOGS[agent])
    write_session(tmp_path / "s.jsonl", session)
    assert check_file(tmp_path / "s.jsonl") == []
    account = session.header.recipe["import"]
    kept = sum(entry.type == "foreign" for entry in session.entries)
    assert account["agent"] == agent and account["kept_as_foreign"] == kept
    assert account["entries"] == len(session.entries) - kept
    assert session.header.session_id.startswith(f"{agent}-") and session.header.facts["instruction"] == "fix tally"
    assert session.segments() == [], "tokens are never invented"
    assert [entry.at_s for entry in session.entries] == sorted(entry.at_s for entry in session.entries)


def test_claude_code_blocks_of_one_answer_become_one_turn_and_the_tree_is_kept() -> None:
    session = read_foreign(LOGS["claude-code"])
    assert outline(session) == [
        ("foreign", None, ""),
        ("message", None, "fix tally"),
        ("completion", 1, ("I'll look.", [("t1", "Read"), ("t2", "Edit")])),
        ("tool_result", 2, ("t1", "Read", "     1→def tally", False)),
        ("tool_result", 3, ("t2", "Edit", "updated", False)),
        ("edit", None, "core.py"),
        ("message", 4, "now the tests"),
        ("completion", 6, ("", [("t3", "Bash")])),
        ("tool_result", 7, ("t3", "Bash", "2 failed", True)),
        ("foreign", None, ""),
        ("summary", None, "Tally was fixed; tests fail."),
        ("completion", 10, ("Done.", [])),
        ("completion", 1, ("a side chain", [])),
    ]
    turn, edit = session.entries[2], session.entries[5]
    assert turn.data["message"]["thinking"] == "hm"
    assert turn.data["usage"] == {"input_tokens": 30, "cached_tokens": 20, "output_tokens": 9, "seconds": 0.0}
    assert (edit.data["added"], edit.data["removed"], edit.data["call_id"]) == (1, 1, "t2")
    assert session.header.policy == "claude-opus-4-5" and session.header.facts["workspace"] == "/w"
    assert session.entries[-1].data["foreign"] == {"isSidechain": True, "requestId": "req_4"}
    assert session.header.recipe["import"]["dropped"] == {
        "copies of files and outputs": 4,
        "encrypted thinking": 1,
        "image blocks": 1,
    }
    assert [round(session.entries[i].at_s, 3) for i in (1, 2)] == [0.5, 2.0]


def test_codex_items_of_one_answer_become_one_turn_with_its_usage() -> None:
    session = read_foreign(LOGS["codex"])
    assert outline(session) == [
        ("message", None, "You are Codex."),
        ("message", 0, "be brief"),
        ("message", 1, "fix tally"),
        ("effort", None, "high"),
        ("completion", 2, ("Looking.", [("c1", "shell"), ("c2", "apply_patch")])),
        ("tool_result", 4, ("c1", "shell", "def tally", True)),
        ("tool_result", 5, ("c2", "apply_patch", "Done!", False)),
        ("completion", 6, ("", [("c3", "shell")])),
        ("tool_result", 7, ("c3", "shell", "bad arguments", False)),
        ("foreign", None, ""),
        ("summary", None, "tally fixed"),
        ("completion", 10, ("Fixed.", [])),
    ]
    turn, broken = session.entries[4], session.entries[7]
    assert turn.data["usage"] == {"input_tokens": 100, "cached_tokens": 80, "output_tokens": 7, "seconds": 0.0}
    assert turn.data["message"]["thinking"] == "Look first"
    assert turn.data["message"]["calls"][0]["arguments"] == {"command": ["cat", "core.py"]}
    assert broken.data["message"]["problem"] == "the arguments of c3 are no JSON object"
    assert broken.data["foreign"] == {"arguments": {"c3": '{"command": '}}, "malformed calls are kept as they were"
    assert session.entries[1].data["foreign"] == {"role": "developer"}
    assert session.header.recipe["import"]["dropped"] == {"encrypted thinking": 1, "events that repeat an item": 2}
    assert session.header.policy == "gpt-5-codex" and session.header.effort == "high"


def test_codex_of_late_2026_writes_items_twice_and_says_in_words_how_a_command_ended() -> None:
    session = read_foreign(DATA / "codex_0169.jsonl")
    result = [row for row in outline(session) if row[0] in ("completion", "tool_result")]
    assert [mark for _, _, mark in result] == [
        ("", [("c1", "exec_command"), ("c2", "multi_agent_v1__close_agent")]),
        ("c1", "exec_command", session.of("tool_result")[0].data["text"], True),
        ("c2", "multi_agent_v1__close_agent", "closed", False),
        ("Fixed.", []),
    ]
    assert session.of("completion")[0].data["message"]["thinking"] == "Look first"
    assert session.header.recipe["import"]["dropped"] == {"events that repeat an item": 4}
    assert session.header.facts["instruction"] == "fix tally"


def test_openhands_actions_of_one_answer_become_one_turn_and_a_refusal_an_approval() -> None:
    session = read_foreign(LOGS["openhands"])
    assert outline(session) == [
        ("message", None, "You are OpenHands.\n\nrepo: w"),
        ("message", 0, "fix tally"),
        ("completion", 1, ("Look.", [("c1", "terminal"), ("c2", "file_editor")])),
        ("tool_result", 2, ("c1", "terminal", "def tally", False)),
        ("tool_result", 3, ("c2", "file_editor", "no such file", True)),
        ("completion", 4, ("", [("c3", "terminal")])),
        ("approval", None, "denied"),
        ("tool_result", 5, ("c3", "terminal", "not that", True)),
        ("foreign", None, ""),
        ("summary", None, "so far: nothing"),
        ("completion", 9, ("Fixed.", [])),
    ]
    assert session.header.harness_facts["schemas"] == [{"kind": "TerminalTool"}]
    assert session.entries[2].data["message"]["thinking"] == "hm"
    assert session.entries[10].data["message"]["thinking"] == "aha"
    assert session.header.recipe["import"]["dropped"] == {"repeated summaries": 1}


def test_atif_steps_become_turns_with_the_results_they_observed() -> None:
    session = read_foreign(LOGS["atif"])
    assert outline(session) == [
        ("message", None, "You are an agent."),
        ("message", 0, "fix tally"),
        ("effort", None, "low"),
        ("completion", 1, ("Look.", [("c1", "bash")])),
        ("tool_result", 3, ("c1", "bash", "def tally", False)),
        ("completion", 4, ("Fixed.", [])),
    ]
    turn = session.entries[3]
    assert turn.data["usage"] == {"input_tokens": 50, "cached_tokens": 10, "output_tokens": 4, "seconds": 0.0}
    assert turn.data["foreign"]["metrics"] == {"completion_token_ids": [1, 2], "cost_usd": 0.01}
    assert session.header.facts["atif"] == {"final_metrics": {"total_steps": 4}, "agent": {"extra": {"k": 1}}}
    assert session.header.recipe["import"]["dropped"] == {"image parts": 1}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "is empty"),
        ("hello", "is not JSON"),
        ("[1]", "expected a JSON object, found int"),
        ('{"a": 1}', "can't be recognized by its keys"),
        ('{"schema_version": "ATIF-v9.9", "agent": {}, "steps": []}', "ATIF-v9.9; this program reads"),
        (
            '{"schema_version": "ATIF-v1.4", "agent": {"name": "x"}, "steps": [{"source": "cat"}]}',
            "step 1: source 'cat'",
        ),
        ('{"type": "response_item", "payload": {}}', "type must be str"),
        ('{"type": "session_meta", "payload": {"id": 3}}', "id must be str; found int"),
        ('{"type": "user", "sessionId": "s", "message": {"role": "user"}}', "content must be str or list"),
        ('{"type": "assistant", "message": {"id": "m", "content": [{"type": "dance"}]}}', "type 'dance'"),
        ('{"type": "user", "message": {"content": "hi"}, "timestamp": "noon"}', "'noon' is no ISO 8601 time"),
        ('{"kind": "ActionEvent", "source": "agent"}', "llm_response_id must be str"),
        ('{"action": "run", "source": "agent", "kind2": 1, "sessionId": "x"}', "type must be str"),
        ('{"type": "user", "message": {"content": "hi"}}', "holds no answer of a model (1 lines)"),
    ],
)
def test_a_broken_log_is_refused_with_place_and_reason(text: str, error: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(text)
    with pytest.raises(ForeignError) as raised:
        read_foreign(log)
    assert error in str(raised.value)
    assert str(log) in str(raised.value) or "holds no answer" in error


def test_openhands_older_server_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"id": 1, "source": "agent", "action": "run", "args": {}}\n')
    with pytest.raises(ForeignError, match="older server"):
        read_foreign(tmp_path / "log.jsonl", "openhands")
    with pytest.raises(ForeignError, match="there are claude-code"):
        read_foreign(tmp_path / "log.jsonl", "cursor")
    with pytest.raises(ForeignError, match=r"holds no event-\*\.json"):
        read_foreign(tmp_path)


def test_the_line_that_is_broken_is_named(tmp_path: Path) -> None:
    lines = LOGS["codex"].read_text().splitlines()
    lines[4] = lines[4][:-5]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    with pytest.raises(ForeignError, match=r"log\.jsonl:5 is not JSON"):
        read_foreign(tmp_path / "log.jsonl")


def test_the_last_line_of_a_log_that_is_being_written_may_be_torn(tmp_path: Path) -> None:
    text = LOGS["codex"].read_text()
    (tmp_path / "log.jsonl").write_text(text + '{"timestamp": "2026-01-01T00:00:09Z", "type": "respo')
    session = read_foreign(tmp_path / "log.jsonl")
    assert outline(session) == outline(read_foreign(LOGS["codex"]))
    assert session.header.recipe["import"]["dropped"]["torn last line"] == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300)
@given(st.data())
def test_whatever_a_line_holds_the_answer_is_a_session_or_a_named_error(data: st.DataObject) -> None:
    """One value anywhere in a log is replaced by any other; what is imported still keeps to the format."""
    agent = data.draw(st.sampled_from(AGENTS))
    log: Any = [json.loads(text) for text in texts_of(LOGS[agent])]
    place: Any = data.draw(st.sampled_from(log))
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    place[key] = data.draw(json_values)
    try:
        if agent == atif.NAME:
            session = atif.read(log[0], "log").session()
        else:
            readers = {claude_code.NAME: claude_code, codex.NAME: codex, openhands.NAME: openhands}
            session = readers[agent].read([(f"log:{i}", row) for i, row in enumerate(log)]).session()
    except ForeignError as error:
        assert str(error)
    else:
        assert [text for entry in session.entries for text in objections(entry.to_json())] == []


def texts_of(path: Path) -> list[str]:
    """The JSON texts of a log: its lines, its files, or all of it."""
    if path.is_dir():
        return [file.read_text() for file in sorted(path.iterdir())]
    return path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]

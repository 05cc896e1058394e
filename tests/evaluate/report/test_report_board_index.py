"""The index follows a run's files: rows come once, change when their step is trained, and damage costs its own rows alone."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.core.trace.entry import SessionHeader
from etude.core.trace.session import Recorder
from etude.core.trace.writer import write_session
from etude.evaluate.report.board.columns import Columns
from etude.evaluate.report.board.index import STORED, AttemptIndex


def opened(run: Path) -> AttemptIndex:
    index = AttemptIndex(run)
    index.refresh()
    return index


def rows(index: AttemptIndex) -> list[dict]:
    return [index.row(n) for n in range(len(index))]


def test_every_rollout_of_every_group_is_a_row_with_what_its_step_made_of_it(
    tmp_path: Path, make_run: Callable
) -> None:
    index = opened(make_run(tmp_path, groups=8, size=4, trained=4))
    found = rows(index)
    assert [(row["group"], row["member"]) for row in found] == [(g, m) for g in range(8) for m in range(4)]
    assert [row["step"] for row in found] == [0] * 16 + [-1] * 16
    assert all((row["advantage"] is None) == (row["step"] < 0) for row in found)
    record = json.loads((tmp_path / "rl" / "steps.jsonl").read_text().splitlines()[0])
    assert [row["advantage"] for row in found[:16]] == pytest.approx(record["advantages"], abs=1e-6)
    assert found[3]["summaries"] == 1 and found[0]["tokens"] == 60 and found[0]["level"] == "one-bug"
    assert not index.problems.found


def test_a_group_that_comes_later_is_found_and_so_is_its_step(tmp_path: Path, make_run: Callable) -> None:
    index = opened(make_run(tmp_path, groups=4, trained=0))
    before = index.generation
    make_run(tmp_path, groups=6, trained=4)
    index.refresh()
    assert len(index) == 24 and index.generation > before
    assert [index.row(n)["step"] for n in (0, 15, 16)] == [0, 0, -1]


def test_a_second_look_without_news_changes_nothing(tmp_path: Path, make_run: Callable) -> None:
    index = opened(make_run(tmp_path))
    generation, stored = index.generation, (tmp_path / STORED).stat().st_mtime_ns
    index.refresh()
    assert index.generation == generation and (tmp_path / STORED).stat().st_mtime_ns == stored


def test_a_stored_index_spares_the_groups_and_says_the_same(tmp_path: Path, make_run: Callable) -> None:
    first = rows(opened(make_run(tmp_path)))
    hour = time.time() - 3600
    for path in (tmp_path / "rl" / "groups").iterdir():
        path.write_bytes(b"not read again")
        os.utime(path, (hour, hour))
    again = opened(tmp_path)
    assert rows(again) == first and not again.problems.found


def test_a_group_made_again_after_a_kill_replaces_its_rows(tmp_path: Path, make_run: Callable) -> None:
    index = opened(make_run(tmp_path, seed=0))
    before = rows(index)
    make_run(tmp_path, seed=1)
    index.refresh()
    after = rows(index)
    assert len(after) == len(before)
    assert [row["surprise"] for row in after] != [row["surprise"] for row in before]


def test_a_damaged_group_is_named_and_the_others_stand(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path, groups=4, size=2)
    path = tmp_path / "rl" / "groups" / "000001.zst"
    path.write_bytes(path.read_bytes()[:50])
    index = opened(tmp_path)
    assert {row["group"] for row in rows(index)} == {0, 2, 3}
    assert list(index.problems.found) == ["rl/groups/000001.zst"]


def test_half_a_line_of_steps_waits_for_its_other_half(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path, groups=4)
    path = tmp_path / "rl" / "steps.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    index = opened(tmp_path)
    assert index.row(0)["step"] == -1 and not index.problems.found
    path.write_bytes(whole)
    index.refresh()
    assert index.row(0)["step"] == 0


def test_a_line_that_is_no_json_is_named_with_its_number(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path, groups=4)
    path = tmp_path / "rl" / "steps.jsonl"
    path.write_bytes(b'{"step": 0, "gro\n' + path.read_bytes())
    index = opened(tmp_path)
    assert index.row(0)["step"] == 0
    assert list(index.problems.found) == ["steps.jsonl, line 1"]


def test_a_damaged_index_is_made_again_and_said(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path)
    (tmp_path / STORED).write_bytes(b"\x00\x01")
    index = AttemptIndex(tmp_path)
    assert STORED in index.problems.found
    index.refresh()
    assert len(index) == 32 and len(Columns.unpack((tmp_path / STORED).read_bytes())) == 32


def test_a_folder_that_cannot_be_written_costs_the_stored_index_alone(tmp_path: Path, make_run: Callable) -> None:
    make_run(tmp_path)
    (tmp_path / STORED).mkdir()
    index = opened(tmp_path)
    assert len(index) == 32 and "not kept" in index.problems.found[STORED]


OUTCOME = {
    "task_id": "one-bug/heldout/1", "attempt": 0, "category": "debugging", "level": "one-bug", "score": 1.0, "tokens": 40,
    "tool_calls": 3, "turns": 4, "seconds": 0.5, "reason": "",
}  # fmt: skip


@pytest.mark.parametrize("place", ["bench", "trials", "", "policies"])
def test_outcomes_of_a_bench_are_rows_and_find_their_session(tmp_path: Path, place: str) -> None:
    folder = tmp_path / place
    folder.mkdir(exist_ok=True)
    (folder / "expert.jsonl").write_text(
        json.dumps(OUTCOME) + "\n" + json.dumps(OUTCOME | {"attempt": 1, "score": 0.0}) + "\n"
    )
    index = opened(tmp_path)
    assert [(row["policy"], row["task"], row["member"], row["outcome"]) for row in rows(index)] == [
        ("expert", "one-bug/heldout/1", 0, 1.0), ("expert", "one-bug/heldout/1", 1, 0.0)
    ]  # fmt: skip
    facts = {"stage": "bench", "policy": "expert", "pass": 1}
    sessions = (tmp_path if place == "policies" else folder) / "sessions" / "expert"
    sessions.mkdir(parents=True)
    header = SessionHeader("s", task_id="one-bug/heldout/1", recipe=facts)
    write_session(sessions / "one-bug-failed-0.jsonl", Recorder(header).session)
    index.refresh()
    assert [bool(row["file"]) for row in rows(index)] == [False, True]


def test_a_suite_s_run_names_its_sessions_by_key_task_and_pass(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "expert@low.jsonl").write_text(json.dumps(OUTCOME | {"attempt": 2}) + "\n")
    (tmp_path / "faults.jsonl").write_text('{"policy": "expert@low", "class": "SandboxLost"}\n')
    facts = {"stage": "bench", "policy": "expert", "effort": "low", "pass": 2}  # its policy is no file's name
    folder = tmp_path / "sessions" / "expert@low"
    folder.mkdir(parents=True)
    write_session(
        folder / "one-bug-heldout-1-2.jsonl",
        Recorder(SessionHeader("s", task_id="one-bug/heldout/1", recipe=facts)).session,
    )
    index = opened(tmp_path)
    assert [(row["policy"], row["file"]) for row in rows(index)] == [
        ("expert@low", "sessions/expert@low/one-bug-heldout-1-2.jsonl")
    ]
    assert not index.problems.found


def test_a_line_that_is_no_outcome_is_named(tmp_path: Path) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "expert.jsonl").write_text(json.dumps({"task": "old form"}) + "\n")
    index = opened(tmp_path)
    assert len(index) == 0 and "score" in index.problems.found["bench/expert.jsonl"]


def test_demonstrations_are_rows_and_a_file_that_is_no_session_is_named(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    recorder = Recorder(SessionHeader("000003.1", task_id="rename/train/9", policy="expert"))
    recorder.append(
        "counters",
        {"counters": {"turns": 5.0, "calls": 6.0, "calls_edit": 1.0, "summaries": 2.0, "broken_summaries": 1.0}},
    )
    recorder.append("end", {"reason": "done", "message": "", "seconds": {"all": 2.0}})
    write_session(tmp_path / "sessions" / "000003.jsonl", recorder.session)
    (tmp_path / "sessions" / "000004.jsonl").write_text('{"type": "nothing"}\n')
    index = opened(tmp_path)
    (row,) = rows(index)
    figures = (row["policy"], row["turns"], row["tools"], row["summaries"], row["end"], row["seconds"], row["file"])
    assert figures == ("expert", 5, "edit", 2, "done", 2.0, "sessions/000003.jsonl") and row["broken"] == 1
    assert "no session header" in index.problems.found["sessions/000004.jsonl"]

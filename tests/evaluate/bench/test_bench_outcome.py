"""The file of outcomes: what older runs wrote reads on, what can't be read is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.evaluate.bench.outcome import Outcome, OutcomeError, OutcomeFile

OLD = {"task_id": "a", "attempt": 0, "category": "c", "level": "l", "score": 1.0, "tokens": 9, "tool_calls": 2, "turns": 1,
       "seconds": 0.5}  # fmt: skip


def test_what_an_older_version_wrote_reads_on_and_says_what_it_did_not_measure(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(OLD) + "\n")
    (outcome,) = OutcomeFile(path).outcomes.values()
    assert (
        outcome.effort == "" and outcome.input_tokens is None and outcome.core_seconds is None and outcome.judged == {}
    )


def test_an_outcome_reads_back_as_it_was_written(tmp_path: Path) -> None:
    outcome = Outcome(**OLD, effort="high", input_tokens=10, cached_tokens=4, cache_write_tokens=0, output_tokens=3,
                      core_seconds=0.25, files=2, lines=31, style="terse", judged={"quality": 0.5})  # fmt: skip
    OutcomeFile(tmp_path / "p.jsonl").add(outcome)
    assert list(OutcomeFile(tmp_path / "p.jsonl").outcomes.values()) == [outcome]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (json.dumps(OLD | {"mood": 1}), "'mood', which this version does not know"),
        ("{]", "is no outcome"),
        ("[1]", "is no outcome"),
        ('{"task_id": "a"}', "is no outcome"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_with_its_place(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(OLD) + "\n" + line + "\n")
    with pytest.raises(OutcomeError, match=words) as caught:
        OutcomeFile(path)
    assert "p.jsonl:2" in str(caught.value)


def test_a_line_that_a_kill_tore_is_left_out_and_cut_off_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    torn = json.dumps(OLD) + "\n" + json.dumps(OLD)[:20]
    path.write_text(torn)
    file = OutcomeFile(path)
    assert len(file.outcomes) == 1
    file.add(Outcome(**OLD | {"attempt": 1}))
    assert sorted(OutcomeFile(path).outcomes) == [("a", 0), ("a", 1)] and len(path.read_text().splitlines()) == 2


def test_who_only_reads_changes_no_file_that_another_may_be_writing(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(OLD)[:20])
    assert not OutcomeFile(path).outcomes and path.read_text() == json.dumps(OLD)[:20]
    assert not OutcomeFile(tmp_path / "none" / "q.jsonl").outcomes and not (tmp_path / "none").exists()

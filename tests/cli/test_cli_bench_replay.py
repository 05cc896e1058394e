"""`etude bench run --policy replay:DIR`: an earlier run's answers again, and a harness that changed is noticed, never scored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from endpoint_lab import Lab, reference, serving
from here import Here, document
from market import TASKS, exercises, report, row

BASE = ("bench", "run", "exercises", "--recipe", "ci", "--tasks", str(TASKS), "--only")


@pytest.fixture
def recorded(here: Here, tmp_path: Path) -> Path:
    """The sessions of a run whose endpoint is gone."""
    with serving(Lab(tasks=exercises(), player=reference)) as lab:
        assert (
            here(*BASE, "--policy", f"m={lab.url}#m", "--effort", "high", "--out", str(tmp_path / "r")).returncode == 0
        )
    return tmp_path / "r" / "sessions" / "m@high"


def test_a_record_answers_again_with_the_same_outcomes_under_the_same_limits_and_twice_in_equal_bytes(
    here: Here, tmp_path: Path, recorded: Path
) -> None:
    for name in "ab":
        done = here(*BASE, "--policy", f"replay:{recorded}", "--out", str(tmp_path / name), "--json")
        entry = row(document(done), "replay-m@high")
    then = row(report(tmp_path / "r"), "m@high")
    same = ("avg", "best_of", "turns", "tool_calls", "usage", "harness", "by_level")
    assert {name: entry[name] for name in same} == {name: then[name] for name in same}
    assert entry["kind"] == "replay" and "spent_dollars" not in entry and set(entry["axes"]) == {"tokens"}
    assert (tmp_path / "a/report.json").read_bytes() == (tmp_path / "b/report.json").read_bytes()


def test_a_request_that_differs_from_the_record_is_a_fault_that_names_the_turn(
    here: Here, tmp_path: Path, recorded: Path
) -> None:
    path = next(recorded.glob("one-bug*.jsonl"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    result = next(row for row in rows if row["type"] == "tool_result")
    result["text"] = "not what the tool says"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = here(*BASE, "--policy", f"replay:{recorded}", "--out", str(tmp_path / "a"))
    assert (
        done.returncode == 1 and f"{path}, turn 2: the request differs from the record: message 4 (tool)" in done.stdout
    )
    assert "was 'not what the tool says', it is 'ok'" in done.stdout
    (left,) = report(tmp_path / "a")["unfinished"]
    assert left["missing"] == 1


def test_more_passes_than_were_recorded_are_said_to_be_missing(here: Here, tmp_path: Path, recorded: Path) -> None:
    words = (
        "--policy",
        f"again=replay:{recorded}",
        "--passes",
        "2",
        "--task",
        "one-bug*",
        "--out",
        str(tmp_path / "a"),
    )
    done = here(*BASE, *words)
    assert done.returncode == 1 and "there is no recorded session" in done.stdout and "again@high" in done.stdout


@pytest.mark.parametrize(
    ("where", "said"), [("", "RUN/sessions/NAME@EFFORT"), ("sessions/x@low", "RUN/sessions/NAME@EFFORT")]
)
def test_a_folder_that_is_no_record_is_refused(here: Here, tmp_path: Path, where: str, said: str) -> None:
    done = here(*BASE, "--policy", f"replay:{tmp_path / where}", "--out", str(tmp_path / "a"))
    assert done.returncode == 1 and said in done.stderr


def test_a_record_of_another_suite_is_refused(here: Here, tmp_path: Path, recorded: Path) -> None:
    done = here(
        "bench", "run", "targeted-eager", "--only", "--policy", f"replay:{recorded}", "--out", str(tmp_path / "a")
    )
    assert done.returncode == 1 and "not the suite as it is here" in done.stderr

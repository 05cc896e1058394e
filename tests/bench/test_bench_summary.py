"""From outcomes to claims, and the file that survives a kill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.bench.outcome import Outcome, OutcomeFile
from etude.bench.settings import BenchSettings
from etude.bench.summary import discovery, lift, score_table, summarise

SETTINGS = BenchSettings(resamples=400)  # pyright: ignore[reportCallIssue]


def outcome(task: int, attempt: int, score: float, level: str = "one-bug") -> Outcome:
    return Outcome(f"t{task}", attempt, "debugging", level, score, tokens=50, tool_calls=3, turns=4, seconds=0.1)


def table(scores: list[list[float]], level: str = "one-bug") -> list[Outcome]:
    return [outcome(t, a, s, level) for t, row in enumerate(scores) for a, s in enumerate(row)]


def test_summary_is_in_percent_and_lift_in_points():
    before, after = table([[0, 0], [0, 1]] * 8), table([[1, 1], [0, 1]] * 8)
    entry = summarise(before, SETTINGS)
    assert entry["avg"] == 25.0 and entry["best_of"] == {"1": 25.0, "2": 50.0}
    assert entry["by_category"]["debugging"]["tasks"] == 16
    change = lift(before, after, SETTINGS)
    assert change["avg_points"] == 50.0 and change["ci95"][0] > 0


def test_an_unfinished_bench_is_never_summarised():
    with pytest.raises(ValueError, match="not finished"):
        score_table(table([[1, 0], [1]]))


def test_lift_of_different_tasks_is_refused():
    with pytest.raises(ValueError, match="different tasks"):
        lift([outcome(0, 0, 1)], [outcome(1, 0, 1)], SETTINGS)


def test_a_higher_average_without_a_higher_best_is_called_sharpening():
    before, after = table([[1, 0], [0, 0]] * 6), table([[1, 1], [0, 0]] * 6)
    assert discovery(before, after, "one-bug", SETTINGS)["verdict"] == "sharpening, no discovery"
    found = table([[1, 1], [0, 1]] * 6)
    assert discovery(before, found, "one-bug", SETTINGS)["verdict"] == "discovery"


@given(st.integers(0, 400))
def test_a_kill_while_writing_loses_at_most_the_last_line(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("o") / "outcomes.jsonl"
    file = OutcomeFile(path)
    for i in range(3):
        file.add(outcome(i, 0, 1.0))
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])
    again = OutcomeFile(path)
    for i in range(3):
        if (f"t{i}", 0) not in again.outcomes:
            again.add(outcome(i, 0, 1.0))
    assert len(OutcomeFile(path).outcomes) == 3 and path.read_bytes() == data
    with pytest.raises(ValueError, match="already"):
        again.add(outcome(0, 0, 1.0))

"""From outcomes to claims, and the file that survives a kill."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.claims import discovery, lift
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.scores import scores
from etude.evaluate.bench.settings import BenchSettings
from etude.evaluate.bench.summary import summarise

SETTINGS = BenchSettings(resamples=400)  # pyright: ignore[reportCallIssue]


def outcome(task: int, attempt: int, score: float, level: str = "one-bug") -> Outcome:
    return Outcome(f"t{task}", attempt, "debugging", level, score, tokens=50, tool_calls=3, turns=4, seconds=0.1)


def table(rows: Sequence[Sequence[float]], level: str = "one-bug", first: int = 0) -> list[Outcome]:
    return [outcome(first + t, a, s, level) for t, row in enumerate(rows) for a, s in enumerate(row)]


def test_summary_is_in_percent_and_lift_in_points():
    before, after = table([[0, 0], [0, 1]] * 8), table([[1, 1], [0, 1]] * 8)
    entry = summarise(before, SETTINGS)
    assert entry["avg"] == 25.0 and entry["best_of"] == {"1": 25.0, "2": 50.0}
    assert entry["by_category"]["debugging"]["tasks"] == 16
    change = lift(before, after, SETTINGS)
    assert change["avg_points"] == 50.0 and change["ci95"][0] > 0


def test_averages_are_weighted_back_to_the_mix_and_given_by_equal_levels_too():
    """Ten easy tasks and thirty hard ones, where training has nine easy to one hard."""
    before = table([[1.0]] * 10) + table([[0.0]] * 30, "relapse", first=100)
    after = table([[1.0]] * 10) + table([[1.0]] * 30, "relapse", first=100)
    mix = {"one-bug": 9.0, "relapse": 1.0}
    entry, change = summarise(before, SETTINGS, mix), lift(before, after, SETTINGS, mix)
    assert (entry["avg"], entry["avg_equal"]) == (90.0, 50.0)
    assert (change["avg_points"], change["avg_points_equal"]) == (10.0, 50.0)
    assert change["by_level"]["relapse"]["avg_points"] == 100.0
    low, high = change["by_level"]["one-bug"]["ci95"]  # ten tasks without a change don't rule out that others change
    assert low == -high < 0 and change["by_level"]["one-bug"]["avg_points"] == 0
    assert summarise(before, SETTINGS)["avg"] == 25.0


def test_a_level_with_more_passes_counts_its_best_of_all_of_them():
    before = table([[0, 0]] * 4) + table([[0] * 8] * 6, "relapse", first=50)
    after = table([[0, 1]] * 4) + table([[0] * 7 + [1]] * 6, "relapse", first=50)
    entry = summarise(after, SETTINGS, {"one-bug": 1.0, "relapse": 1.0})
    assert set(entry["best_of"]) == {"1", "2"} and entry["by_level"]["relapse"]["best_of_8"] == 100.0
    found = discovery(before, after, "relapse", SETTINGS)
    assert found["k"] == 8 and found["points"] == 100.0 and found["verdict"] == "discovery"


def test_an_unfinished_bench_is_never_summarised():
    with pytest.raises(ValueError, match="not finished"):
        scores(table([[1, 0], [1]]))


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


def test_tasks_of_unknown_templates_have_their_own_row():
    known = [replace(o, holdout="function") for o in table([[1, 1], [1, 0]] * 4)]
    unknown = [replace(o, holdout="template") for o in table([[0, 0], [1, 0]] * 4, first=50)]
    rows = summarise([*known, *unknown], SETTINGS)["by_holdout"]
    assert (rows["function"]["avg"], rows["template"]["avg"]) == (75.0, 25.0)
    assert summarise(table([[1, 0]] * 4), SETTINGS)["by_holdout"] == {}

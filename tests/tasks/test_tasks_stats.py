"""Statistics of a folder of tasks: counts add up, percentiles are values that there are, large means both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.stats import LARGE_FILES, LARGE_LINES, render_stats, spread, stats
from etude.tasks.task_row import TaskRow


@given(st.lists(st.integers(0, 5000), min_size=1))
def test_percentiles_are_values_that_there_are_and_bins_add_up(values: list[int]) -> None:
    found = spread(values)
    assert {found["p10"], found["p50"], found["p90"], found["min"], found["max"]} <= set(values)
    assert found["min"] <= found["p10"] <= found["p50"] <= found["p90"] <= found["max"]
    assert sum(value <= found["p50"] for value in values) * 2 >= len(values)
    assert sum(found["histogram"].values()) == found["count"] == len(values)


def test_a_task_is_large_by_lines_and_files_both() -> None:
    rows = [
        TaskRow(f"t{n}", "debugging", "l", "train", "bugs", "p-1", "python", "terse", {"terse": n}, lines, files)
        for n, (lines, files) in enumerate(((LARGE_LINES, LARGE_FILES), (LARGE_LINES - 1, LARGE_FILES), (LARGE_LINES, LARGE_FILES - 1)))
    ]  # fmt: skip
    document = stats(rows)
    assert (document["tasks"], document["large"], document["generator"]) == (3, 1, {"bugs": 3})
    assert "characters of the terse prompt" in render_stats(document)


def test_an_empty_folder_has_statistics_too() -> None:
    assert render_stats(stats([])).startswith("0 tasks")

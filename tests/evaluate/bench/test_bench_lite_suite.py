"""A lite list becomes a suite of its own: the same tasks, limits and rubrics under another name, and only of the suite that was asked."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.lite_suite import freeze_lite
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.evaluate.bench.suites.suite import label
from etude.pipeline.recipe.recipe import Recipe
from etude.tasks.generate.exercises.source import ExerciseSource

REQUIREMENTS = "attrs==25.4.0\n"
RUBRIC = '[[criteria]]\nname = "c"\nquestion = "Is it so?"\nchoices = ["no", "yes"]\n'


def test_the_lite_suite_holds_the_listed_tasks_and_says_what_it_reached(tmp_path: Path) -> None:
    source = ExerciseSource(Recipe().exercises)
    tasks = [source.task(task_id) for task_id in source.ids("heldout")[:5]]
    described = SuiteManifest.model_validate(
        {"name": "mine", "version": "3", "released": date(2026, 11, 1), "harness": {"max_turns": 7},
         "environment": {"requirements": "requirements.txt"}}
    )  # fmt: skip
    (tmp_path / "pinned.txt").write_text(REQUIREMENTS)
    whole = freeze(
        tmp_path / "mine", described, tasks, rubrics={"default": RUBRIC}, requirements=tmp_path / "pinned.txt"
    )
    found = {
        "suite": {"label": label(whole), "digest": whole.digest}, "tasks": [tasks[1].id, tasks[3].id], "of_tasks": 5,
        "cost_share": 0.19, "cost_axis": "dollars", "rank_correlation": 0.93, "policies": ["a", "b", "c"],
    }  # fmt: skip
    lite = freeze_lite(whole.root, found, tmp_path / "lite")
    assert label(lite) == "mine-lite@3" and list(lite.ids) == found["tasks"] and lite.digest != whole.digest
    assert lite.task(tasks[3].id) == tasks[3] and lite.manifest.harness == {"max_turns": 7}
    assert "2 of 5 tasks of mine@3, 19.0% of its dollars; held-out rank correlation 0.93" in lite.manifest.description
    assert (lite.root / "requirements.txt").read_text() == REQUIREMENTS and lite.rubric(tasks[1].id) is not None
    other = {**found, "suite": {"label": "mine@2", "digest": "0" * 64}}
    with pytest.raises(SuiteError, match="the runs asked mine@2"):
        freeze_lite(whole.root, other, tmp_path / "other")
    assert not (tmp_path / "other").exists() and FolderSuite(lite.root).lock == lite.lock

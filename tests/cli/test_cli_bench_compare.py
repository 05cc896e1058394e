"""`etude bench compare` and `lite` on run folders: the figures are those of the files, and what can't be compared is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.cli.bench.compare import compare
from etude.cli.bench.lite import LiteError, lite
from etude.core.statistics.lite import NoLite
from etude.evaluate.bench.comparison import ComparisonError
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.evaluate.bench.runs.conditions import begin
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.table import NoBenchRun

TASKS = [f"t{i:02}" for i in range(40)]
LEVELS = {task: "hard" if i >= 30 else "easy" for i, task in enumerate(TASKS)}


def shared(label: str = "s@1", digest: str = "d") -> dict[str, Any]:
    suite = {"label": label, "name": "s", "version": "1", "digest": digest}
    return {"suite": suite, "tasks": TASKS, "weights": None, "seed": 7, "strict": {}, "report": {"resamples": 300}}


def facts(name: str, kind: str = "endpoint") -> dict[str, Any]:
    return {
        "name": name,
        "effort": "low",
        "kind": kind,
        "model": "",
        "harness": "h",
        "passes": 4,
        "price": None,
        "priced": None,
    }


def run(root: Path, skills: dict[str, float], seed: int = 0, **more: Any) -> Path:
    """A run of four passes: nop, and policies that solve a task by their skill and its hardness."""
    rng = np.random.default_rng(seed)
    hardness = np.random.default_rng(99).normal(0, 1, len(TASKS))
    folder = RunFolder(root)
    begin(folder, shared(**more), {"nop@low": facts("nop", "control")} | {f"{n}@low": facts(n) for n in skills})
    for name, skill in {"nop": -99.0, **skills}.items():
        file = OutcomeFile(folder.outcomes(f"{name}@low"))
        for task, hard in zip(TASKS, hardness, strict=True):
            solved = rng.random(4) < 1 / (1 + np.exp(-np.clip(skill - 1.5 * hard, -50, 50)))
            for number, score in enumerate(solved):
                file.add(Outcome(task, number, "debugging", LEVELS[task], float(score), 100, 3, 4, 1.0, effort="low"))
    return root


def mean_of(root: Path, key: str) -> float:
    lines = (root / "policies" / f"{key}.jsonl").read_text().splitlines()
    return 100 * float(np.mean([json.loads(line)["score"] for line in lines]))


FIVE = {"a": -2.0, "b": -1.0, "c": 0.0, "d": 1.0, "e": 2.0}


def test_pairs_ranking_and_items_are_those_of_the_files(tmp_path: Path) -> None:
    root = run(tmp_path / "run", FIVE)
    answer = compare([root], wish=5.0)
    found = answer.document
    assert [p["key"] for p in found["policies"]] == [f"{n}@low" for n in FIVE] and len(found["pairs"]) == 10
    by_pair = {(p["a"], p["b"]): p for p in found["pairs"]}
    pair = by_pair["a@low", "e@low"]
    assert pair["points"] == pytest.approx(mean_of(root, "e@low") - mean_of(root, "a@low"), abs=0.01)
    assert pair["ci95"][0] > 0 and pair["p_holm"] < 0.01 and pair["detectable_points"] > 0
    assert pair["tasks_needed"] > 40 and 0 < pair["spread_from_passes"] <= 1
    assert found["ranking"]["whole"] > 0.95
    assert "tasks for the wish" in answer.text and "halves of the tasks agree" in answer.text
    json.dumps(found, allow_nan=False)


def test_controls_stay_out_unless_asked_for_by_name(tmp_path: Path) -> None:
    root = run(tmp_path / "run", {"a": 0.0, "b": 1.0})
    assert "nop" not in compare([root]).text
    found = compare([root], only=["nop*", "b@*"]).document
    assert [p["key"] for p in found["policies"]] == ["nop@low", "b@low"] and found["ranking"] is None
    with pytest.raises(ComparisonError, match=r"matches x\*; there are: nop@low, a@low, b@low"):
        compare([root], only=["x*"])


def test_runs_of_one_suite_join_and_equal_names_are_distinguished_by_folder(tmp_path: Path) -> None:
    one, other = run(tmp_path / "one", {"a": 0.0}), run(tmp_path / "other", {"a": 3.0, "b": 1.0}, seed=1)
    found = compare([one, other]).document
    assert [p["key"] for p in found["policies"]] == ["one/a@low", "other/a@low", "b@low"]
    (first, *_) = found["pairs"]
    assert first["points"] == pytest.approx(mean_of(other, "a@low") - mean_of(one, "a@low"), abs=0.01)


@pytest.mark.parametrize(
    ("more", "expected"), [({"label": "s@2"}, "s@1 and s@2"), ({"digest": "x"}, "with another digest")]
)
def test_scores_of_other_suites_or_versions_are_not_compared(
    tmp_path: Path, more: dict[str, str], expected: str
) -> None:
    with pytest.raises(ComparisonError, match=expected):
        compare([run(tmp_path / "one", {"a": 0.0}), run(tmp_path / "other", {"b": 0.0}, **more)])


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoBenchRun, match="conditions.json"):
        compare([tmp_path])


def test_a_lite_list_says_what_it_reached_and_is_written(tmp_path: Path) -> None:
    root, out = run(tmp_path / "run", FIVE), tmp_path / "lite.json"
    assert "would be written" in lite([root], out=out, dry_run=True).text and not out.exists()
    found = lite([root], out=out).document
    assert json.loads(out.read_text()) == found
    assert found["rank_correlation"] >= 0.9 and found["cost_share"] <= 0.2 and found["cost_axis"] == "tokens"
    assert set(found["tasks"]) < set(TASKS) and len(found["tasks"]) == 8  # all cost the same
    with pytest.raises(LiteError, match="is a folder"):
        lite([root], out=tmp_path)


def test_policies_too_alike_to_rank_get_no_lite_list_and_no_file(tmp_path: Path) -> None:
    root = run(tmp_path / "run", dict.fromkeys("abcde", 0.0))
    with pytest.raises(NoLite, match="the whole suite agrees with itself"):
        lite([root], out=tmp_path / "lite.json")
    assert not (tmp_path / "lite.json").exists()

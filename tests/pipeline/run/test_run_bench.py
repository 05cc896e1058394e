"""The bench stage on the committed checkpoint: few tasks, but every one real, and the summary says what was asked of whom.
And the door by which such a checkpoint comes into a run: stage base.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.core.events.log import EventLog
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages import base, bench
from etude.pipeline.run.stages.pretraining import CHECKPOINT

ROOT = Path(__file__).parents[3]
SFT_NANO = ROOT / "checkpoints" / "sft-nano"
SMALL = [
    f'run.sft_checkpoint="{SFT_NANO}"',
    "bench.tasks=10",
    "bench.tasks_per_level_min=1",
    "bench.tasks_discovery_min=2",
    "bench.passes=2",
    "bench.passes_discovery=4",
    "bench.passes_controls=1",
    "bench.passes_scripted=1",
    "bench.resamples=200",
]


@pytest.fixture(scope="module")
def held() -> Iterator[list[list[str]]]:
    """Filled by `summary`: whenever an engine was opened, the names of those that were still in memory."""
    opened: dict[str, weakref.ref[Any]] = {}
    found: list[list[str]] = []
    own = bench.open_policy

    def watch(context: Context, folder: Path, name: str) -> Any:
        found.append([name for name, policy in opened.items() if policy() is not None])
        policy = own(context, folder, name)
        opened[name] = weakref.ref(policy)
        return policy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench, "open_policy", watch)
        yield found


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory, held: list[list[str]]) -> dict[str, Any]:
    """SFT, RL and the controls are all the committed checkpoint: what differs is chance alone."""
    run = tmp_path_factory.mktemp("run")
    for stage in ("rl", "competent_sft", "rewarded_sft"):
        (run / stage).mkdir()
        (run / stage / CHECKPOINT).symlink_to(SFT_NANO)
    recipe = read_recipe([ROOT / "recipes" / "ci.toml"], [*SMALL, 'bench.split="validation"'])
    for stage, body in (("trials", bench.run_trials), ("bench", bench.run)):
        (run / stage).mkdir()
        body(Context(recipe, run, stage, EventLog.null()))
    return json.loads((run / "bench" / "summary.json").read_text())


@pytest.mark.nightly
def test_each_policy_has_its_own_number_of_passes_and_the_discovery_level_more(summary: dict[str, Any]) -> None:
    found = summary["bench"]
    assert {name: found[name]["passes"] for name in ("sft", "rl", "expert")} == {"sft": 2, "rl": 2, "expert": 1}
    assert found["controls"]["competent_sft"]["passes"] == 1
    assert found["rl"]["tasks"] == 10 and found["rl"]["by_level"]["relapse"]["tasks"] == 2
    assert "best_of_4" in found["rl"]["by_level"]["relapse"] and "best_of_2" in found["rl"]["by_level"]["one-bug"]
    assert summary["discovery"]["k"] == 4


def test_no_engine_is_in_memory_when_the_next_is_opened(summary: dict[str, Any], held: list[list[str]]) -> None:
    assert summary and held == [[], [], [], []]


def test_scripted_agents_come_out_as_they_must(summary: dict[str, Any]) -> None:
    found = summary["bench"]
    assert found["nop"]["avg"] == found["cheat"]["avg"] == 0
    assert found["expert"]["by_level"]["one-bug"]["avg"] == 100.0
    assert found["expert"]["by_level"]["relapse"]["avg"] == 0.0  # its winning move is no part of the script


def test_the_summary_says_what_its_figures_rest_on(summary: dict[str, Any]) -> None:
    assert summary["split"] == "validation" and summary["sandbox"]["available"]
    assert summary["overlap"]["seen_share"] == 0.0 and summary["overlap"]["validation_share"] == 1.0
    assert set(summary["over_controls"]) == {"competent_sft", "rewarded_sft"}
    for entry in (summary["lift"], summary["over_controls"]["competent_sft"]):
        assert {"avg_points", "ci95", "avg_points_equal", "ci95_equal", "best_of", "by_level"} <= entry.keys()


def test_base_refuses_a_checkpoint_with_fewer_rows_than_the_corpus_has_ids(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "summary.json").write_text('{"vocabulary": 100000}')
    recipe = read_recipe([ROOT / "recipes" / "ci.toml"], [f'model.init="{SFT_NANO}"'])
    with pytest.raises(ValueError, match="its tokenizer.json one of 100000: they do not belong together"):
        base.run(Context(recipe, tmp_path, "base", EventLog.null()))

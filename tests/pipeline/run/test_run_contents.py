"""A stage that read a folder from outside of the run is stale when the folder's contents change, and stays done when only its times do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.execute import Run
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.plan import CONTENTS, contents, flat_settings
from etude.pipeline.run.stage import Stage

SFT = Stage("sft", after=(), reads=("sft",), body="os:getcwd", processes="one")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    collected = tmp_path / "collected"
    collected.mkdir()
    (collected / "a.jsonl").write_text('{"type": "header"}\n')
    (collected / "a.tokens").write_bytes(b"ETT1")
    recipe = Recipe.model_validate({"sft": {"collected": [str(collected)]}})
    found = Run(recipe, tmp_path / "run", (SFT,))
    (found.folder / "sft").mkdir(parents=True)
    ledger = StageLedger(found.folder / "ledger.jsonl")
    ledger.start("sft", found.settings(SFT), {})
    ledger.finish("sft")
    return found


def action(run: Run) -> tuple[str, str]:
    (step,) = run.plan(["sft"])
    return step.action, step.why


def test_a_stage_whose_folder_is_as_it_was_is_done(run, tmp_path):
    os.utime(tmp_path / "collected" / "a.jsonl", (1, 1))
    (tmp_path / "collected" / "tries.log").write_text("no session")
    assert action(run)[0] == "skip"


@pytest.mark.parametrize("change", ["another session", "other tokens", "a session fewer", "another name"])
def test_a_stage_whose_folder_changed_runs_again_and_says_why(run, tmp_path, change):
    folder = tmp_path / "collected"
    if change == "another session":
        (folder / "b.jsonl").write_text("{}\n")
    elif change == "other tokens":
        (folder / "a.tokens").write_bytes(b"ETT2")
    elif change == "a session fewer":
        (folder / "a.jsonl").unlink()
    else:
        (folder / "a.jsonl").rename(folder / "c.jsonl")
    assert action(run)[0] == "run" and f"sft.collected.{folder}{CONTENTS} was" in action(run)[1]


def test_an_attempt_from_before_contents_were_noted_is_not_stale_for_it(run):
    ledger = StageLedger(run.folder / "ledger.jsonl")
    ledger.start("sft", flat_settings(run.recipe.model_dump(mode="json"), SFT.reads), {})
    ledger.finish("sft")
    assert action(run)[0] == "skip"


def test_a_stage_that_does_not_read_the_folder_does_not_hear_of_it(run):
    assert contents(run.recipe, ("rl", "engine")) == {} and len(contents(run.recipe, ("sft.collected",))) == 1

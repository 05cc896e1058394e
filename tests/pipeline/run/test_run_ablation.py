"""An ablation: cells share what the varied key does not reach, a kill loses nothing, and the line is refitted after every cell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etude.pipeline.run.ablation import fork, reached_by
from etude.pipeline.run.ablation_settings import AblationSettings
from etude.pipeline.run.graph import GRAPH
from etude.pipeline.run.stage import StageError

PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.ablation import Ablation
from etude.pipeline.run.ablation_settings import AblationSettings
from etude.pipeline.run.stage import Stage

def body(context):
    (context.folder / "made").write_text("by " + context.run.name)
    with (Path(os.environ["BODIES"])).open("a") as file:
        file.write(f"{context.run.parent.name}/{context.run.name} {context.stage}\\n")
    if os.environ.get("KILL") == f"{context.run.parent.name}/{context.run.name} {context.stage}":
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    seed, steps = context.recipe.sft.seed, context.recipe.sft.loop.steps
    context.summarize({"heldout_bits_per_byte": 1.5} if context.stage == "base" else
                      {"heldout_loss": 1 / steps + seed} if context.stage == "sft" else
                      {"curve": [{"pass_rate": 0.0}, {"pass_rate": 0.9 - 1 / steps}]})

me = "bodies:body"
graph = (Stage("base", (), ("sft.seed",), me, ""), Stage("sft", ("base",), ("sft",), me, ""), Stage("rl", ("sft",), (), me, ""))

if __name__ == "__main__":
    sys.modules["bodies"] = sys.modules["__main__"]
    settings = AblationSettings.model_validate(json.loads(os.environ["ABLATION"]))
    ablation = Ablation(settings, lambda words: read_recipe([], [*settings.overrides, *words]), Path(sys.argv[1]), graph)
    for cell in ablation.run():
        print(cell.name)
"""

ABLATION = {
    "name": "probe", "key": "sft.loop.steps", "values": [1, 10, 100], "seeds": [0, 1], "seeded": ["sft.seed"],
    "reward_steps": 1, "set": {"rl": {"steps": 2}},
}  # fmt: skip


def launch(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "bodies.py"
    program.write_text(PROGRAM)
    variables = {"ABLATION": json.dumps(ABLATION), "BODIES": str(tmp_path / "bodies"), **variables}
    return subprocess.run(
        [sys.executable, str(program), str(tmp_path / "out")],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )


def test_killed_in_the_middle_of_a_cell_it_goes_on_and_no_finished_stage_is_run_again(tmp_path: Path) -> None:
    assert launch(tmp_path, KILL="seed-0/10 rl").returncode == -signal.SIGKILL
    done = launch(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"seed-{seed}/{value}" for seed in (0, 1) for value in (1, 10, 100)]
    made = (tmp_path / "bodies").read_text().splitlines()
    assert made.count("seed-0/10 rl") == 2  # begun, killed, begun again
    made.remove("seed-0/10 rl")
    assert len(made) == len(set(made)) == 2 + 6 * 2  # base once a seed; sft and rl once a cell


@pytest.mark.nightly
def test_cells_of_a_seed_begin_with_what_the_key_does_not_reach(tmp_path: Path) -> None:
    assert launch(tmp_path).returncode == 0
    for value in (1, 10, 100):
        assert (tmp_path / "out" / "seed-1" / str(value) / "base" / "made").read_text() == "by shared"
        assert (tmp_path / "out" / "seed-1" / str(value) / "sft" / "made").read_text() == f"by {value}"


@pytest.mark.nightly
def test_the_line_is_fitted_within_seeds(tmp_path: Path) -> None:
    assert launch(tmp_path).returncode == 0
    found = json.loads((tmp_path / "out" / "ablation.json").read_text())
    assert [(p["seed"], p["budget"]) for p in found["points"]] == [(s, v) for s in (0, 1) for v in (1, 10, 100)]
    assert found["fit"]["slope"] == pytest.approx(-1.0) and found["fit"]["verdict"] == "lower loss, higher reward"
    assert found["points"][0]["bits_per_byte"] == 1.5
    figure = (tmp_path / "out" / "ablation.svg").read_text()
    assert figure.count("<circle") == 6 and "lower loss, higher reward" in figure


def test_a_key_reaches_the_stages_that_read_it_and_all_that_follow() -> None:
    assert reached_by("rl.steps", GRAPH) >= {"rl", "trials", "bench", "report"}
    assert "sft" not in reached_by("rl.steps", GRAPH)
    assert reached_by("nothing.of.ours", GRAPH) == set()


def test_a_value_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="names one twice"):
        AblationSettings.model_validate(ABLATION | {"values": [1, 1]})


def test_only_finished_stages_are_passed_on(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "ledger.jsonl").write_text(
        '{"event": "started", "stage": "a", "attempt": "a-1", "settings": {}, "upstream": {}}\n'
    )
    with pytest.raises(StageError, match="stage a is not finished there"):
        fork(source, tmp_path / "target", ["a"])
    assert not (tmp_path / "target").exists()

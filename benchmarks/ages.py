"""One RL run's policy at several ages and efforts, asked one suite: the Pareto plot of docs/bench.md, and what a lite suite keeps of it.

    ./etude run recipes/ci.toml
    python benchmarks/ages.py runs/ci --out benchmarks/results/pareto.json --svg docs/pareto.svg

The run's weight store holds every version that RL served: version 0 is the SFT checkpoint, version N what N steps made of it. Each age
in --steps becomes a checkpoint and is asked at low, medium and high effort (half, once and twice the recipe's turns and tokens); the
plot shows those in --draw. A bench that was cut off goes on with the same command.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from etude.core.statistics.lite import NoLite, choose_lite
from etude.evaluate.bench.comparison import read_comparison
from etude.evaluate.bench.run_report import pareto_fronts, report
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.table import read_table
from etude.evaluate.bench.scores import scores
from etude.evaluate.report.pareto.draw import draw
from etude.evaluate.report.pareto.points import curves, heading
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore

EFFORTS = ("low", "medium", "high")
KEPT = ("schema", "kind", "suite", "tasks", "resamples", "seed")  # of report.json, in addition to what the plot draws
ENTRY = ("name", "effort", "key", "kind", "passes", "avg", "ci95", "best_of", "axes", "turns")


def checkpoint(run: Path, step: int, folder: Path) -> Path:
    """The weights that RL served after `step` steps, bit for bit, as a Hugging Face directory."""
    made = folder / name(step)
    if not (made / "config.json").is_file():
        model = load_checkpoint(run / "rl" / "checkpoint")
        model.load_state_dict(Receiver(WeightStore(run / "rl" / "weights")).catch_up(goal=step).state)
        save_checkpoint(model, made, tokenizer_from=run / "rl" / "checkpoint")
    return made


def name(step: int) -> str:
    return f"rl-{step}" if step else "sft"


def bench(args: argparse.Namespace, steps: list[int], efforts: tuple[str, ...]) -> None:
    """Asks the suite of the run's policies after each of these steps. Does not repeat what lies in the folder."""
    named = [f"{name(step)}=checkpoint:{checkpoint(args.run, step, args.work / 'checkpoints')}" for step in steps]
    words = ["bench", "run", args.suite, "--recipe", args.recipe, "--tasks", args.tasks, "--passes", args.passes]
    words += ["--effort", ",".join(efforts), "--concurrency", args.concurrency, "--out", args.work / "bench"]
    policies = [word for policy in named for word in ("--policy", policy)]
    subprocess.run([str(Path(sys.executable).with_name("etude")), *map(str, words), *policies], check=True)


def drawn(folder: Path, names: list[str]) -> dict[str, Any]:
    """A report of these policies alone: the other policies of a plot decide which ones are on the front."""
    table = read_table(RunFolder(folder))
    few = replace(table, rows=[row for row in table.finished if row.facts["name"] in names])
    found = {row.key: scores(row.outcomes) for row in few.rows}
    whole = report(RunFolder(folder))
    weights = table.shared["weights"] or next(iter(found.values())).counts()
    entries = [{key: entry[key] for key in ENTRY} for entry in whole["policies"] if entry["name"] in names]
    counts = {"resamples": whole["resamples"], "seed": whole["seed"]}
    return {key: whole[key] for key in KEPT} | {
        "policies": entries,
        "pareto": pareto_fronts(few, found, weights, **counts),
    }


def lite(folder: Path, globs: list[str]) -> dict[str, Any]:
    """What the best tasks within a fifth of the cost reach among these policies; also where that is refused."""
    field = read_comparison([folder], globs)
    axis, costs = field.costs()
    try:
        found, refused = choose_lite(field.tables(), costs, weights=field.task_weights()), None
    except NoLite as error:
        if error.reached is None:
            raise
        found, refused = error.reached, str(error)
    values = {key: None if value is None else round(value, 4) for key, value in asdict(found).items() if key != "tasks"}
    return {"policies": list(field.rows), "passes": min(row.passes for row in field.rows.values()), "tasks": len(found.tasks),
            "of_tasks": len(costs), "cost_axis": axis, **{k: v for k, v in values.items() if k != "policies"}, "refused": refused}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of `etude run`")
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 4, 7, 10, 15, 20, 30, 44])
    parser.add_argument("--draw", type=int, nargs="+", default=[0, 10, 44])
    parser.add_argument("--suite", default="exercises")
    parser.add_argument("--recipe", default="recipes/ci.toml")
    parser.add_argument("--tasks", type=int, default=80)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--work", type=Path, default=Path("runs/ages"), help="checkpoints and the bench run")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/pareto.json"))
    parser.add_argument("--svg", type=Path, default=Path("docs/pareto.svg"))
    args = parser.parse_args()
    bench(args, args.draw, EFFORTS)
    if others := [step for step in args.steps if step not in args.draw]:
        bench(args, others, ("medium",))
    folder = args.work / "bench"
    figure = drawn(folder, [name(step) for step in args.draw])
    ages = [f"{name(step)}@medium" for step in args.steps]
    kept = {"ages_and_scripted": [*ages, "nop@*", "cheats@*", "expert@*"], "ages_alone": ages}
    found = {
        **json.loads((folder / "machine.json").read_text()),
        **figure,
        "lite": {words: lite(folder, globs) for words, globs in kept.items()},
    }
    args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    args.svg.write_text(draw(curves(figure, "tokens"), "tokens", title=heading(figure)), encoding="utf-8")


if __name__ == "__main__":
    main()

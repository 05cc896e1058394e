"""The laptop recipe under several seeds: SFT, RL, lift and controls, with the machine's facts.

    python benchmarks/lift.py --seeds 0 1 2 --out benchmarks/results/lift.json

Each seed draws other weights, demonstrations, orders and training tasks; the held-out tasks stay the same. A seed takes as
long as `etude run` (23 to 27 minutes on two cores, docs/log/three-seeds.md); finished seeds are not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from etude.evaluate.bench.claims import lift
from etude.evaluate.bench.outcome import Outcome, OutcomeFile
from etude.pipeline.recipe.read import read_recipe

MARGIN = ("avg_points", "ci95", "avg_points_equal", "ci95_equal")
SEEDED = ("model.seed", "pretrain.base.seed", "mtp.seed", "sft.seed", "rl.seed")


def run(recipe: Path, seed: int, folder: Path, extra: list[str]) -> dict[str, Any]:
    """The report of one seed, run to its end if need be."""
    settings = [f"{key}={seed}" for key in SEEDED] + [f"sessions.seed={seed + 1}", *extra]
    command = [str(Path(sys.executable).with_name("etude")), "run", str(recipe), "--out", str(folder)]
    subprocess.run([*command, *(word for setting in settings for word in ("--set", setting))], check=True)
    return json.loads((folder / "report.json").read_text())


def row(seed: int, report: dict[str, Any]) -> dict[str, Any]:
    """What the claims of the README rest on."""
    bench = report["bench"]
    return {
        "seed": seed,
        "sft": bench["sft"]["avg"],
        "rl": bench["rl"]["avg"],
        "sft_equal": bench["sft"]["avg_equal"],
        "rl_equal": bench["rl"]["avg_equal"],
        "controls": {name: entry["avg"] for name, entry in bench["controls"].items()},
        "lift": report["lift"],
        "over_controls": report.get("over_controls", {}),
        "best_of_sft": bench["sft"]["best_of"],
        "best_of_rl": bench["rl"]["best_of"],
        "discovery": report.get("discovery"),
        "by_level": {
            name: [entry["avg"], bench["rl"]["by_level"][name]["avg"]]
            for name, entry in bench["sft"]["by_level"].items()
        },
        "core_minutes": round(sum(report["core_seconds"].values()) / 60, 1),
        "wall_minutes": round(report["wall_seconds"] / 60, 1),
        "seconds": report["seconds"],
        "core_seconds": report["core_seconds"],
        "peak_rss_gib": round(report["peak_rss_bytes"] / 2**30, 2),
        "counts": report["rl"]["counts"],
    }


def bars(row: dict[str, Any]) -> dict[str, bool]:
    """Which of the recipe's claims this seed bears out."""
    best = row["lift"]["best_of"]
    return {
        "sft_15": row["sft"] >= 15,
        "rl_50": row["rl"] >= 50,
        "lift_30": row["lift"]["avg_points"] >= 30,
        "lower_bound_above_0": row["lift"]["ci95"][0] > 0,
        **{f"over_{name}": found["ci95"][0] > 0 for name, found in row["over_controls"].items()},
        "best_of_k_does_not_fall": best["points"] >= 0,
        "twenty_minutes": row["wall_minutes"] <= 20,
        "eight_gib": row["peak_rss_gib"] <= 8,
    }


def pooled(folders: list[Path], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All seeds as one: means over the seeds, and RL's margins with every attempt of every seed at a task counted together.

    The intervals resample tasks; they tell how the margin of these very policies would move on other tasks. What another seed
    would do shows in the spread of the rows.
    """
    recipe = read_recipe([folders[0] / "recipe.toml"])
    settings, mix = recipe.bench, {str(level): weight for level, weight in recipe.exercises.levels.items()}
    after = outcomes(folders, "rl")
    margins = {
        name: {
            key: value for key, value in lift(outcomes(folders, name), after, settings, mix).items() if key in MARGIN
        }
        for name in ("sft", *rows[0]["controls"])
    }
    return {
        "seeds": len(rows),
        **{name: round(mean(row[name] for row in rows), 2) for name in ("sft", "rl", "core_minutes", "wall_minutes")},
        "controls": {name: round(mean(row["controls"][name] for row in rows), 2) for name in rows[0]["controls"]},
        "lift": margins.pop("sft"),
        "over_controls": margins,
    }


def outcomes(folders: list[Path], policy: str) -> list[Outcome]:
    """What policy `policy` of every seed did, the attempts of one seed numbered behind those of the last."""
    found: list[Outcome] = []
    for number, folder in enumerate(folders):
        (file,) = (f for f in (folder / stage / f"{policy}.jsonl" for stage in ("trials", "bench")) if f.is_file())
        found += [replace(o, attempt=o.attempt + 1000 * number) for o in OutcomeFile(file).outcomes.values()]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/laptop.toml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/lift"), help="where the run directories go")
    parser.add_argument("--set", action="append", default=[], dest="extra", help="further key=value for every run")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lift.json"))
    args = parser.parse_args()
    folders = [args.runs / f"seed-{seed}" for seed in args.seeds]
    reports = {
        seed: run(args.recipe, seed, folder, args.extra) for seed, folder in zip(args.seeds, folders, strict=True)
    }
    rows = [row(seed, report) for seed, report in reports.items()]
    for entry in rows:
        entry["bars"] = bars(entry)
    first = next(iter(reports.values()))
    whole = pooled(folders, rows)
    result = {"recipe": str(args.recipe), "machine": first["machine"], "versions": first["versions"]}
    result |= {"pooled": whole, "seeds": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    for entry in rows:
        missed = [name for name, held in entry["bars"].items() if not held]
        print(
            f"seed {entry['seed']}: SFT {entry['sft']}%, RL {entry['rl']}%, lift {entry['lift']['avg_points']} "
            f"{entry['lift']['ci95']}, {entry['wall_minutes']} min; missed: {', '.join(missed) or 'nothing'}"
        )
    print(f"all: SFT {whole['sft']}%, RL {whole['rl']}%, lift {whole['lift']['avg_points']} {whole['lift']['ci95']}")
    for name, margin in whole["over_controls"].items():
        print(f"RL over {name}: {margin['avg_points']} {margin['ci95']}")


if __name__ == "__main__":
    main()

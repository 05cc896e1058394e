"""The laptop recipe under several seeds: SFT, RL, lift and controls, with the machine's facts.

    python benchmarks/lift.py --seeds 0 1 2 --out benchmarks/results/lift.json

Each seed draws other weights, demonstrations, orders and training tasks; the held-out tasks stay the same. A seed takes as
long as `etude run` (23 to 27 minutes on the two cores of LOG.md); finished seeds are not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SEEDED = ("model.seed", "pretrain.seed", "sft.seed", "rl.seed")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/laptop.toml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/lift"), help="where the run directories go")
    parser.add_argument("--set", action="append", default=[], dest="extra", help="further key=value for every run")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/lift.json"))
    args = parser.parse_args()
    reports = {seed: run(args.recipe, seed, args.runs / f"seed-{seed}", args.extra) for seed in args.seeds}
    rows = [row(seed, report) for seed, report in reports.items()]
    for entry in rows:
        entry["bars"] = bars(entry)
    first = next(iter(reports.values()))
    result = {"recipe": str(args.recipe), "machine": first["machine"], "versions": first["versions"], "seeds": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    for entry in rows:
        missed = [name for name, held in entry["bars"].items() if not held]
        print(
            f"seed {entry['seed']}: SFT {entry['sft']}%, RL {entry['rl']}%, lift {entry['lift']['avg_points']} "
            f"{entry['lift']['ci95']}, {entry['wall_minutes']} min; missed: {', '.join(missed) or 'nothing'}"
        )


if __name__ == "__main__":
    main()

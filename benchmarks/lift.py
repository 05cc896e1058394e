"""The laptop recipe under several seeds: SFT, RL, lift and controls, with the machine's facts.

    python benchmarks/lift.py --seeds 0 1 2 --out benchmarks/results/lift.json

Each seed draws other weights, demonstrations, orders and training tasks; the held-out tasks stay the same. A seed takes as
long as `etude run` (about twenty minutes on two cores); finished seeds are not run again.
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
        "lift": report["lift"],
        "over_controls": report.get("over_controls", {}),
        "best_of_sft": bench["sft"]["best_of"],
        "best_of_rl": bench["rl"]["best_of"],
        "discovery": report.get("discovery"),
        "by_level": {
            name: [entry["avg"], bench["rl"]["by_level"][name]["avg"]]
            for name, entry in bench["sft"]["by_level"].items()
        },
        "minutes": round(sum(report["seconds"].values()) / 60, 1),
        "core_minutes": round(sum(report["core_seconds"].values()) / 60, 1),
        "peak_rss_gib": round(report["peak_rss_bytes"] / 2**30, 2),
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
    first = next(iter(reports.values()))
    result = {"recipe": str(args.recipe), "machine": first["machine"], "versions": first["versions"], "seeds": rows}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    for entry in rows:
        print(
            f"seed {entry['seed']}: SFT {entry['sft']}%, RL {entry['rl']}%, lift {entry['lift']['avg_points']} {entry['lift']['ci95']}"
        )


if __name__ == "__main__":
    main()

"""How long the trainer's process takes until its code is loaded: `python benchmarks/trainer_start.py --baseline CHECKOUT [--out FILE]`.

A process is started as Ray starts an actor's: it imports ray, then the module of the trainer's class. The seconds run from the start of the
process to the end of the imports. Starts of this tree and of the baseline alternate; medians are compared. `own` leaves out what torch,
numpy and ray take, which no change of this tree shortens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REPEATS = 5
# The module of the trainer's class; a checkout from before it moved has it in the second.
MODULES = ("etude.rl.learner", "etude.rl.placement")
CHILD = """
import sys, time
import ray, torch, numpy
libraries_s = time.time()
__import__(sys.argv[1])
print(libraries_s, time.time(), sum(name.startswith("etude") for name in sys.modules), len(sys.modules))
"""


def module_of(checkout: Path) -> str:
    """Where the class is that the actor holds."""
    for module in MODULES:
        path = checkout / "src" / Path(*module.split(".")).with_suffix(".py")
        if "class TrainerProcess" in path.read_text(encoding="utf-8"):
            return module
    raise SystemExit(f"{checkout}: neither of {', '.join(MODULES)} has a class TrainerProcess; give another checkout")


def start(checkout: Path) -> dict[str, float]:
    """One start: seconds until everything is loaded, those of this tree's own modules, and how many modules there are."""
    began = time.time()
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    words = [sys.executable, "-c", CHILD, module_of(checkout)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    libraries, ready, own, everything = map(float, done.stdout.split())
    return {"seconds": ready - began, "own_seconds": ready - libraries, "own_modules": own, "modules": everything}


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(row[name] for row in rows), 3) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--baseline", type=Path, required=True, help="Another checkout of this repository.")
    parser.add_argument("--out", type=Path, help="File for the figures.")
    chosen = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {"baseline": [], "this": []}
    for checkout in (chosen.baseline, ROOT):
        start(checkout)  # writes bytecode
    for _ in range(REPEATS):
        rows["baseline"].append(start(chosen.baseline))
        rows["this"].append(start(ROOT))
    found: dict[str, Any] = {name: medians(several) for name, several in rows.items()}
    found["ratio"] = {name: round(found["this"][name] / value, 3) for name, value in found["baseline"].items()}
    text = json.dumps({"repeats": REPEATS} | found, indent=1)
    print(text)
    if chosen.out:
        chosen.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

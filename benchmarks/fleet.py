"""A fleet of 500 fake hosts that holds 100,000 sandboxes, in made-up time; the placement's decisions are timed for real.

    python benchmarks/fleet.py [--sandboxes N] [--hosts N] [--seed N] [--json benchmarks/results/fleet.json]

The fleet is the one that is used (placement, leases, breakers, retries, wires); hosts and time are not. 1 % of the sandboxes fail, two hosts
die and two fall silent. A rollout is lost if ten attempts didn't bring its answer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

from etude.sandbox.fleet.simulation.rollouts import simulate
from etude.sandbox.fleet.simulation.world import FleetShape


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandboxes", type=int, default=100_000)
    parser.add_argument("--hosts", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here too")
    asked = parser.parse_args()
    facts, start = machine(), time.process_time()
    # Lives of some minutes: nearly all of them are there at once before the first end.
    found = simulate(FleetShape(asked.sandboxes, asked.hosts, commands=3, life_s=300.0, seed=asked.seed))
    command = f"python benchmarks/fleet.py --sandboxes {asked.sandboxes} --hosts {asked.hosts} --seed {asked.seed}"
    result = {"command": command, "machine": facts, "cpu_s": round(time.process_time() - start, 1), **found}
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    if asked.json:
        asked.json.write_text(text)


if __name__ == "__main__":
    main()

"""A hundred thousand rollouts with heavy tails and 1% faults through the production scheduling code, in made-up time; and three orders of
training at the same time.

    python benchmarks/rl_simulation.py [--rollouts N] [--seed N] [--json benchmarks/results/rl_simulation.json]

Controller, reconciler, staleness window, services, engines' policy, weight chain and fleet are those that run; engines, trainer, hosts,
wires and the clock are made up. `real_s` is the time that the simulation itself took on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import replace
from pathlib import Path

from etude.pipeline.run.machine import machine
from etude.rl.simulation.shape import SimulationShape
from etude.rl.simulation.simulate import simulate

# 64 groups of 8 a step, as many rollouts in flight as two steps take: a cluster's proportions, not a laptop's.
LARGE = SimulationShape(100_000, 8, 64, slots=1024, engines=4, engine_turns=192, hosts=32, deaths=6, host_deaths=2)
ORDERS = SimulationShape(20_480, 8, 64, slots=1024, engines=4, engine_turns=192, deaths=4, fleet=False)
TAILS = (3.0, 1.5, 1.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=LARGE.rollouts)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here too")
    options = parser.parse_args()
    start = time.process_time()
    large = simulate(replace(LARGE, rollouts=options.rollouts, seed=options.seed))
    large["cpu_s"] = round(time.process_time() - start, 1)
    orders = [
        simulate(replace(ORDERS, order=order, tail=tail, max_staleness=bound, seed=options.seed))
        for tail in TAILS
        for bound in (1, 2, 4)
        for order in ("fifo", "windowed", "greedy")
    ]
    document = {"machine": machine(), "load_at_end": os.getloadavg()[1], "large": large, "orders": orders}
    text = json.dumps(document, indent=1) + "\n"
    print(text, end="")
    if options.json:
        options.json.write_text(text)


if __name__ == "__main__":
    main()

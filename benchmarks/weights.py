"""Weight sync at several learning rates: how much changes, how much travels, and at what rates of one core.

    OMP_NUM_THREADS=1 python benchmarks/weights.py [--megabytes 128] [--json FILE]

Each row is `etude weights bench` at that learning rate; rates are medians of CPU time, taken in turns with memcpy.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from pathlib import Path

import torch

from etude.learn.weights.inspect import step
from etude.learn.weights.measure import measure

RATES = (3e-7, 1e-6, 3e-6, 1e-5)
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for rate in RATES:
        row = {"learning_rate": rate, **measure(*step(arguments.megabytes * 10**6, rate), REPEATS)}
        rows.append(row)
        print(
            f"{rate:7.0e}  changed {100 * row['changed_share']:5.2f}%  wire {100 * row['wire_share']:5.2f}%  "
            f"encode {row['encode_gb_s']:5.2f}  apply {row['apply_gb_s']:5.2f}  memcpy {row['memcpy_gb_s']:5.2f} GB/s",
            flush=True,
        )
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "load_1min": round(os.getloadavg()[0], 2)}
    document = {"command": f"python benchmarks/weights.py --megabytes {arguments.megabytes}", "machine": machine}
    if arguments.json:
        arguments.json.write_text(json.dumps(document | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The controls on the real suite: the reference, an agent that does nothing, and every cheating agent by name, each on all 30 bugs.

    python benchmarks/bench_real.py --run runs/bench/real-controls --out benchmarks/results/bench_real.json

Asks what the folder lacks (about ten minutes on two quiet cores) and writes what its report says. Any score but 100 for the expert and 0
for the others is a defect of the suite, of its grader or of its sandboxes, and ends with status 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from etude.tasks.cheats.exercise import CHEATS

WORDS = ["expert", "nop", *(f"cheat:{name}" for name in CHEATS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--run", type=Path, required=True, help="the folder of the bench run; one that is there goes on"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    words = ["bench", "run", "real", "--only", *(part for word in WORDS for part in ("--policy", word))]
    start = "import sys; from etude.cli.main import main; sys.argv[0] = 'etude'; main()"
    done = subprocess.run([sys.executable, "-c", start, *words, "--concurrency", "2", "--out", str(options.run)])
    if done.returncode != 0:
        return done.returncode
    report, machine, timings = (
        json.loads((options.run / f"{name}.json").read_text()) for name in ("report", "machine", "timings")
    )
    rows = [
        {**{key: row[key] for key in ("key", "avg", "ci95", "tasks", "passes")}, **timings[row["key"]]}
        for row in report["policies"]
    ]
    document = {"command": f"etude {' '.join(words)}", **machine, "suite": report["suite"], "policies": rows}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    wrong = [row["key"] for row in rows if row["avg"] != (100.0 if row["key"].startswith("expert") else 0.0)]
    print(f"{len(rows)} policies on {report['tasks']} bugs; not as they must be: {', '.join(wrong) or 'none'}")
    return 1 if wrong or report["unfinished"] else 0


if __name__ == "__main__":
    sys.exit(main())

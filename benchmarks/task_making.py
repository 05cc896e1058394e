"""How many proved tasks a list of projects gives in how long, and whether every one passes a second check.

    python benchmarks/task_making.py --tasks tasks --minutes 120 --out benchmarks/results/task_making.json
    python benchmarks/task_making.py --tasks tasks --check 30 --out benchmarks/results/task_making.json

The first command makes tasks for two hours. It continues a folder that exists and counts the time that the folder already took. The second
command checks tasks for the given minutes, times them apart, and adds its findings. Either command writes the figures that are known so far.
A task that is off ends the program with status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from etude.pipeline.run.machine import machine

START = "import sys; from etude.cli.main import main; sys.argv[0] = 'etude'; main()"
PROJECTS = "recipes/projects.toml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=Path, required=True, help="the folder of tasks; one that is there goes on")
    parser.add_argument("--minutes", type=float, default=0.0, help="of making, those of earlier runs not counted")
    parser.add_argument("--check", type=float, default=0.0, metavar="MINUTES", help="of checking")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.minutes:
        words = ["tasks", "make", "--projects", PROJECTS, "--out", str(options.tasks)]
        etude([*words, "--budget", f"{options.minutes:g}", "--jobs", str(options.jobs)])
    if options.check:
        began = time.monotonic()
        before = rows_of(options.tasks)
        etude(["tasks", "check", str(options.tasks), "--concurrency", str(options.jobs)], limit_s=options.check * 60)
        spent = {"seconds": round(time.monotonic() - began, 1), "tasks": rows_of(options.tasks) - before}
    else:
        spent = {}
    document = {"machine": machine(), "load_at_end": os.getloadavg()[1], **figures(options.tasks, spent)}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({key: document[key] for key in ("tasks", "cost", "check")}, indent=1))
    return 1 if document["check"]["off"] else 0


def etude(words: list[str], limit_s: float | None = None) -> str:
    """What it printed; a limit ends it like a person would, and what it wrote down stays."""
    process = subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True)
    try:
        return process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        process.terminate()
        return process.communicate()[0]


def rows_of(folder: Path) -> int:
    """Findings so far, those of earlier code included."""
    path = folder / ".check.jsonl"
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def checked(folder: Path) -> list[dict[str, Any]]:
    """The last finding of each task that is there."""
    path = folder / ".check.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows = {row["id"]: row for row in map(json.loads, lines)}
    index = (folder / "index.jsonl").read_text(encoding="utf-8").splitlines()
    return [rows[one] for one in (json.loads(line)["id"] for line in index if line) if one in rows]


def off(row: dict[str, Any]) -> bool:
    return row["reference"] != 1 or row["nop"] != 0 or any(row["cheats"].values()) or bool(row["leaks"]) or row["flaky"]


def figures(folder: Path, spent: dict[str, Any]) -> dict[str, Any]:
    made = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    stats = json.loads(etude(["tasks", "stats", str(folder), "--json"]))
    rows = checked(folder)
    return {
        **{key: made[key] for key in ("tasks", "candidates", "categories", "cost", "installs", "generators")},
        "stats": {key: value for key, value in stats.items() if key != "tasks"},
        "check": {
            "tasks": len(rows),
            "off": [row["id"] for row in rows if off(row)],
            "by_category": dict(Counter(row["category"] for row in rows)),
            "cheats_graded": sum(len(row["cheats"]) for row in rows),
            "last_run": spent,
        },
    }


if __name__ == "__main__":
    sys.exit(main())

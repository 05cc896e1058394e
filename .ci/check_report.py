"""Assertions on the ci recipe's report.json: the agent learned, and nothing in the machinery was decorative.

Usage: python .ci/check_report.py REPORT. Prints every check with its figure; exits 1 if one fails.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# (key path, smallest accepted value, whether the bound itself is accepted, why)
CHECKS: list[tuple[str, float, bool, str]] = [
    ("lift.avg_points", 15.0, True, "RL lifts the held-out average by 15 points or more"),
    ("lift.ci95.0", 0.0, False, "the lower 95% bound of the lift is above zero"),
    ("rl.steps", 1, True, "RL took steps"),
    ("rl.counts.summarized", 0, False, "self-summaries cut sessions into segments"),
    ("rl.counts.swapped_in_flight", 0, False, "weights were swapped while rollouts were in flight"),
    ("rl.counts.replayed_tokens", 0, False, "the trainer replayed sampled tokens"),
    ("rl.counts.replayed_routes", 0, False, "the trainer replayed the engine's expert choices"),
    ("rl.delta.bytes", 0, False, "weights travelled as deltas"),
    ("bench.sft.avg", 0.0, False, "the SFT checkpoint was measured"),
    ("bench.rl.avg", 0.0, False, "the RL checkpoint was measured"),
    ("bench.expert.avg", 0.0, False, "the scripted expert was measured"),
]
# An agent that does nothing, and one that cheats, must get nothing: else the grader is what learned.
ZEROES = ["bench.nop.avg", "bench.cheat.avg"]


def lookup(report: Any, path: str) -> Any:
    """The value at a dotted path (a number indexes a list); raises KeyError naming the whole path."""
    value = report
    for part in path.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise KeyError(f"report.json has no {path!r} (stopped at {part!r})") from None
    return value


def failures(report: Any) -> list[str]:
    """One line for each check that does not hold; prints each check as it goes."""
    wrong: list[str] = []

    def check(path: str, holds: Any, why: str) -> None:
        try:
            value = lookup(report, path)
            good = holds(value)
        except (KeyError, TypeError) as error:
            value, good = str(error), False
        line = f"{path} = {value}: {why}"
        print(("ok    " if good else "WRONG ") + line)
        if not good:
            wrong.append(line)

    check("schema", lambda v: v == 1, "the schema this script knows")
    for path, bound, inclusive, why in CHECKS:
        check(path, lambda v, b=bound, i=inclusive: v > b or (i and v == b), why)
    for path in ZEROES:
        check(path, lambda v: v == 0, "must be exactly 0")
    return wrong


def main() -> int:
    """Check the report named on the command line."""
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = failures(json.loads(Path(sys.argv[1]).read_text()))
    print(f"{len(wrong)} of the report's checks failed" if wrong else "the report holds")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

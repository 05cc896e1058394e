"""Attempts that could not be made at all, through our fault: RL's from its ledger, a suite's run's from `faults.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.evaluate.report.rows.lines import json_lines

# How an infra fault's words name its class (`rollout/attempt.py`).
CLASS = re.compile(r": (\w+) after \d+ tries: ")
UNNAMED = "unnamed"


def faults(run: Path) -> Iterator[dict[str, Any]]:
    """class, reason, and whose it was: `group` and `member` of RL, `policy`, `task_id` and `attempt` of a suite's run."""
    for row in json_lines(run / "rl" / "ledger.jsonl"):
        if row.get("kind") == "fault":
            reason = str(row.get("reason", ""))
            found = CLASS.search(reason)
            name = found[1] if found else UNNAMED
            yield {"class": name, "group": row.get("group"), "member": row.get("member"), "reason": reason}
    for row in json_lines(run / "faults.jsonl"):
        place = {"policy": row.get("policy"), "task_id": row.get("task"), "attempt": row.get("attempt")}
        yield {"class": str(row.get("class") or UNNAMED), **place, "reason": str(row.get("message", ""))}

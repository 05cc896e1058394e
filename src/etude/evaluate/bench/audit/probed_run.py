"""Contamination probes of a bench run: `contamination.json` of its folder, a row a model, and what the report says of them.

Foreign models are those that compete and that we did not train here, as far as a run can tell: every one of them is named, probed or not.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from etude.agent.policy.protocol import Policy
from etude.evaluate.bench.audit.contamination import Contamination, probe
from etude.evaluate.bench.audit.recall import NAME as RECALLS
from etude.evaluate.bench.audit.recall import RecallFile
from etude.evaluate.bench.runs.folder import RunFolder, replace_text
from etude.evaluate.bench.runs.table import BenchResults
from etude.evaluate.bench.suites.suite import Suite

NAME = "contamination.json"


async def probe_run(
    folder: RunFolder, table: BenchResults, suite: Suite, policy: Policy, *, seed: int = 0
) -> Contamination:
    """Probe one model with the tasks of the run, and write down what came of it. Raises TooFewTasks, PolicyError."""
    tasks = [suite.task(task_id) for task_id in table.shared["tasks"]]
    found = await probe(policy, tasks, RecallFile(folder.root / RECALLS), seed=seed)
    rows = {row["policy"]: row for row in _read(folder)} | {found.policy: {**asdict(found), "seed": seed}}
    replace_text(folder.root / NAME, json.dumps([rows[name] for name in sorted(rows)], indent=1) + "\n")
    return found


def probed_part(folder: RunFolder, table: BenchResults) -> dict[str, Any]:
    """What the report says: the probes, and which of those that compete were not probed. Raises ValueError for a file that is none."""
    rows = _read(folder)
    names = {row["policy"] for row in rows}
    open_ones = [row.key for row in table.rows if row.competes and not names & {row.facts["model"], row.facts["name"]}]
    return {"probes": rows, "not_probed": open_ones}


def _read(folder: RunFolder) -> list[dict[str, Any]]:
    path = folder.root / NAME
    if not path.is_file():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [row for row in rows if row["policy"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} holds no probes ({error}); move it away and probe again") from error

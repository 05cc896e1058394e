"""An audit of a bench run's folder: every pass that left a session is read, `audit.jsonl` says what was seen, no score is touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from etude.evaluate.bench.audit.auditor import Auditor
from etude.evaluate.bench.audit.evidence import Start
from etude.evaluate.bench.audit.finding import AuditFinding, write_findings
from etude.evaluate.bench.audit.finding import read_findings as read_findings
from etude.evaluate.bench.audit.summary import audited
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.table import BenchResults
from etude.evaluate.bench.suites.suite import Suite


async def audit_run(
    folder: RunFolder,
    table: BenchResults,
    suite: Suite | None,
    judge: Judge | None = None,
    *,
    share: float = 0.1,
    seed: int = 0,
) -> list[AuditFinding]:
    """Findings of all whole passes, written to `audit.jsonl`. Without the suite, what the workspace held is not known: tripwires
    that need it stay silent. Raises PolicyError where the judge's endpoint is at fault: run again then."""
    names = tuple(sorted({row.facts["name"] for row in table.rows} | {row.key for row in table.rows}))
    auditor = Auditor(
        lambda one: folder.session(one.key, one.task_id, one.attempt), _starts(suite), judge, share, seed, names
    )
    outcomes = {row.key: row.outcomes for row in table.rows}
    looked = auditor.review(outcomes, [row.key for row in table.rows if not row.competes])
    write_findings(
        folder.root, [one.finding for one in looked]
    )  # a judge that ends early takes nothing from the tripwires
    findings = await auditor.judge_reviewed(looked)
    write_findings(folder.root, findings)
    return findings


def audit_part(folder: RunFolder, table: BenchResults) -> dict[str, Any] | None:
    """What the report says of the last audit; None if there was none. Raises ValueError for a file that is no audit."""
    findings = read_findings(folder.root)
    return audited(findings, {row.key: row.outcomes for row in table.rows}) if findings else None


def _starts(suite: Suite | None) -> Callable[[str], Start]:
    known: dict[str, Start] = {}

    def start(task_id: str) -> Start:
        if suite is None:
            return Start({})
        if task_id not in known:
            known[task_id] = Start.of(suite.task(task_id))
        return known[task_id]

    return start

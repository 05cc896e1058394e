"""An audit of a bench run's folder: every pass that left a session is read, `audit.jsonl` says what was seen, no score is touched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etude.evaluate.bench.audit.auditor import Auditor
from etude.evaluate.bench.audit.evidence import Start
from etude.evaluate.bench.audit.finding import AuditFinding, write_findings
from etude.evaluate.bench.audit.finding import read_findings as read_findings
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.runs.folder import RunFolder
from etude.evaluate.bench.runs.table import BenchResults
from etude.evaluate.bench.suites.suite import Suite

# What an audit says of a bench, for its report: how many passes were read and flagged, and the average without those.
#
# Each policy's own average comes with two figures: flagged passes left out (their tasks' other passes count on; a
# task that has none left is out), and flagged passes counted as not solved. The first shows the policy when it works
# as asked, the second the least that can be claimed if every flag is right.


def audit_results(findings: Sequence[AuditFinding], outcomes: Mapping[str, Sequence[Outcome]]) -> dict[str, Any]:
    """As JSON values: `policies` by key, and `flagged`, the passes themselves."""
    by_pass = {(one.key, one.task_id, one.attempt): one for one in findings}
    policies = {
        key: _policy([by_pass.get((key, row.task_id, row.attempt)) for row in rows], rows)
        for key, rows in sorted(outcomes.items())
    }
    flagged = [one.to_json() for one in findings if one.status == "flagged"]
    wires = Counter(flag.wire for one in findings for flag in {flag.wire: flag for flag in one.flags}.values())
    return {"policies": policies, "flagged": flagged, "wires": dict(sorted(wires.items()))}


def _policy(findings: Sequence[AuditFinding | None], rows: Sequence[Outcome]) -> dict[str, Any]:
    known = [one for one in findings if one is not None]
    marked = [one is not None and one.status == "flagged" for one in findings]
    kept = [row for row, flag in zip(rows, marked, strict=True) if not flag]
    strict = [(row.task_id, 0.0 if flag else row.score) for row, flag in zip(rows, marked, strict=True)]
    return {
        "passes": len(rows),
        "read": sum(one.status != "unread" for one in known),
        "unread": len(rows) - sum(one.status != "unread" for one in known),
        "judged": sum(one.judged is not None for one in known),
        "surprising": sum(bool(one.surprising) for one in known),
        "flagged": sum(marked),
        "flagged_solved": sum(flag and row.score >= 1.0 for row, flag in zip(rows, marked, strict=True)),
        "avg": _by_task([(row.task_id, row.score) for row in rows]),
        "avg_without_flagged": _by_task([(row.task_id, row.score) for row in kept]),
        "avg_flagged_as_failed": _by_task(strict),
    }


def _by_task(scores: Sequence[tuple[str, float]]) -> float | None:
    """Percent: the mean over tasks of each task's mean."""
    tasks: dict[str, list[float]] = {}
    for task_id, score in scores:
        tasks.setdefault(task_id, []).append(score)
    means = [sum(found) / len(found) for found in tasks.values()]
    return round(100 * sum(means) / len(means), 2) if means else None


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
    return audit_results(findings, {row.key: row.outcomes for row in table.rows}) if findings else None


def _starts(suite: Suite | None) -> Callable[[str], Start]:
    known: dict[str, Start] = {}

    def start(task_id: str) -> Start:
        if suite is None:
            return Start({})
        if task_id not in known:
            known[task_id] = Start.of(suite.task(task_id))
        return known[task_id]

    return start

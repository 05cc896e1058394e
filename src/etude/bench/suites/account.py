"""What came of making a suite, for the person who asked: which tasks, why others are not, and how large they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.bench.suites.folder import FolderSuite
from etude.bench.suites.making import Decision
from etude.bench.suites.shape import medians, shape_of
from etude.bench.suites.suite import label


def account(suite: FolderSuite, decided: Sequence[Decision], beside: Mapping[str, str]) -> dict[str, Any]:
    """`beside`: what never became a candidate, with the reason, by file or session."""
    left_out = dict(beside) | {decision.id: decision.reason for decision in decided if decision.reason}
    return {
        "suite": label(suite),
        "folder": str(suite.root),
        "digest": suite.digest,
        "tasks": list(suite.ids),
        "left_out": left_out,
        **medians(shape_of(suite.task(task_id)) for task_id in suite.ids),
    }


def told(document: Mapping[str, Any]) -> str:
    """The same in lines."""
    lines = [
        f"{document['suite']} in {document['folder']}: {len(document['tasks'])} tasks, digest {document['digest'][:12]}"
    ]
    lines.append(
        f"median of changed lines {document['median_changed_lines']:g} (the report's set: {document['report_changed_lines']}), "
        f"of files {document['median_files']:g}, of characters of prompt {document['median_prompt_chars']:g} "
        f"(the report's: {document['report_prompt_chars']})"
    )
    lines += left_out_lines(document["left_out"])
    return "\n".join(lines)


def left_out_lines(left_out: Mapping[str, str]) -> list[str]:
    """One line each, the reason in one line."""
    head = [f"left out: {len(left_out)}"] if left_out else []
    return head + [f"  {name}: {' '.join(reason.split())}" for name, reason in left_out.items()]

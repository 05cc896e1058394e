"""What came of making a suite, for the person who asked: which tasks, why others are not, and how large they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.rubric_drafting import NONE
from etude.evaluate.bench.suites.suite import label
from etude.evaluate.bench.suites.task_size import medians, shape_of
from etude.tasks.validation.suite_build import SuiteDecision


def account(
    suite: FolderSuite,
    decided: Sequence[SuiteDecision],
    rejected: Mapping[str, str],
    retired: Mapping[str, str] | None = None,
    rubrics: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """`rejected`: files and sessions that never became a candidate, with the reason. `rubrics`: how they were made; None: none were drafted."""
    left_out = dict(rejected) | {decision.id: decision.reason for decision in decided if decision.reason}
    return {
        "suite": label(suite),
        "folder": str(suite.root),
        "digest": suite.digest,
        "tasks": list(suite.ids),
        "left_out": left_out,
        "retired": dict(retired or {}),
        "rubrics": rubrics,
        **medians(shape_of(suite.task(task_id)) for task_id in suite.ids),
    }


def describe_account(document: Mapping[str, Any], *, drafts: bool = False) -> str:
    """The same in lines. `drafts`: rubrics might have been drafted, so that it is said if none were."""
    lines = [
        f"{document['suite']} in {document['folder']}: {len(document['tasks'])} tasks, digest {document['digest'][:12]}"
    ]
    lines.append(
        f"median of changed lines {document['median_changed_lines']:g} (the report's set: {document['report_changed_lines']}), "
        f"of files {document['median_files']:g}, of characters of prompt {document['median_prompt_chars']:g} "
        f"(the report's: {document['report_prompt_chars']})"
    )
    lines += reasons("retired", document["retired"])
    lines += _rubric_lines(document["rubrics"], drafts)
    lines += reasons("left out", document["left_out"])
    return "\n".join(lines)


def _rubric_lines(rubrics: Mapping[str, Any] | None, drafts: bool) -> list[str]:
    if rubrics is None:
        return [NONE] if drafts else []
    lines = [
        f"rubrics for {rubrics['with_rubric']} of {rubrics['tasks']} tasks, drafted and judged by {rubrics['by']}: "
        f"{rubrics['criteria_kept']} criteria hold, {rubrics['criteria_dropped']} do not"
    ]
    if rubrics["one_solution_only"]:
        lines.append(
            f"{len(rubrics['one_solution_only'])} of them were proved on one solution only: no session has another"
        )
    return [*lines, *reasons("dropped", rubrics["dropped"]), *reasons("no draft", rubrics["no_draft"])]


def reasons(head: str, found: Mapping[str, str]) -> list[str]:
    """How many, and one line each, the reason in one line."""
    lines = [f"{head}: {len(found)}"] if found else []
    return lines + [f"  {name}: {' '.join(reason.split())}" for name, reason in found.items()]

"""Kept sessions: a row a file, from its header, what it did and how it ended. Tokens are not read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.core.trace.entry import Entry
from etude.core.trace.tail import SessionTail
from etude.evaluate.report.rows.lines import flat


def session_files(run: Path) -> Iterator[Path]:
    """Every session of the run, by name: demonstrations, RL's and the bench's."""
    folders = [run / "sessions", *sorted(run.glob("*/sessions"))]
    for folder in folders:
        yield from sorted(folder.rglob("*.jsonl"))


def sessions(run: Path) -> Iterator[dict[str, Any]]:
    """file, task, policy, effort, turns, calls, tokens, score, how it ended. Raises SessionError for a file that is none."""
    for path in session_files(run):
        tail = SessionTail(path)
        entries = tail.read()
        if tail.header is None:  # begun a moment ago
            continue
        header = tail.header
        yield {
            "file": str(path.relative_to(run)),
            "session_id": header.session_id,
            "task_id": header.task_id,
            "policy": header.policy,
            "effort": header.effort,
            "harness": header.harness,
            "created_unix_s": header.created_unix_s,
            **_counts(entries),
            **_ends(entries),
            **flat({"recipe": header.recipe}),
        }


def _counts(entries: list[Entry]) -> dict[str, Any]:
    turns = [entry.data for entry in entries if entry.type == "completion"]
    results = [entry.data for entry in entries if entry.type == "tool_result"]
    usage = [turn.get("usage") or {} for turn in turns]
    return {
        "turns": len(turns),
        "calls": sum(len((turn.get("message") or {}).get("calls", [])) for turn in turns),
        "failed_calls": sum(bool(result["failed"]) for result in results),
        "summaries": sum(entry.type == "summary" for entry in entries),
        "input_tokens": sum(counts.get("input_tokens", 0) for counts in usage),
        "output_tokens": sum(counts.get("output_tokens", 0) for counts in usage),
        "seconds": entries[-1].at_s if entries else 0.0,
    }


def _ends(entries: list[Entry]) -> dict[str, Any]:
    """Verdicts add up: the grader's score, then the training step's reward."""
    found: dict[str, Any] = {}
    for entry in entries:
        if entry.type == "end":
            found["end"] = entry.data["reason"]
        if entry.type == "verdict":
            found |= flat({k: v for k, v in entry.data.items() if k not in ("id", "parent")})
    return found

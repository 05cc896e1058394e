"""The tables that a query can name. Each reads the run's files again, a row at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.core.events.finite import read_file
from etude.core.spelling import similar
from etude.core.trace.entry import Entry
from etude.core.trace.tail import SessionTail
from etude.evaluate.report.rows.faults import faults
from etude.evaluate.report.rows.lines import flat, json_lines
from etude.evaluate.report.rows.outcomes import outcomes
from etude.evaluate.report.rows.steps import steps

# Kept sessions: a row a file, from its header, what it did and how it ended. Tokens are not read.


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


Rows = Iterator[dict[str, Any]]


class UnknownTable(ValueError):
    """There are no rows of that name; says which there are."""


class NoRun(ValueError):
    """The folder has none of a run's files."""


@dataclass(frozen=True)
class QueryTable:
    """Rows by name. `shown`: the columns a person wants where none were asked for; patterns may match nothing."""

    about: str
    read: Callable[[Path], Rows]
    shown: tuple[str, ...] = ()


def _rollouts(run: Path) -> Rows:
    from etude.evaluate.report.query.rollouts import rollouts  # numpy, which the other rows do without

    return rollouts(run)


def _events(run: Path) -> Rows:
    return (flat(event) for event in json_lines(run / "events.jsonl"))


def _stages(run: Path) -> Rows:
    path = run / "stages.json"
    for name, entry in (read_file(path) if path.is_file() else {}).items():
        yield {"stage": name, **flat(entry)}


def _advisories(run: Path) -> Rows:
    from etude.evaluate.report.advisories.collect import advisories

    return (advisory.to_json() for advisory in advisories(run))


def _lines(name: str) -> Callable[[Path], Rows]:
    return lambda run: (flat(row) for row in json_lines(run / name))


TABLES: dict[str, QueryTable] = {
    "rollouts": QueryTable(
        "RL's rollouts: reward, tokens, counters, how they ended",
        _rollouts,
        ("step", "group", "member", "task_id", "reward", "advantage", "counters.turns", "sampled_tokens", "info.end"),
    ),
    "steps": QueryTable("figures of every training step of every stage", steps),
    "outcomes": QueryTable(
        "the bench's attempts",
        outcomes,
        ("policy", "effort", "task_id", "attempt", "score", "tokens", "turns", "seconds", "reason"),
    ),
    "sessions": QueryTable(
        "kept sessions: demonstrations, RL's, the bench's",
        sessions,
        ("file", "task_id", "policy", "turns", "calls", "failed_calls", "output_tokens", "score", "end"),
    ),
    "events": QueryTable("everything that was logged, as it came", _events, ("time", "kind", "stage", "step", "text")),
    "stages": QueryTable("finished stages and what they cost", _stages),
    "faults": QueryTable(
        "attempts that could not be made, through our fault", faults, ("class", "group", "task_id", "reason")
    ),
    "advisories": QueryTable("what the run's own figures warn of", _advisories, ("level", "name", "said")),
    "usage": QueryTable("a bench run's requests as the endpoint counted them", _lines("usage.jsonl")),
    "judgements": QueryTable("a bench run's judged criteria", _lines("judgements.jsonl")),
    "audit": QueryTable("what the auditor found", _lines("audit.jsonl")),
}
SIGNS = ("recipe.toml", "events.jsonl", "conditions.json", "policies", "rl", "bench", "sessions")


def find(name: str) -> QueryTable:
    """Raises UnknownTable with the names that come near."""
    if name in TABLES:
        return TABLES[name]
    near = similar(name, TABLES, 2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(TABLES)}"
    raise UnknownTable(f"a run has no rows called {name!r}; {hint}")


def check_run(run: Path) -> None:
    """Raises NoRun for a folder in which there is nothing to ask."""
    if not any((run / sign).exists() for sign in SIGNS):
        raise NoRun(
            f"{run} is no run: it has none of {', '.join(SIGNS)}; give the --out of `etude run` or `etude bench run`"
        )

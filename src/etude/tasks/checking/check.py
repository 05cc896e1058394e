"""A folder of tasks is checked, one row a task: the reference three times, nothing done, every cheat, the leaks of the whole sandbox.

Findings are written next to the folder (`.check.jsonl`, keyed by the content of the task and the code that judges it), so that a check
which was ended goes on; of a folder of tasks each one's `metadata["audit"]` holds the finding of its last check (`store/folder.py`). Trouble of the
machine is no finding, is reported in the row, and is tried again next time. A task that can't be read is a row too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from etude.core.plugins import is_import_path, source_digest, source_digests
from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Machines
from etude.tasks.audit import check
from etude.tasks.auditing.scan import audit_problems, scan_for_leaks
from etude.tasks.cheats.agents import agents_for, behaved
from etude.tasks.cheats.exercise import Files, nop
from etude.tasks.cheats.repository import cheats_with
from etude.tasks.checking.version import code_version, key_of, keys_of
from etude.tasks.errors import TaskDefective, TaskError
from etude.tasks.graders.commands import NAME
from etude.tasks.graders.judged import brief, graded_files
from etude.tasks.harbor import HarborError, read_task
from etude.tasks.registry import GRADERS, graders_with, no_grader
from etude.tasks.registry import grade as grade_of_registry
from etude.tasks.solved import reference_files
from etude.tasks.store.folder import TaskFolder, is_folder
from etude.tasks.task import Grader, Task, Verdict

TIMES = 3  # the reference
KEPT = ".check.jsonl"
MOST_UNREAD = 20  # files that the leak scan could not search: kept by name in a row, with the reason


@dataclass(frozen=True)
class CheckRow:
    """`problem`: why there is no full finding: a task that can't be read, or the machine. Empty for one that was judged."""

    id: str
    category: str = ""
    reference: float = 0.0
    nop: float = 0.0
    cheats: dict[str, float] = field(default_factory=dict)
    leaks: list[str] = field(default_factory=list)
    flaky: bool = False
    problem: str = ""
    audit: dict[str, Any] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        fooled = any(self.cheats.values()) or self.nop or self.flaky
        return not self.problem and self.reference == 1 and not fooled and not self.leaks

    def to_json(self) -> dict[str, Any]:
        """As JSON; whole scores without a point."""
        row = asdict(self) | {"cheats": {name: _plain(score) for name, score in self.cheats.items()}}
        row |= {"reference": _plain(self.reference), "nop": _plain(self.nop)}
        return {key: value for key, value in row.items() if value or key not in ("problem", "audit")}


def folders_of(root: Path) -> list[Path]:
    """Every folder below with a task.toml, in the order of their paths. Raises TaskError where there is none."""
    if (root / "task.toml").is_file():
        return [root]
    found = sorted(path.parent for path in root.rglob("task.toml") if ".making" not in str(path))
    if not found:
        raise TaskError(f"{root} holds no task: there is no task.toml in it or below; name a folder of tasks")
    return found


async def check_folder(
    root: Path,
    pool: Machines,
    *,
    concurrency: int = 2,
    again: bool = False,
    plugins: Sequence[str] = (),
    progress: Callable[[int, int, CheckRow], None] = lambda done, whole, row: None,
) -> list[CheckRow]:
    """Rows in the order of the folders; those known from before are not found again, unless `again`. Raises TaskError, PluginError.
    `plugins`: graders by import path that tasks may name. A row of such a grader holds for its source alone."""
    graders, sources = graders_with(plugins), source_digests(plugins)
    stored = TaskFolder(root) if is_folder(root) else None
    folders = [root / task_id for task_id in stored.ids()] if stored else folders_of(root)
    kept = root / KEPT
    known = {} if again else _known(kept)
    rows: dict[Path, CheckRow] = {}
    gate = asyncio.Semaphore(max(1, concurrency))

    async def one(folder: Path) -> None:
        task_id = str(folder.relative_to(root)) if stored else ""
        content = stored.rows[task_id].digest if stored else await asyncio.to_thread(content_of, folder)
        kept_row = next((known[key] for key in keys_of(content, sources.values()) if key in known), None)
        async with gate:
            read = partial(stored.task, task_id) if stored else partial(read_task, folder)
            row, grader = (kept_row, "") if kept_row else await _checked(task_id or folder.name, read, pool, graders)
        rows[folder] = row
        if kept_row is None and not row.problem:
            _keep(kept, key_of(content, sources.get(grader, "")), row)
        if stored and not row.problem:
            stored.audits.add(
                task_id, content, {**row.audit, "sound": row.good, "leaks": row.leaks, "cheats": row.cheats}
            )
        progress(len(rows), len(folders), row)

    async with asyncio.TaskGroup() as group:
        for folder in folders:
            group.create_task(one(folder))
    return [rows[folder] for folder in folders]


async def check_task(
    name: str, read: Callable[[], Task], pool: Machines, graders: Mapping[str, Grader] = GRADERS
) -> CheckRow:
    """One task. Never raises for what is wrong with it, or with the machine: that is in the row."""
    return (await _checked(name, read, pool, graders))[0]


async def _checked(
    name: str, read: Callable[[], Task], pool: Machines, graders: Mapping[str, Grader]
) -> tuple[CheckRow, str]:
    """As `check_task`, with the name of the task's grader; "" where the task can't be read."""
    try:
        task = read()
    except (HarborError, TaskError, ValueError, KeyError, TypeError) as error:
        return CheckRow(name, problem=f"malformed: {error}"), ""
    if task.grader not in graders:
        return CheckRow(task.id, task.category, problem=no_grader(task.grader, graders)), task.grader
    return await _judged(task, pool, graders), task.grader


async def _judged(task: Task, pool: Machines, graders: Mapping[str, Grader]) -> CheckRow:
    """Why a task can't be judged is in the row."""
    try:
        return await judge_task(task, pool, graders)
    except TaskDefective as error:
        return CheckRow(task.id, task.category, problem=f"defective: {error}")
    except InfraError as error:
        return CheckRow(task.id, task.category, problem=f"the machine or the task's environment: {error}")
    except (TaskError, ValueError, KeyError) as error:
        return CheckRow(task.id, task.category, problem=f"malformed: {type(error).__name__}: {error}")


async def judge_task(task: Task, pool: Machines, graders: Mapping[str, Grader] = GRADERS) -> CheckRow:
    """Raises InfraError."""
    grade = partial(grade_of_registry, graders=graders)
    same = graded_files if task.grader == NAME else lambda task, files: files
    found = await check(task, pool, grade=grade, cheats=cheats_with(task, graders[task.grader]), as_graded=same)
    scores = [found.reference]
    for _ in range(TIMES - 1):
        scores.append((await grade(task, reference_files(task), pool)).score)
    audit = await scan_for_leaks(task, pool)
    acted = await _acted(task, pool, same, found.nop, grade)
    return CheckRow(
        task.id,
        task.category,
        min(scores),
        found.nop,
        {**found.cheats, **acted},
        [*found.leaks, *audit_problems(audit)],
        len(set(scores)) > 1,
        audit={
            "history": audit["history"],
            "files": audit["files"],
            "bytes": audit["bytes"],
            "unread": len(audit["unread"]),
            "unread_files": audit["unread"][:MOST_UNREAD],
            "by": _code_of(task),
        },
    )


def _code_of(task: Task) -> str:
    """By which code a task was judged, for its audit."""
    own = f"+{source_digest(task.grader)[:16]}" if is_import_path(task.grader) else ""
    return code_version()[:16] + own


async def _acted(
    task: Task,
    pool: Machines,
    same: Callable[[Task, Files], Files],
    nothing: float,
    grade: Callable[[Task, Files, Machines], Awaitable[Verdict]],
) -> dict[str, float]:
    """Scores of the scripted agents, graded while their sandboxes live. What is graded as nothing done scores what that did."""
    untouched = same(task, nop(task))
    scores: dict[str, float] = {}
    for name, script in agents_for(task).items():
        async with behaved(task, pool, script) as files:
            done = same(task, files) != untouched
            scores[name] = (await grade(brief(task), files, pool)).score if done else nothing
    return scores


def content_of(folder: Path) -> str:
    """A digest of all files of a task; names and lengths are part of it."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != KEPT):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder)} {len(data)} ".encode() + data)
    return digest.hexdigest()


def _keep(kept: Path, key: str, row: CheckRow) -> None:
    with open(kept, "a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, **asdict(row)}) + "\n")


def _known(kept: Path) -> dict[str, CheckRow]:
    """A torn last line is no row."""
    if not kept.is_file():
        return {}
    rows: dict[str, CheckRow] = {}
    for line in kept.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            fields = json.loads(line)
            key = fields.pop("key")
            rows[key] = CheckRow(**fields)
    return rows


def summary(rows: Sequence[CheckRow]) -> str:
    """How many are sound, why the others are not, and which files the leak scan could not search, sound or not."""
    off = [row for row in rows if not row.good]
    lines = [f"{len(rows) - len(off)} of {len(rows)} tasks are sound", *[f"  {row.id}: {_why(row)}" for row in off]]
    for row in rows:
        if row.audit.get("unread"):
            examples = "; ".join(row.audit["unread_files"][:3])
            lines.append(f"  {row.id}: the leak scan could not search {row.audit['unread']} files whole: {examples}")
    return "\n".join(lines)


def _why(row: CheckRow) -> str:
    if row.problem:
        return row.problem
    fooled = [name for name, score in row.cheats.items() if score]
    reasons = (
        [f"reference {row.reference:g}"] * (row.reference != 1)
        + ["flaky"] * row.flaky
        + [f"nop {row.nop:g}"] * bool(row.nop)
    )
    reasons += [f"cheats that score: {', '.join(fooled)}"] * bool(fooled) + row.leaks[:3]
    return "; ".join(reasons)


def _plain(score: float) -> float | int:
    return int(score) if score == int(score) else score

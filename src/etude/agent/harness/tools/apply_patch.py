"""Apply a patch in the envelope format to any number of files, all or none."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from etude.agent.harness.edits.editing import EditedFile
from etude.agent.harness.edits.patch import PatchedFile, PatchError, apply, parse
from etude.agent.harness.tools import replacing
from etude.agent.harness.tools.parameter import Parameter
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.workspace.text_file import TextFile
from etude.agent.workspace.workspace import Workspace, WorkspaceError


@dataclass(frozen=True)
class _FileStep:
    """One file's new content (None: it goes), and what is said about it."""

    path: str
    before: bytes | None
    after: TextFile | None
    said: str
    loose: bool = False


class ApplyPatchTool:
    """Everything is worked out before anything is written; a write that fails puts back what was written before it."""

    name = "apply_patch"
    parameters = (Parameter("patch"),)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            steps = [step for change in parse(arguments["patch"]) for step in await _plan(change, context.workspace)]
        except PatchError as bad:
            raise ToolError(f"{bad}\nnothing was changed") from bad
        await asyncio.shield(
            _carry_out(steps, context.workspace)
        )  # a session that is stopped here still has all or nothing
        facts = {"edits": 1.0, "loose_edits": float(any(step.loose for step in steps))}
        return ToolResult(context.show("\n".join(["ok", *(s.said for s in steps if s.said)]), "head"), facts=facts)


async def _plan(change: PatchedFile, workspace: Workspace) -> list[_FileStep]:
    before = await workspace.bytes_of(change.path)
    if change.kind == "add":
        if before is not None:
            raise PatchError(f"{change.path} is there already; use *** Update File:")
        file = TextFile.like("".join(f"{line}\n" for line in change.lines), None)
        count = len(change.lines)
        return [_FileStep(change.path, None, file, f"{change.path}: created, {replacing.lines(count)}")]
    if before is None:
        await workspace.load(change.path)  # raises, with files of a like name
    if change.kind == "delete":
        return [_FileStep(change.path, before, None, f"{change.path}: deleted")]
    file = await workspace.load(change.path)
    done = await asyncio.to_thread(apply, change.path, file, change.hunks)
    if wrong := await replacing.damage_by(change.path, file, done):
        raise PatchError(f"{change.path}: the patch matches only if blanks are ignored, and {wrong}")
    return await _updated(change, before, done, workspace)


async def _updated(
    change: PatchedFile, before: bytes | None, done: EditedFile, workspace: Workspace
) -> list[_FileStep]:
    loose = any(how != "exact" for how in done.hows)
    path = change.target or change.path
    said = replacing.describe_edits(path, done).removeprefix("ok").removeprefix("\n")
    if not change.target:
        return [_FileStep(path, before, done.file, said, loose)]
    if await workspace.bytes_of(path) is not None:
        raise PatchError(f"*** Move to: {path} is there already")
    moved = f"{path}: moved from {change.path}"
    return [
        _FileStep(path, None, done.file, "\n".join(part for part in (moved, said) if part), loose),
        _FileStep(change.path, before, None, ""),
    ]


async def _carry_out(steps: list[_FileStep], workspace: Workspace) -> None:
    made: list[_FileStep] = []
    try:
        for step in steps:
            if step.after is None:
                await workspace.remove(step.path)
            else:
                await workspace.save(step.path, step.after)
            made.append(step)
    except WorkspaceError as error:
        for step in reversed(made):
            await workspace.restore(step.path, step.before)
        raise ToolError(f"{error}; nothing was changed") from error

"""What the editing tools share: load, edit, save once, and report what was done or which text is closest."""

from __future__ import annotations

import asyncio

from etude.agent.harness.edits.editing import EditedFile, EditError, Replace, edit
from etude.agent.harness.edits.syntax import syntax_damage
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.workspace.text_file import TextFile

_LOOSE = {"blanks": "blanks differed", "typography": "quotes, dashes or blanks differed"}


async def replace_in(path: str, edits: list[Replace], tool: str, context: ToolContext) -> ToolResult:
    """All edits or none. Raises ToolError with the closest region."""
    if len(edits) == 1 and not edits[0].old:
        return await _create(path, edits[0].new, tool, context)
    file = await context.workspace.load(path)
    try:
        done = await asyncio.to_thread(edit, file, edits)
    except EditError as miss:
        raise ToolError(_explained(miss, path, len(edits), tool, context)) from miss
    if wrong := await damage_by(path, file, done):
        raise ToolError(
            f"{_old(tool, context)} matches {path} only if blanks are ignored, and {wrong}\nnothing was changed"
        )
    await context.workspace.save(path, done.file)
    return ToolResult(context.show(describe_edits(path, done), "head"), facts=facts(done))


async def damage_by(path: str, before: TextFile, done: EditedFile) -> str:
    """Why an edit that matched loosely must not be made: the file parsed and no longer would; "" for all others."""
    if all(how == "exact" for how in done.hows):
        return ""
    wrong = await asyncio.to_thread(syntax_damage, path, before.text, done.file.text)
    return (
        f"the file would no longer parse ({wrong}); copy the text exactly as it is in the file, with its indentation"
        if wrong
        else ""
    )


def describe_edits(path: str, done: EditedFile) -> str:
    """One line an edit: where it is, and by what it matched if not exactly."""
    rows = []
    for how, (first, last) in zip(done.hows, done.spans, strict=True):
        where = (
            f"lines {first}-{last}"
            if last > first
            else f"line {first}"
            if last == first
            else f"lines removed at {first}"
        )
        rows.append(f"{path}: {where}" + (f" (matched although {_LOOSE[how]})" if how != "exact" else ""))
    return "\n".join(["ok", *rows])


def lines(count: int) -> str:
    """`1 line`, `2 lines`."""
    return f"{count} line{'s' * (count != 1)}"


def facts(done: EditedFile) -> dict[str, float]:
    """For the counters; a fuzzy success is one."""
    return {"edits": 1.0, "loose_edits": float(any(how != "exact" for how in done.hows))}


async def _create(path: str, text: str, tool: str, context: ToolContext) -> ToolResult:
    """An empty search text means a file that isn't there yet, as several families write it."""
    if await context.workspace.bytes_of(path) not in (None, b""):
        raise ToolError(
            f"{_old(tool, context)} is empty, which creates a new file, but {path} already exists; nothing was changed"
        )
    file = TextFile.like(text, None)
    await context.workspace.save(path, file)
    done = EditedFile(file, ("exact",), ((1, max(1, len(file.lines) - (file.lines[-1] == ""))),))
    return ToolResult(context.show(describe_edits(path, done), "head"), facts=facts(done))


def _old(tool: str, context: ToolContext) -> str:
    return context.names.parameter(tool, "old") or context.names.parameter(tool, "edits.old") or "old"


def _explained(miss: EditError, path: str, count: int, tool: str, context: ToolContext) -> str:
    old = _old(tool, context)
    new = context.names.parameter(tool, "new") or context.names.parameter(tool, "edits.new") or "new"
    which = f"edit {miss.number}: " if count > 1 else ""
    tail = "; nothing was changed"
    if miss.problem == "equal":
        return f"{which}{old} and {new} are exactly the same{tail}"
    if miss.problem == "empty":
        return f"{which}{old} is empty{tail}"
    if miss.problem == "blanks":
        remedy = f"copy {old} exactly as it is in the file, with its indentation"
        return f"{which}{old} matches {path} only if blanks are ignored, and {miss.hint}; {remedy}{tail}"
    if miss.problem == "several":
        every = context.names.parameter(tool, "all") or context.names.parameter(tool, "edits.all")
        where = ", ".join(map(str, miss.lines[:9])) + (", …" if len(miss.lines) > 9 else "")
        remedy = "it must match exactly one occurrence: add surrounding lines" + (f", or set {every}" if every else "")
        return f"{which}found {len(miss.lines)} matches of {old} in {path} (lines {where}); {remedy}{tail}"
    hint = f"; closest:\n{miss.hint}" if miss.hint else "; read the file again"
    return f"{which}{old} was not found in {path}{tail}{hint}"

"""Replace one place in a file, or append to it. A failed edit changes nothing and shows the closest region."""

from __future__ import annotations

import asyncio

from etude.agent.harness.edits.indentation import IndentationUnclear
from etude.agent.harness.edits.matching import NoUniqueMatch, replace
from etude.agent.harness.edits.syntax import syntax_damage
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep


class NanoEdit:
    """An empty `old` appends `new` to the file, or creates it. Says when the match ignored blanks."""

    name = "edit"
    parameters = ("path", "old", "new")
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        path, old, new = arguments["path"], arguments["old"], arguments["new"]
        if not path:
            raise ToolError("no path")
        if not old:
            return await self._append(path, new, context)
        if old == new:
            raise ToolError("old and new are equal")
        text = await context.workspace.read(path)
        try:
            changed = replace(text, old, new)
        except NoUniqueMatch as miss:
            raise ToolError(f"{miss}; closest:\n{miss.hint}" if miss.hint else str(miss)) from miss
        except IndentationUnclear as unclear:
            raise ToolError(f"blanks differed, and {unclear}") from unclear
        if changed.loose and (wrong := await asyncio.to_thread(syntax_damage, path, text, changed.text)):
            raise ToolError(f"blanks differed, and the file would no longer parse: {wrong}")
        await context.workspace.write(path, changed.text)
        return ToolResult("ok, blanks differed" if changed.loose else "ok", facts=_facts(loose=changed.loose))

    async def _append(self, path: str, new: str, context: ToolContext) -> ToolResult:
        if not new:
            raise ToolError("nothing to add")
        text = await context.workspace.read(path) if await context.workspace.exists(path) else ""
        gap = "" if not text or text.endswith("\n") else "\n"
        end = "" if new.endswith("\n") else "\n"
        await context.workspace.write(path, f"{text}{gap}{new}{end}")
        return ToolResult("ok", facts=_facts(loose=False))


def _facts(*, loose: bool) -> dict[str, float]:
    return {"edits": 1.0, "loose_edits": float(loose)}

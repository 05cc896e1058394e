"""Search. The nano preset looks for a fixed string on the host (one export, no interpreter, no pattern to explode);
the full preset takes a regular expression and runs inside the sandbox, where a time limit can end it."""

from __future__ import annotations

from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep

# Runs inside the sandbox: every text file, sorted, hidden folders left out; argv: pattern, most matches.
_SEARCH = """
import os, re, sys
pattern, limit, found = re.compile(sys.argv[1]), int(sys.argv[2]), 0
for folder, folders, files in os.walk("."):
    folders[:] = sorted(f for f in folders if not f.startswith(".") and f != "__pycache__")
    for name in sorted(f for f in files if not f.startswith(".")):
        path = os.path.join(folder, name)[2:]
        try:
            path.encode("utf-8")
            lines = open(path, encoding="utf-8").read().split("\\n")
        except (OSError, UnicodeError):
            continue
        for number, line in enumerate(lines, 1):
            if pattern.search(line):
                found += 1
                if found <= limit:
                    print(f"{path}:{number} {line.strip()}")
if found > limit:
    print(f"[{found - limit} more]")
"""


class NanoGrep:
    """`path:line text`, the text without its indentation: any part of it can be the `old` of an edit."""

    name = "grep"
    parameters = ("pattern",)
    keep: Keep = "head"

    def __init__(self, *, regex: bool) -> None:
        self._regex = regex

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        pattern = arguments["pattern"]
        if not pattern.strip():
            raise ToolError("empty pattern")
        text = await (self._inside if self._regex else self._on_host)(pattern, context)
        return ToolResult(text or "no match", facts={"empty_searches": float(not text)})

    async def _on_host(self, pattern: str, context: ToolContext) -> str:
        limit = context.settings.max_matches
        found = [
            f"{path}:{number} {line.strip()}"
            for path, text in (await context.workspace.texts()).items()
            if pattern in text
            for number, line in enumerate(text.split("\n"), 1)
            if pattern in line
        ]
        more = [f"[{len(found) - limit} more]"] if len(found) > limit else []
        return "\n".join(found[:limit] + more)

    async def _inside(self, pattern: str, context: ToolContext) -> str:
        settings = context.settings
        argv = ["python", "-c", _SEARCH, pattern, str(settings.max_matches)]
        result = await context.workspace.run(argv, timeout_s=settings.tool_timeout_s, max_output_bytes=1 << 16)
        if result.timed_out:
            raise ToolError("search timed out; use a simpler pattern")
        if result.rc != 0:
            last = result.err.decode(errors="replace").strip().split("\n")[-1]
            raise ToolError(f"bad pattern: {last}")
        return result.out.decode(errors="replace").rstrip("\n")

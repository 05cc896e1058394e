"""What the repository's own linters say."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.lint.lints import LINTERS, LintReport
from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult


class ReadLintsTool:
    """Reports what changed since the last look at the same files, for the policy and for the counters."""

    name = "lints"
    parameters = (optional("paths", "array", item=Parameter("path")),)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        paths = [context.workspace.place(path) for path in arguments.get("paths", [])]
        for path in paths:
            if not await context.workspace.exists(path):
                raise ToolError(f"no file {path}")
        report = await context.lints.check(sorted(set(paths)))
        if not report.ran and not report.problems:
            known = ", ".join(linter.name for linter in LINTERS)
            return ToolResult(context.show(f"no linter is configured here for this (known: {known})", "head"))
        text = "\n".join(map(str, report.findings)) or (f"clean ({', '.join(report.ran)})" if report.ran else "")
        return ToolResult(context.show(text, "head", after=_summary(report)), facts=_facts(report))


def _summary(report: LintReport) -> str:
    rows = [problem[:300] for problem in report.problems]
    if report.seen and (report.new or report.gone):
        rows.append(f"since the last look: {len(report.new)} new, {len(report.gone)} gone")
    return "\n".join(rows)


def _facts(report: LintReport) -> dict[str, float]:
    counts = {"lints": len(report.findings), "lints_new": len(report.new), "lints_gone": len(report.gone)}
    return {name: float(count) for name, count in counts.items()}

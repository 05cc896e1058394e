"""What linters say, in one form; and the difference that an edit made. Pure."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from etude.core.trace.plain_json import parse


@dataclass(frozen=True, order=True)
class LintFinding:
    """One complaint: line and column from 1, 0 where the linter gave none."""

    path: str
    line: int
    column: int
    linter: str
    code: str
    message: str

    def __str__(self) -> str:
        code = f" {self.code}" if self.code else ""
        return f"{self.path}:{self.line}:{self.column} {self.linter}{code}: {self.message}"


class LinterError(Exception):
    """A linter's output is not what it should be."""


def delta(before: list[LintFinding], after: list[LintFinding]) -> tuple[list[LintFinding], list[LintFinding]]:
    """(new, gone). Lines move with every edit, so that a finding is the same by file, linter, code and message."""
    return _more(after, before), _more(before, after)


def _more(these: list[LintFinding], those: list[LintFinding]) -> list[LintFinding]:
    left = Counter(_identity(finding) for finding in those)
    found = []
    for finding in these:
        if left[_identity(finding)] > 0:
            left[_identity(finding)] -= 1
        else:
            found.append(finding)
    return found


def _identity(finding: LintFinding) -> tuple[str, str, str, str]:
    return finding.path, finding.linter, finding.code, re.sub(r"\d+", "0", finding.message)


def read_ruff(output: str, root: str) -> list[LintFinding]:
    """`ruff check --output-format json`."""
    return [
        _finding(root, row["filename"], row.get("location"), "ruff", row.get("code"), row["message"], ("row", "column"))
        for row in _json(output)
    ]


def read_pyright(output: str, root: str) -> list[LintFinding]:
    """`pyright --outputjson`; lines and columns there are from 0."""
    found = []
    for row in _json(output)["generalDiagnostics"]:
        start = row.get("range", {}).get("start", {"line": -1, "character": -1})
        where = {"line": start["line"] + 1, "column": start["character"] + 1}
        message = row["message"].split("\n")[0]
        found.append(_finding(root, row.get("file") or row["uri"], where, "pyright", row.get("rule"), message))
    return found


def read_eslint(output: str, root: str) -> list[LintFinding]:
    """`eslint --format json`."""
    return [
        _finding(root, file["filePath"], row, "eslint", row.get("ruleId"), row["message"])
        for file in _json(output)
        for row in file["messages"]
    ]


_MOST_DIGITS = 9
_TSC = re.compile(r"^(?P<path>[^(\n]+)\((?P<line>\d+),(?P<column>\d+)\): \w+ (?P<code>TS\d+): (?P<message>.*)$", re.M)
_GCC = re.compile(r"^(?:vet: )?(?P<path>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? (?P<message>.*)$", re.M)


def read_tsc(output: str, root: str) -> list[LintFinding]:
    """`tsc --pretty false`."""
    return [_finding(root, m["path"], m.groupdict(), "tsc", m["code"], m["message"]) for m in _TSC.finditer(output)]


def read_go_vet(output: str, root: str) -> list[LintFinding]:
    """`go vet`, which writes `path:line:column: message`."""
    return [_finding(root, m["path"], m.groupdict(), "go vet", "", m["message"])
            for m in _GCC.finditer(output)]  # fmt: skip


def _json(output: str) -> Any:
    try:
        return parse(output)
    except ValueError:
        raise LinterError(output.strip().split("\n")[-1][:200] or "no output") from None


def _finding(
    root: str,
    path: str,
    where: Any,
    linter: str,
    code: str | None,
    message: str,
    keys: tuple[str, str] = ("line", "column"),
) -> LintFinding:
    line, column = ((where or {}).get(key) for key in keys)
    path, code, message = str(path), str(code or ""), str(message)
    relative = posixpath.relpath(path, root) if path.startswith("/") else posixpath.normpath(path)
    return LintFinding(relative, _number(line), _number(column), linter, code, message)


def _number(value: Any) -> int:
    """A line or a column; 0 where it is none. Texts of a linter may hold any number of digits."""
    text = str(value or 0)[:_MOST_DIGITS]
    return int(text) if text.isdecimal() else 0

"""Changes written as a unified diff, as `git apply` and `patch -p1` take it (GNU diffutils manual, "Detailed Description of Unified Format")."""

from __future__ import annotations

from collections.abc import Sequence

from etude.learn.corpus.shape.line_diff import LineChange, changes, split_lines

CONTEXT_LINES = 3
NO_END = "\\ No newline at end of file\n"


def unified_diff(path: str, old: str | None, new: str, *, old_path: str = "") -> str:
    """From `old` (None: the file is new) to `new`; with `old_path` it moved. "" if nothing changed. Fast for large files (`line_diff`)."""
    before, after = split_lines(old or ""), split_lines(new)
    old_path = old_path or path
    head = f"diff --git a/{old_path} b/{path}\n"
    if old is None:
        head += "new file mode 100644\n"
    elif old_path != path:
        head += f"rename from {old_path}\nrename to {path}\n"
    hunks = "".join(_hunk(group, before, after) for group in group_changes(changes(before, after), CONTEXT_LINES))
    if hunks:
        head += f"--- {'/dev/null' if old is None else 'a/' + old_path}\n+++ b/{path}\n"
    elif old is not None and old_path == path:
        return ""
    return head + hunks


def group_changes(found: Sequence[LineChange], context: int) -> list[list[LineChange]]:
    """Changes whose contexts touch share one hunk."""
    groups: list[list[LineChange]] = []
    for change in found:
        if groups and change.start - groups[-1][-1].end <= 2 * context:
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _hunk(group: Sequence[LineChange], old: Sequence[str], new: Sequence[str]) -> str:
    start = max(0, group[0].start - CONTEXT_LINES)
    end = min(len(old), group[-1].end + CONTEXT_LINES)
    new_start = group[0].new_start - (group[0].start - start)
    new_end = group[-1].new_end + (end - group[-1].end)
    lines = [f"@@ -{_span(start, end)} +{_span(new_start, new_end)} @@\n"]
    at = start
    for change in group:
        lines += [_line(" ", line) for line in old[at : change.start]]
        lines += [_line("-", line) for line in old[change.start : change.end]]
        lines += [_line("+", line) for line in new[change.new_start : change.new_end]]
        at = change.end
    lines += [_line(" ", line) for line in old[at:end]]
    return "".join(lines)


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{NO_END}"


def _span(start: int, end: int) -> str:
    """Lines count from 1; an empty span names the line before it."""
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"

"""What a folder of tasks is like, by its index alone: how many of what, how long the requests are, how large the changes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from etude.tasks.task_row import TaskRow

# A task is large by both (the bar of our own folder: a hundred of them).
LARGE_LINES, LARGE_FILES = 150, 4
PERCENTILES = (10, 50, 90)
KINDS = ("category", "generator", "project", "language", "split", "style")


def stats(rows: Iterable[TaskRow]) -> dict[str, Any]:
    """Counts by kind; distributions of prompt characters by style, of changed lines and files, of difficulty where it was measured."""
    rows = list(rows)
    styles = list(dict.fromkeys(style for row in rows for style in row.prompts))
    return {
        "tasks": len(rows),
        **{kind: dict(Counter(getattr(row, kind) or "none" for row in rows).most_common()) for kind in KINDS},
        "prompt_chars": {
            style: spread([row.prompts[style] for row in rows if style in row.prompts]) for style in styles
        },
        "changed_lines": spread([row.lines for row in rows]),
        "changed_files": spread([row.files for row in rows]),
        "large": sum(row.lines >= LARGE_LINES and row.files >= LARGE_FILES for row in rows),
        "difficulty": spread([row.difficulty for row in rows if row.difficulty is not None]),
    }


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Count, least, percentiles by nearest rank, most, and a histogram by powers of two (the largest value of a bin -> how many)."""
    if not values:
        return {"count": 0}
    ordered = sorted(values)
    ranks = {f"p{share}": ordered[max(0, -(-share * len(ordered) // 100) - 1)] for share in PERCENTILES}
    bins = Counter(1 << max(0, int(value - 1).bit_length()) if value > 1 else 1 for value in ordered)
    whole = all(isinstance(value, int) for value in ordered)
    histogram = {"histogram": {str(top): bins[top] for top in sorted(bins)}} if whole else {}
    return {"count": len(ordered), "min": ordered[0], **ranks, "max": ordered[-1], **histogram}


def render_stats(document: dict[str, Any]) -> str:
    """The same for people: counts side by side, distributions as bars."""
    lines = [
        f"{document['tasks']} tasks, {document['large']} of them with {LARGE_LINES} changed lines in {LARGE_FILES} files or more"
    ]
    for kind in KINDS:
        shown = ", ".join(f"{name} {count}" for name, count in [*document[kind].items()][:12])
        lines.append(f"{kind:<12}{shown}{' …' if len(document[kind]) > 12 else ''}")
    for style, found in document["prompt_chars"].items():
        lines += [
            "",
            f"characters of the {style} prompt: median {found['p50']}, from {found['min']} to {found['max']}",
            *_bars(found),
        ]
    for name, what in (("changed_lines", "changed lines"), ("changed_files", "changed files")):
        found = document[name]
        if found["count"]:
            lines += ["", f"{what}: median {found['p50']}, from {found['min']} to {found['max']}", *_bars(found)]
    if (found := document["difficulty"])["count"]:
        lines += [
            "",
            f"difficulty of {found['count']}: median {found['p50']:.2f}, from {found['min']:.2f} to {found['max']:.2f}",
        ]
    return "\n".join(lines)


def _bars(found: dict[str, Any]) -> list[str]:
    most = max(found["histogram"].values())
    return [
        f"{'≤ ' + top:>9} {'█' * max(1, round(40 * count / most))} {count}" for top, count in found["histogram"].items()
    ]

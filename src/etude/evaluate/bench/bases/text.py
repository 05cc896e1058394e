"""The comparison as one table for a terminal: a column a checkpoint, a row a figure, each with its 95% interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Cell = Callable[[Row], str]


def text(document: dict[str, Any]) -> str:
    """The table, and above and below it what the figures are of."""
    rows = document["checkpoints"]
    lines = [["", *(row["name"] for row in rows)]]
    for title, cell in _rows(document):
        if any(cells := [cell(row) for row in rows]):
            lines.append([title, *cells])
    return "\n".join([material_text(document), "", *_aligned(lines), "", *_notes(document)])


def material_text(document: dict[str, Any]) -> str:
    """The material, in a line."""
    state = ", ".join(f"{count} of {n}" for n, count in document["state_questions"].items()) or "none"
    return (
        f"{document['files']:,} of {document['all_files']:,} files ({document['bytes'] / 1e3:,.0f} kB), context "
        f"{document['context_tokens']:,} tokens; state tracking, questions of n changes: {state}; "
        f"fresh knowledge: {document['knowledge_questions']} questions"
    )


def _rows(document: dict[str, Any]) -> list[tuple[str, Cell]]:
    unchanged = document.get("unchanged", {})
    changes = sorted((int(n) for n in unchanged.get("by_changes", {})), key=int)
    batches = sorted({int(b) for row in document["checkpoints"] for b in row.get("cost", {}).get("batches", {})})
    return [
        ("parameters, total / active", lambda row: f"{_short(row['parameters'])} / {_short(row['active_parameters'])}"),
        ("vocabulary", lambda row: f"{row['vocabulary']:,}"),
        ("codebase, bits a byte (less is better)", lambda row: _value(row.get("perplexity"), 4)),
        ("  over the first, paired", lambda row: _value(row.get("perplexity", {}).get("over_first"), 4, "+")),
        ("state tracking, characters off (less is better)", lambda row: _value(row.get("state"), 1)),
        ("  over the first, paired", lambda row: _value(row.get("state", {}).get("over_first"), 1, "+")),
        *((f"  after {n} change{'s' * (n > 1)}", _after(n)) for n in changes),
        ("  exact / ended by itself, %", lambda row: _pair(row.get("state"), "exact_percent", "ended_percent")),
        ("fresh knowledge, bits a byte of the answer", lambda row: _value(row.get("knowledge"), 4)),
        ("  over the first, paired", lambda row: _value(row.get("knowledge", {}).get("over_first"), 4, "+")),
        ("  answered to the letter, %", lambda row: _pair(row.get("knowledge"), "exact_percent")),
        *((f"decoding {batch} at a time, tokens/s", _cost(batch, "tokens_per_s", 0)) for batch in batches),
        *((f"  core-seconds a 1,000 tokens, {batch}", _cost(batch, "core_s_per_1000_tokens", 2)) for batch in batches),
        ("cache, bytes a token", lambda row: f"{row['cache_bytes_per_token']:,}"),
    ]  # fmt: skip


def _notes(document: dict[str, Any]) -> list[str]:
    """The baseline, and what was left out and why."""
    found = document.get("unchanged")
    lines = []
    if found:
        lines.append(
            f"The first version unchanged would be {_value(found, 1)} characters off; a right answer has "
            f"{found['answer_characters']:,.0f} on average."
        )
    lines += [f"Left out, {what}: {why}." for what, why in document["left_out"].items()]
    return [*lines, "Brackets: 95%, files resampled (sessions, for fresh knowledge); no interval where all is of one."]


def _after(n: int) -> Cell:
    return lambda row: _value(row.get("state", {}).get("by_changes", {}).get(str(n)), 1)


def _cost(batch: int, key: str, digits: int) -> Cell:
    def cell(row: Row) -> str:
        found = row.get("cost", {}).get("batches", {}).get(str(batch))
        return f"{found[key]:,.{digits}f}" if found else ""

    return cell


def _value(found: Row | None, digits: int, sign: str = "") -> str:
    if not found:
        return ""
    form = f"{sign}.{digits}f"
    interval = f" [{', '.join(format(bound, form) for bound in found['ci95'])}]" if found["ci95"] else " [no interval]"
    return format(found["value"], form) + interval


def _pair(found: Row | None, *keys: str) -> str:
    return " / ".join(f"{found[key]:.0f}" for key in keys) if found else ""


def _short(count: int) -> str:
    """1,724,800 as 1.7M."""
    for unit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:.3g}{letter}"
    return str(count)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(_padded(line, widths)).rstrip() for line in lines]


def _padded(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Words to the left, figures to the right."""
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]

"""Tables and words of the page: every text passes `escape` here, so that a session's text can't become markup."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any


class Html(str):
    """Text that is markup already and is not escaped again."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells under titles; a row of one cell is a heading inside the table."""
    titles = "".join(f"<th>{_text(title)}</th>" for title in head)
    lines = "".join(_row(cells, len(head)) for cells in rows)
    return f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>'


def percent(entry: dict[str, Any], average: str = "avg", interval: str = "ci95") -> Html:
    """`52.2 [44, 60]` with the interval muted."""
    low, high = entry[interval]
    return Html(f"{entry[average]:.1f} <span class='muted'>[{low:.1f}, {high:.1f}]</span>")


def points(found: dict[str, Any], value: str = "points", interval: str = "ci95") -> Html:
    """`+26.8 [21.0, 32.4]`, green or red only where the interval leaves zero out."""
    low, high = found[interval]
    tone = "good" if low > 0 else "bad" if high < 0 else "open"
    return Html(f'<b class="{tone}">{found[value]:+.1f}</b> <span class="muted">[{low:.1f}, {high:.1f}]</span>')


def bar(words: str, met: bool) -> Html:
    """What the project asks for, and whether this run meets it."""
    return Html(f'{escape(words)}: <b class="{"good" if met else "bad"}">{"met" if met else "not met"}</b>')


def cell(value: Any) -> str:
    """Any value of a report in few characters."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {cell(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(cell(v) for v in value) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _row(cells: Sequence[str], width: int) -> str:
    if len(cells) == 1:
        return f'<tr class="part"><th colspan="{width}">{_text(cells[0])}</th></tr>'
    return "<tr>" + "".join(f"<td>{_text(found)}</td>" for found in cells) + "</tr>"


def _text(value: str) -> str:
    return value if isinstance(value, Html) else escape(value)

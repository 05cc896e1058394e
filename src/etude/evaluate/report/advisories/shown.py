"""Advisories at the top of the page: what is wrong, what to do, the figures, and where the page and the query show more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any


def advisories_html(advisories: Sequence[dict[str, Any]], sections: Sequence[str]) -> str:
    """One box each, as `Advisory.to_json` has them; a link only to a section that the page has. None: an empty string."""
    if not advisories:
        return ""
    boxes = "".join(_box(advisory, sections) for advisory in advisories)
    alarms = sum(advisory["level"] == "alarm" for advisory in advisories)
    count = len(advisories)
    words = f"{alarms} alarm{'s' * (alarms != 1)}" if alarms else f"healthy; {count} hint{'s' * (count != 1)}"
    return f'<section class="advisories" aria-label="Advisories"><h2>Advisories: {words}</h2>{boxes}</section>'


def anchor(section: str) -> str:
    """A section's place in the page's address."""
    return section.lower().replace(" ", "-")


def _box(advisory: dict[str, Any], sections: Sequence[str]) -> str:
    section = advisory["section"]
    link = ""
    if section in sections:
        link = f' <a href="#{escape(anchor(section))}">{escape(section)}</a> ·'
    figures = ", ".join(f"{name} {_figure(value)}" for name, value in advisory["evidence"].items())
    look = f"<br>etude report query RUN {escape(advisory['look'])}" if advisory["look"] else ""
    return (
        f'<details class="advisory {escape(advisory["level"])}"><summary><b>{escape(advisory["name"].replace("_", " "))}</b> '
        f"{escape(advisory['said'])}</summary><p>To do: {escape(advisory['remedy'])}.</p>"
        f'<p class="muted">{link} explained in {escape(advisory["why"])}</p>'
        f"<p><code>{escape(figures)}{look}</code></p></details>"
    )


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)

"""What something is made of: stacked bars of shares, a pie, and rows of counts. Drawn like `plot.py`: no script, no library.

Six colours of the page, then the same six paler: a name keeps its colour through one drawing. More than eleven parts are
shown as eleven and `other`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from etude.evaluate.report.plot import HEIGHT, WIDTH

MOST_PARTS = 11  # and `other`: as many as two rounds of six colours keep apart
LABEL, BAR, GAP = 78.0, 34.0, 12.0  # left of a stacked bar, its height, between two (picture units)
RADIUS, RING = 78.0, 56.0
READABLE_SHARE = 0.07  # a narrower part has no room for its own percentage
OTHER = "other"


def fold(counts: Mapping[str, float], most: int = MOST_PARTS) -> dict[str, float]:
    """The parts above zero, largest first; what comes after `most` is summed as `other`."""
    ordered = sorted(((name, value) for name, value in counts.items() if value > 0), key=lambda part: -part[1])
    kept = dict(ordered[:most])
    if rest := sum(value for _, value in ordered[most:]):
        kept[OTHER] = kept.get(OTHER, 0) + rest
    return kept


def stacked_bars(bars: Mapping[str, Mapping[str, float]]) -> str:
    """One horizontal bar a name, cut by shares of its own sum; a part has the same colour in every bar."""
    bars = {name: parts for name, parts in bars.items() if sum(parts.values()) > 0}
    if not bars:
        return ""
    totals: dict[str, float] = {}
    for parts in bars.values():
        for name, value in parts.items():
            totals[name] = totals.get(name, 0.0) + value / sum(parts.values())
    shown = fold(totals)
    drawn = [_bar(row, name, _shares(parts, shown), list(shown)) for row, (name, parts) in enumerate(bars.items())]
    height = len(bars) * (BAR + GAP)
    return f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img">{"".join(drawn)}</svg>' + keys(list(shown))


def pie(counts: Mapping[str, float]) -> str:
    """A ring of shares with its keys, each with its percentage; nothing to show: an empty string."""
    parts = fold(counts)
    total = sum(parts.values())
    drawn, before = [], 0.0
    for place, (name, value) in enumerate(parts.items()):
        share = 100 * value / total
        drawn.append(
            f'<circle cx="{WIDTH / 2:.0f}" cy="{HEIGHT / 2:.0f}" r="{RADIUS:.0f}" fill="none" {_paint("stroke", place)} '
            f'stroke-width="{RING:.0f}" pathLength="100" stroke-dasharray="{share:.3f} 100" '
            f'stroke-dashoffset="{-before:.3f}" transform="rotate(-90 {WIDTH / 2:.0f} {HEIGHT / 2:.0f})">'
            f"<title>{escape(name)}: {value:,.0f} ({share:.1f}%)</title></circle>"
        )
        before += share
    if not drawn:
        return ""
    named = [f"{name} {100 * value / total:.1f}%" for name, value in parts.items()]
    return f'<svg viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" role="img">{"".join(drawn)}</svg>' + keys(named)


def rows(counts: Mapping[str, float], *, most: int = MOST_PARTS, ordered: bool = False) -> str:
    """A table of name, bar and count, largest first (`ordered`: as given): long names wrap instead of touching."""
    parts = dict(counts) if ordered else fold(counts, most)
    if not parts:
        return ""
    longest = max(parts.values())
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td><i style="--w:{100 * value / longest:.1f}%"></i></td>'
        f"<td>{value:,.0f}</td></tr>"
        for name, value in parts.items()
    )
    return f'<table class="rows">{lines}</table>'


def keys(names: Sequence[str]) -> str:
    """Colour keys in the order of the parts."""
    spans = [f"<span><i {_key(place)}></i>{escape(name)}</span>" for place, name in enumerate(names)]
    return f'<div class="legend square">{"".join(spans)}</div>'


def _shares(parts: Mapping[str, float], shown: Mapping[str, float]) -> dict[str, float]:
    """Each shown part's share of the bar; what is not shown counts as `other`."""
    total = sum(parts.values())
    found = dict.fromkeys(shown, 0.0)
    for name, value in fold(parts, len(parts)).items():
        found[name if name in found else OTHER] += value / total
    return found


def _bar(row: int, name: str, shares: Mapping[str, float], order: Sequence[str]) -> str:
    top, x = row * (BAR + GAP) + GAP / 2, LABEL
    drawn = [f'<text x="{LABEL - 8:.0f}" y="{top + BAR / 2 + 4:.1f}" class="tick end">{escape(name)}</text>']
    for part, share in shares.items():
        width = share * (WIDTH - LABEL)
        if share > 0:
            drawn.append(
                f'<rect x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BAR:.0f}" '
                f"{_paint('fill', order.index(part))}>"
                f"<title>{escape(name)}, {escape(part)}: {100 * share:.1f}%</title></rect>"
            )
        if share >= READABLE_SHARE:
            middle = x + width / 2
            drawn.append(f'<text x="{middle:.1f}" y="{top + BAR / 2 + 4:.1f}" class="inside">{100 * share:.0f}%</text>')
        x += width
    return "".join(drawn)


def _paint(what: str, place: int) -> str:
    return f'{what}="var(--c{place % 6})" opacity="{_opacity(place)}"'


def _key(place: int) -> str:
    return f'style="--key:var(--c{place % 6});opacity:{_opacity(place)}"'


def _opacity(place: int) -> float:
    return 0.85 if place < 6 else 0.45

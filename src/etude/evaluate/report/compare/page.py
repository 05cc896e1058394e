"""The comparison as one self-contained page: no script runs and nothing is fetched, whatever a session's text holds."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from etude.evaluate.report.charts import chart
from etude.evaluate.report.compare.align import AlignedRow, AlignedStep
from etude.evaluate.report.compare.document import Comparison, main
from etude.evaluate.report.compare.sessions import SessionPair
from etude.evaluate.report.plot import PlotLine, line_chart
from etude.evaluate.report.table import Html, table

EQUAL_SHOWN = 1  # equal steps on either side of a stretch that is folded
COSTS = ("seconds", "core_seconds", "peak_rss_bytes")  # of stages
LONGEST = 4000  # characters of a result; the session itself has all of it


def page(found: Comparison) -> str:
    """The whole document."""
    body = [
        "<h1>Two runs</h1>",
        f"<p><b>A</b> {_text(found.a)} &nbsp; <b>B</b> {_text(found.b)}</p>",
        "<h2>What was set otherwise</h2>",
        *(_different(source, rows) for source, rows in found.different.items()),
        "" if found.different else "<p>Recipe, conditions and machine are the same.</p>",
        "<h2>Figures</h2>" + _figures(found.figures) if found.figures else "",
        _curves(found),
        _sessions(found),
    ]
    room = files("etude.evaluate.report")
    css = "".join((room / name).read_text() for name in ("plot.css", "page.css", "compare/page.css"))
    digest = b64encode(hashlib.sha256(css.encode()).digest()).decode()
    # Charts place their keys by style attributes, which name colours alone.
    policy = f"default-src 'none'; style-src-elem 'sha256-{digest}'; style-src-attr 'unsafe-inline'; base-uri 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_text(found.a)} and {_text(found.b)}</title>'
        f"<style>{css}</style></head><body><main>{''.join(body)}</main></body></html>"
    )


def _different(source: str, rows: Sequence[dict[str, Any]]) -> str:
    cells = [[row["key"], _value(row["a"]), _value(row["b"])] for row in rows]
    return table([source, "A", "B"], cells)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def _figures(rows: Sequence[dict[str, Any]]) -> str:
    """Paired and learned figures open, what the stages took folded."""
    cost = [row for row in rows if row["figure"] in COSTS and "ci95" not in row]
    head = ["", "figure", "A", "B", "B - A", "tasks"]
    note = (
        '<p class="muted">Intervals: 95% of the difference, paired by task. Without one: a figure of the whole run.</p>'
    )
    shown = table(head, [_cells(row) for row in rows if row not in cost]) + note
    took = table(head, [_cells(row) for row in cost])
    return shown + (f'<details class="fold"><summary>what the stages took</summary>{took}</details>' if cost else "")


def _cells(row: dict[str, Any]) -> list[str]:
    unit = 2.0**30 if row["figure"].endswith("_bytes") else 1.0
    figure = row["figure"].replace("_bytes", ", GiB").replace("_", " ")
    scaled = row | {side: row[side] / unit for side in ("a", "b")}
    return [
        row["name"],
        figure,
        f"{scaled['a']:.4g}",
        f"{scaled['b']:.4g}",
        _difference(scaled),
        str(row.get("tasks", "")),
    ]


def _difference(row: dict[str, Any]) -> Html:
    if "ci95" not in row:
        return Html(f"{row['b'] - row['a']:+.4g}")
    low, high = row["ci95"]
    sure = "" if low <= 0 <= high else " <b>apart</b>"
    return Html(f"{row['difference']:+.4g} <span class='muted'>[{low:+.4g}, {high:+.4g}]</span>{sure}")


def _curves(found: Comparison) -> str:
    open_ones, folded = [], []
    for stage, own in found.curves_a.items():
        for name in own:
            other = found.curves_b.get(stage, {}).get(name)
            if other is None:
                continue
            lines = [
                PlotLine(label, [x for x, _ in curve], [y for _, y in curve], hue=hue)
                for label, curve, hue in ((f"A {found.a}", own[name], 0), (f"B {found.b}", other, 1))
            ]
            drawn = chart(f"{stage}: {name}", line_chart(lines, x_title="step", y_title=name))
            (open_ones if name in main(stage) else folded).append(drawn)
    more = "".join(drawn for drawn in folded if drawn)
    rest = (
        f'<details class="fold"><summary>{len(folded)} more</summary><div class="charts">{more}</div></details>'
        if more
        else ""
    )
    return f'<h2>Curves</h2><div class="charts">{"".join(open_ones)}</div>{rest}' if open_ones or more else ""


def _sessions(found: Comparison) -> str:
    if not found.session_pairs:
        return ""
    words = f"{len(found.session_pairs)} of {found.shared_tasks} tasks of which both kept sessions, results that differ first."
    return f"<h2>The same task</h2><p class='muted'>{words}</p>" + "".join(
        _session_pair(pair, unfolded=n == 0) for n, pair in enumerate(found.session_pairs)
    )


def _session_pair(pair: SessionPair, *, unfolded: bool) -> str:
    row = pair.to_json()
    parts = "the same steps throughout" if pair.parts_at is None else f"part at step {pair.parts_at + 1}"
    patch = "same patch" if row["patch_equal"] else "patches differ"
    scores = " · ".join(
        f"{side} {_score(row[f'{key}_score'])}, {row[f'{key}_turns']} turns" for side, key in (("A", "a"), ("B", "b"))
    )
    head = f"<b>{_text(pair.pair.task_id)}</b> · {_text(scores)} · {parts} · {patch}"
    names = f'<div class="head">A: {_text(row["a_file"])}</div><div class="head">B: {_text(row["b_file"])}</div>'
    return (
        f'<details class="pair"{" open" if unfolded else ""}><summary>{head}</summary>'
        f'<div class="sides">{names}</div>{_rows(pair.rows)}{_patch(pair)}</details>'
    )


def _score(value: Any) -> str:
    return "no verdict" if value is None else f"{float(value):.3g}"


def _rows(rows: Sequence[AlignedRow]) -> str:
    """Steps side by side; a long stretch of equal ones is folded but for its ends."""
    parts: list[str] = []
    at = 0
    while at < len(rows):
        end = at
        while end < len(rows) and rows[end].kind == "same":
            end += 1
        if end - at > 2 * EQUAL_SHOWN + 1:
            inner = "".join(map(_row, rows[at + EQUAL_SHOWN : end - EQUAL_SHOWN]))
            count = end - at - 2 * EQUAL_SHOWN
            fold = f'<details class="fold"><summary>{count} equal steps</summary><div class="sides">{inner}</div></details>'
            parts += [_side("".join(map(_row, rows[at : at + EQUAL_SHOWN]))), fold]
            at = end - EQUAL_SHOWN
        end = max(end, at + 1)
        parts.append(_side("".join(map(_row, rows[at:end]))))
        at = end
    return "".join(parts)


def _side(inner: str) -> str:
    return f'<div class="sides">{inner}</div>'


def _row(row: AlignedRow) -> str:
    tone = {"same": "", "other answer": "other", "differs": "differs"}.get(row.kind, "only")
    return "".join(_step(step, tone if step else "none", row.kind) for step in (row.a, row.b))


def _step(step: AlignedStep | None, tone: str, kind: str) -> str:
    if step is None:
        return f'<div class="{tone}">—</div>'
    calls = "".join(f"<div>→ <b>{_text(name)}</b> {_text(_arguments(given))}</div>" for name, given in step.calls)
    results = "".join(
        f"<details><summary>{'✗ ' if failed else '← '}{_text(text.split(chr(10), 1)[0][:90])}</summary>"
        f"<pre>{_text(text[:LONGEST])}</pre></details>"
        for text, failed in step.results
    )
    note = " · other answer" if kind == "other answer" else ""
    said = f"<div>{_text(step.text[:LONGEST])}</div>" if step.text else ""
    return f'<div class="{tone}"><span class="muted">turn {step.number}{note}</span>{said}{calls}{results}</div>'


def _arguments(given: str) -> str:
    """`path a.py, old …` rather than JSON."""
    parts = [
        f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in json.loads(given).items()
    ]
    text = ", ".join(parts)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _patch(pair: SessionPair) -> str:
    if not pair.patch:
        return '<p class="muted">Neither changed a file.</p>'
    signs = {"a": "A", "b": "B", "both": " "}
    lines = "".join(f'<span class="{side}">{signs[side]} {_text(line)}</span>' for side, line in pair.patch)
    words = "What both changed" if all(side == "both" for side, _ in pair.patch) else "Final patches against each other"
    return f'<h3 class="apart">{words}</h3><div class="patch">{lines}</div>'


def _text(value: str) -> str:
    return escape(str(value)).encode("utf-8", "replace").decode()

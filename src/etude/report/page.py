"""The one-file report a person would forward: `report.html`, self-contained, no script, readable in dark mode too."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import Any

from etude.report import charts
from etude.report.charts import Curves
from etude.report.tokens import rollout_view


def page(report: dict[str, Any], curves: Curves, samples: list[dict[str, Any]], *, title: str) -> str:
    """The whole document. Sections whose stage has not run are left out."""
    body = [
        f"<h1>{escape(title)}</h1>",
        _subtitle(report),
        _headline(report),
        _section(
            "Before and after",
            _charts(charts.averages(report), charts.best_of(report)),
            _controls(report),
            _discovery(report),
        ),
        _section("By category and level", charts.levels(report), _overlap(report)),
        _section("Learning curves", _charts(charts.losses(curves), charts.rewards(report))),
        _section("Asynchrony", *_asynchrony(report)),
        _section("Rollouts to read", _rollouts(samples)),
        _section("What it cost", _costs(report)),
        _section("Real packages", _real(report)),
        _section("Machine and versions", _facts(report)),
    ]
    css = (files("etude.report") / "page.css").read_text()
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{css}</style></head><body><main>{''.join(body)}</main></body></html>"
    )


def _section(title: str, *parts: str) -> str:
    content = "".join(parts)
    return f"<h2>{escape(title)}</h2>{content}" if content else ""


def _charts(*drawn: str) -> str:
    content = "".join(drawn)
    return f'<div class="charts">{content}</div>' if content else ""


def _figure(value: str, words: str) -> str:
    return f'<div class="figure"><b>{escape(value)}</b><span>{escape(words)}</span></div>'


def _subtitle(report: dict[str, Any]) -> str:
    machine = report.get("machine", {})
    total = sum(report["seconds"].values())
    where = f"{machine.get('cores', 0):g} cores, {machine.get('gpu') or 'no GPU'}"
    return f'<p class="muted">{total / 60:.1f} minutes on {escape(where)}</p>'


def _headline(report: dict[str, Any]) -> str:
    figures = []
    if lift := report.get("lift"):
        figures.append(
            _figure(f"{lift['avg_points']:+.1f} points", f"RL over SFT, 95% [{lift['ci95'][0]}, {lift['ci95'][1]}]")
        )
    bench = report.get("bench", {})
    figures += [
        _figure(f"{bench[k]['avg']:.1f}%", f"{name}, held-out average")
        for k, name in (("sft", "SFT"), ("rl", "RL"))
        if k in bench
    ]
    if counts := report.get("rl", {}).get("counts"):
        figures.append(_figure(f"{counts['rollouts']:,}", "rollouts in sandboxes"))
        figures.append(_figure(f"{counts['swapped_in_flight']:,}", "rollouts that saw weights change in flight"))
    return f'<div class="headline">{"".join(figures)}</div>' if figures else ""


def _controls(report: dict[str, Any]) -> str:
    """RL against what the same compute bought without it, paired by task."""
    lines = [
        f"<li>RL over {escape(name.replace('_', ' '))}: <b>{found['avg_points']:+.1f} points</b>, "
        f"95% [{found['ci95'][0]}, {found['ci95'][1]}]</li>"
        for name, found in report.get("over_controls", {}).items()
    ]
    return f"<ul>{''.join(lines)}</ul>" if lines else ""


def _discovery(report: dict[str, Any]) -> str:
    if not (found := report.get("discovery")):
        return ""
    low, high = found["ci95"]
    return (
        f"<p><b>{escape(found['verdict'])}</b>: on level {escape(found['level'])}, whose winning move no demonstration "
        f"shows, best-of-{found['k']} went from {found['before']}% to {found['after']}% (95% of the difference "
        f"[{low}, {high}]).</p>"
    )


def _overlap(report: dict[str, Any]) -> str:
    if not (overlap := report.get("overlap")):
        return ""
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in overlap.items())
    return f'<p class="muted">Overlap of held-out with training tasks: {escape(facts)}.</p>'


def _asynchrony(report: dict[str, Any]) -> list[str]:
    if "rl" not in report:
        return []
    drawn = _charts(
        charts.from_curve(report, {"staleness_max": "oldest", "staleness_mean": "mean"}, "Staleness", "versions"),
        charts.from_curve(
            report, {"drift_k3": "training batches, mean k3"}, "Sampler against trainer", "k3 (log scale)", log_y=True
        ),
        charts.from_curve(report, {"delta_ratio": "delta / full weights"}, "Weight deltas", "ratio"),
        charts.from_curve(report, {"grad_norm": "gradient norm", "entropy": "entropy"}, "Health", ""),
    )
    rl = report["rl"]
    rows = [
        (f"{group}: {name}", value)
        for group in ("staleness", "mismatch", "drift", "delta", "counts")
        for name, value in rl.get(group, {}).items()
    ]
    return [drawn, _table(["", "value"], [[name, _cell(value)] for name, value in rows])]


def _rollouts(samples: list[dict[str, Any]]) -> str:
    if not samples:
        return ""
    views = (("logprob", "surprise", True), ("advantage", "advantage", False), ("version", "policy version", False))
    choices = "".join(
        f'<label><input type="radio" name="by" id="by-{key}"{" checked" if first else ""}> {words}</label>'
        for key, words, first in views
    )
    return f"<fieldset>Colour by {choices}</fieldset>" + "".join(rollout_view(sample) for sample in samples)


def _costs(report: dict[str, Any]) -> str:
    cores = report["core_seconds"]
    rows = [[stage, f"{s:.0f}", f"{cores.get(stage, 0) / 60:.1f}"] for stage, s in report["seconds"].items()]
    rows.append(["in all", f"{sum(report['seconds'].values()):.0f}", f"{sum(cores.values()) / 60:.1f}"])
    peak = report.get("peak_rss_bytes", 0)
    policies = [
        [name, f"{e['tokens']:.0f}", f"{e['tool_calls']:.1f}", f"{e['turns']:.1f}", f"{e['seconds']:.2f}"]
        for _, name, e in charts.policies(report)
    ]
    return (
        _table(["stage", "wall, s", "core-minutes"], rows)
        + (f'<p class="muted">Peak memory {peak / 2**30:.1f} GiB.</p>' if peak else "")
        + (_table(["policy, per attempt", "tokens", "tool calls", "turns", "seconds"], policies) if policies else "")
    )


def _real(report: dict[str, Any]) -> str:
    real = report.get("bench_real", {})
    rows = [
        [name, f"{e['avg']:.1f}", f"[{e['ci95'][0]}, {e['ci95'][1]}]"]
        for name, e in real.items()
        if isinstance(e, dict)
    ]
    return _table(["policy", "average, %", "95%"], rows) if rows else ""


def _facts(report: dict[str, Any]) -> str:
    facts = {**report.get("machine", {}), **report.get("versions", {})}
    return _table(["", ""], [[str(name), _cell(value)] for name, value in facts.items()])


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_cell(v)}" for k, v in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


def _table(head: list[str], rows: list[list[str]]) -> str:
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{titles}</tr>{lines}</table></div>'

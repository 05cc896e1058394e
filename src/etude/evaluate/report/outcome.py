"""Before and after: what the bench found, said in words first, then in tables that show both averages and every interval."""

from __future__ import annotations

from html import escape
from typing import Any

from etude.evaluate.report import charts
from etude.evaluate.report.table import Html, percent, points, table

SPLITS = {"heldout": "held-out", "validation": "validation"}


def describe_tasks(report: dict[str, Any]) -> str:
    """Which tasks the bench asked, in words."""
    return SPLITS[report.get("split", "heldout")]


def lead(report: dict[str, Any]) -> str:
    """The finding in a paragraph. It claims no more than the intervals do."""
    bench, lift = report.get("bench", {}), report.get("lift")
    if not lift:
        return ""
    low, high = lift["ci95"]
    words = [
        f"Reinforcement learning in sandboxes took the agent from {bench['sft']['avg']:.1f}% to "
        f"{bench['rl']['avg']:.1f}% of {describe_tasks(report)} tasks: <b>{lift['avg_points']:+.1f} points</b>, 95% "
        f"[{low:.1f}, {high:.1f}]."
    ]
    if "avg_points_equal" in lift:
        e_low, e_high = lift["ci95_equal"]
        words.append(
            f"With every level of task weighing the same it is {lift['avg_points_equal']:+.1f} [{e_low:.1f}, {e_high:.1f}]."
        )
    temperature = report["recipe"].get("bench", {}).get("temperature")
    if temperature is not None:
        words.append(
            f"Every model samples at temperature {temperature:g}; a lower one favours a model that is less sure of itself."
        )
    if given := given_checkpoint(report):
        words.append(
            f"SFT is the checkpoint {escape(given)}, not this run's own; base and the demonstrations are this run's."
        )
    if low <= 0 <= high:
        words.append("The interval includes zero: no lift is shown.")
    words += [_control(name, found, report) for name, found in report.get("over_controls", {}).items()]
    if describe_tasks(report) == "validation":
        words.append("<b>Settings may have been chosen on these very tasks: this is no evidence of generalisation.</b>")
    return f'<p class="lead">{" ".join(words)}</p>'


def _control(name: str, found: dict[str, Any], report: dict[str, Any]) -> str:
    low, high = found["ci95"]
    verdict = "RL is ahead" if low > 0 else "RL is behind" if high < 0 else "no difference is shown"
    share = report.get(name, {}).get("share", 1.0)
    less = f" (which had {100 * share:.0f}% of RL's price, so this proves nothing)" if share < 1 else ""
    if name == "competent_sft" and given_checkpoint(report):
        less = (
            " (fine-tuned from this run's own base, not from what RL's checkpoint was made of, so this proves nothing)"
        )
    return (
        f"Against the control {escape(charts.control(name))}{less} it is {found['avg_points']:+.1f} "
        f"[{low:.1f}, {high:.1f}]: {verdict}.{_price(name, report)}"
    )


def _price(name: str, report: dict[str, Any]) -> str:
    """What the control by RL's own attempts cost, compared with RL, sampling and training together."""
    spent = report["core_seconds"]
    if name != "rewarded_sft" or not {"rl", "attempts", name} <= spent.keys():
        return ""
    control = spent["attempts"] + spent[name]
    return (
        f" RL took {spent['rl']:,.0f} core-seconds, this control {control:,.0f} ({control / spent['rl']:.2f} of them)."
    )


def given_checkpoint(report: dict[str, Any]) -> str:
    """The SFT checkpoint that the recipe brought along; empty if the run made its own, from the base it shows."""
    return report["recipe"].get("run", {}).get("sft_checkpoint", "")


def headline(report: dict[str, Any]) -> str:
    """The figures to remember, large."""
    figures = []
    if lift := report.get("lift"):
        low, high = lift["ci95"]
        figures.append((f"{lift['avg_points']:+.1f} points", f"RL over SFT, 95% [{low:.1f}, {high:.1f}]"))
        if "avg_points_equal" in lift:
            low, high = lift["ci95_equal"]
            figures.append((f"{lift['avg_points_equal']:+.1f} points", f"by equal levels, [{low:.1f}, {high:.1f}]"))
    bench = report.get("bench", {})
    for key, name in (("sft", "SFT"), ("rl", "RL")):
        if key in bench:
            figures.append((f"{bench[key]['avg']:.1f}%", f"{name}, {describe_tasks(report)} average"))
    if counts := report.get("rl", {}).get("counts"):
        figures.append((f"{counts['rollouts']:,}", "rollouts in sandboxes"))
    boxes = [
        f'<div class="figure"><b>{escape(value)}</b><span>{escape(words)}</span></div>' for value, words in figures
    ]
    return f'<div class="headline">{"".join(boxes)}</div>' if boxes else ""


def policies(report: dict[str, Any]) -> str:
    """Every policy: both averages, best-of-k, and what an attempt costs."""
    rows = []
    for _, name, e in charts.policies(report):
        k, best = list(e["best_of"].items())[-1]
        equal = percent(e, "avg_equal", "ci95_equal") if "avg_equal" in e else ""
        cost = [f"{e['tokens']:.0f}", f"{e['tool_calls']:.1f}", f"{e['turns']:.1f}", f"{e['seconds']:.2f}"]
        rows.append([name, percent(e), equal, f"{best:.1f} of {k}" if int(k) > 1 else "", *cost])
    head = ["policy", "by the mix, % [95%]", "by equal levels", "best of k", "tokens", "calls", "turns", "seconds"]
    return table(head, rows) if rows else ""


def lifts(report: dict[str, Any]) -> str:
    """RL against SFT and against each control, paired by task."""
    found = {"RL over SFT": report["lift"]} if "lift" in report else {}
    found |= {f"RL over control {charts.control(n)}": entry for n, entry in report.get("over_controls", {}).items()}
    rows = []
    for name, entry in found.items():
        equal = points(entry, "avg_points_equal", "ci95_equal") if "avg_points_equal" in entry else ""
        best = entry.get("best_of")
        of = Html(f"{points(best)} <span class='muted'>of {best['k']}</span>") if best else ""
        rows.append([name, points(entry, "avg_points"), equal, of])
    head = ["points, paired by task [95%]", "by the mix", "by equal levels", "best of k"]
    return table(head, rows) if rows else ""


def discovery(report: dict[str, Any]) -> str:
    if not (found := report.get("discovery")):
        return ""
    low, high = found["ci95"]
    tasks = f" ({found['tasks']} tasks)" if "tasks" in found else ""
    return (
        f"<p><b>{escape(found['verdict'])}</b>: on level {escape(found['level'])}{tasks}, whose winning move no "
        f"demonstration shows, best-of-{found['k']} went from {found['before']:.1f}% to {found['after']:.1f}% (95% of the "
        f"difference [{low:.1f}, {high:.1f}]).</p>"
    )


def levels(report: dict[str, Any]) -> str:
    """SFT and RL by category, by level, and by how the task was held out."""
    bench = report.get("bench", {})
    if not {"sft", "rl"} <= bench.keys():
        return _levels_of_one(report)
    paired = report.get("lift", {}).get("by_level", {})
    titles = {"by_category": "by category", "by_level": "by level", "by_holdout": "by how it is kept from training"}
    rows: list[list[str]] = []
    for kind, title in titles.items():
        split = bench["rl"].get(kind, {})
        rows += [[title]] if split else []
        for name, after in split.items():
            before = bench["sft"][kind][name]
            change = f"{after['avg'] - before['avg']:+.1f}"
            if kind == "by_level" and name in paired:
                change = points(paired[name], "avg_points")
            rows.append([name, str(after["tasks"]), percent(before), percent(after), change, *_best(before, after)])
    return table(["", "tasks", "SFT, % [95%]", "RL, % [95%]", "points", "best of k, SFT to RL"], rows)


def _levels_of_one(report: dict[str, Any]) -> str:
    """The levels of the one policy that was asked."""
    found = charts.policies(report)
    if len(found) != 1:
        return ""
    levels = found[0][2]["by_level"].items()
    return table(["", "tasks", "solved, % [95%]"], [[name, str(e["tasks"]), percent(e)] for name, e in levels])


def _best(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    keys = [key for key in after if key.startswith("best_of_") and key in before and not key.endswith("_1")]
    return [
        f"{before[key]:.0f} to {after[key]:.0f} of {key.removeprefix('best_of_')}" if keys else "" for key in keys[:1]
    ] or [""]


def overlap(report: dict[str, Any]) -> str:
    """The statement, and the figure for the very tasks that were asked."""
    if not (found := report.get("overlap")):
        return ""
    own: list[str] = []
    if "seen_share" in found:
        own.append(f"{100 * found['seen_share']:.1f}% of the tasks asked have a target body that training can show")
    if "validation_share" in found:
        own.append(f"{100 * found['validation_share']:.1f}% one that validation can show")
    statement = ". ".join([*([found["statement"]] if "statement" in found else []), *([", ".join(own)] if own else [])])
    return f'<p class="muted">Overlap: {escape(statement)}.</p>'

"""What came of installing a list: yield and cost of each builder, side by side. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.tasks.generate.install.agents.spending import Bill

COUNTED = ("turns", "input_tokens", "output_tokens")


def account(rows: Sequence[Mapping[str, Any]], shared: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """`rows`: one for each builder and project. `shared`: what a setter and a judge cost who serve all builders. A project counts as
    installed where one of the builders installed it."""
    projects = dict.fromkeys(row["project"] for row in rows)
    good = {row["project"] for row in rows if row["installed"]}
    names = dict.fromkeys(row["builder"] for row in rows)
    builders = [_builder(name, [row for row in rows if row["builder"] == name]) for name in names]
    return {
        "projects": list(rows),
        "builders": builders,
        **{who: dict(spent) for who, spent in shared.items() if spent.get("turns")},
        "installed": len(good),
        "of": len(projects),
        "yield": _share(len(good), len(projects)),
    }


def total(bill: Bill) -> dict[str, Any]:
    """Over all projects."""
    return _sum([spent.to_record() for spent in bill.projects.values()])


def describe_account(document: Mapping[str, Any]) -> str:
    """For people."""
    lines = [f"{document['installed']} of {document['of']} projects installed"]
    if len(document["builders"]) > 1 or any(one["turns"] for one in document["builders"]):
        lines += [_line(one) for one in document["builders"]]
    for who in ("setter", "judge"):
        if who in document:
            lines.append(f"  {who}: {_cost(document[who])}")
    return "\n".join(lines)


def _builder(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows if row["installed"]]
    spent = _sum([row.get("spent", {}) for row in rows])
    dollars = spent["dollars"]
    return {
        "builder": name,
        "installed": len(good),
        "of": len(rows),
        "yield": _share(len(good), len(rows)),
        "by_language": {
            language: [sum(row["language"] == language for row in some) for some in (good, rows)]
            for language in dict.fromkeys(row["language"] for row in rows)
        },
        "tests": sum(row["tests"] for row in good),
        "seconds": round(sum(row["seconds"] for row in rows), 1),
        **spent,
        "dollars_per_install": None if dollars is None or not good else round(dollars / len(good), 6),
    }


def _sum(spent: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Dollars are known only if all are."""
    dollars = [one.get("dollars", 0.0) for one in spent]
    known = None if None in dollars else round(sum(dollars), 6)
    return {**{key: sum(one.get(key, 0) for one in spent) for key in COUNTED}, "dollars": known}


def _share(good: int, of: int) -> float:
    return round(good / of, 3) if of else 0.0


def _line(one: Mapping[str, Any]) -> str:
    return f"  {one['builder']}: {one['installed']} of {one['of']} ({one['yield']:.0%}), {_cost(one)}"


def _cost(one: Mapping[str, Any]) -> str:
    dollars = "price unknown" if one["dollars"] is None else f"${one['dollars']:.4f}"
    return f"{one['turns']} turns, {one['input_tokens']} + {one['output_tokens']} tokens, {dollars}"

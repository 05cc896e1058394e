"""Under which conditions a folder's attempts were made. Other ones are refused rather than mixed; more policies may join.

What all share (suite, tasks, seed, strictness) binds the folder from its first attempt on; what one policy depends on (harness,
limits, address, weights) binds that policy's. Prices are those of the day when its first attempt was planned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from etude.evaluate.bench.runs.cost import usage_rows
from etude.evaluate.bench.runs.folder import RunFolder, replace_text

SCHEMA = 1
SHOWN_CHARS = 60


class ConditionsDiffer(Exception):
    """The folder holds attempts that were made otherwise, or another run's files."""


def begin(folder: RunFolder, shared: Mapping[str, Any], participants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Writes down the conditions, joined with those of policies that made attempts before; returns them.

    A policy's price and passes, and the values under `shared["report"]`, don't bind: passes may be added. Raises ConditionsDiffer.
    """
    before = read(folder)
    if before is None:
        _free(folder)
    elif _any_outcome(folder, before):
        _same(folder, {"shared": before["shared"]}, {"shared": dict(shared)})
    shared = dict(shared)
    if before:  # a judge that was given stays: what it said is in the folder
        given = {name: value for name, value in shared["report"].items() if value is not None}
        shared["report"] = {**before["shared"]["report"], **given}
    merged = _answered(folder, before["policies"]) if before else {}
    for key, facts in participants.items():
        if key in merged and has_outcomes(folder, key):
            _same(folder, {key: merged[key]}, {key: dict(facts)})
            kept = {name: merged[key][name] for name in ("price", "priced")}
            merged[key] = {**facts, **kept, "passes": max(facts["passes"], merged[key]["passes"])}
        else:
            merged[key] = dict(facts)
    found = {"schema": SCHEMA, "shared": dict(shared), "policies": merged}
    replace_text(folder.conditions, json.dumps(found, indent=1, allow_nan=False) + "\n")
    return found


def read(folder: RunFolder) -> dict[str, Any] | None:
    """The conditions of a folder; None where there are none. Raises ConditionsDiffer for a later program's."""
    if not folder.conditions.is_file():
        return None
    try:
        found = json.loads(folder.conditions.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConditionsDiffer(
            f"{folder.conditions} is no JSON ({error}): restore it from a copy, or give the run a new --out"
        ) from error
    if not isinstance(found, dict):
        raise ConditionsDiffer(
            f"{folder.conditions} holds no JSON object: restore it from a copy, or give the run a new --out"
        )
    if found.get("schema") != SCHEMA or "shared" not in found:
        raise ConditionsDiffer(
            f"{folder.conditions} has schema {found.get('schema')!r} of a bench run, this program knows {SCHEMA}: "
            "give the run a new --out"
        )
    return found


def has_outcomes(folder: RunFolder, key: str) -> bool:
    """Whether anything of a policy is written down."""
    path = folder.outcomes(key)
    return path.is_file() and path.stat().st_size > 0


def _answered(folder: RunFolder, policies: Mapping[str, Any]) -> dict[str, Any]:
    """A policy that never answered (a wrong address, a wrong name) is dropped; a policy that cost money stays."""
    paid = {row["policy"] for row in usage_rows(folder.usage)}
    return {key: facts for key, facts in policies.items() if key in paid or has_outcomes(folder, key)}


def _any_outcome(folder: RunFolder, conditions: Mapping[str, Any]) -> bool:
    return any(has_outcomes(folder, key) for key in conditions["policies"])


def _free(folder: RunFolder) -> None:
    """A folder without conditions must not be another run's."""
    for name in ("recipe.toml", "policies", "session.jsonl"):
        if (folder.root / name).exists():
            raise ConditionsDiffer(
                f"{folder.root} is the directory of another run (it has {name}): give the bench an --out of its own"
            )


_FREE = ("price", "priced", "report", "passes")  # what does not bind


def _same(folder: RunFolder, before: dict[str, Any], now: dict[str, Any]) -> None:
    changed = _differences("", before, json.loads(json.dumps(now)))
    if changed:
        raise ConditionsDiffer(
            f"{folder.root} holds attempts made under other conditions ({'; '.join(changed[:3])}): give another --out, or "
            "remove it"
        )


def _differences(place: str, before: Any, now: Any) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [key for key in dict.fromkeys([*before, *now]) if key not in _FREE]
        return [d for key in keys for d in _differences(f"{place}.{key}".lstrip("."), before.get(key), now.get(key))]
    return [] if before == now else [f"{place}: {_short(before)} then, {_short(now)} now"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"

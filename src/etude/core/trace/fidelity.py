"""What differs between two sessions' harnesses, fact by fact: a session of use and a rollout should differ in nothing.

The harness hash says whether; the facts it is of, in the header, say where. Settings that a policy can't see (temperature,
limits) are listed separately: they differ between training and use by design.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from etude.core.trace.entry import SessionHeader

Missing = object()


@dataclass(frozen=True)
class FactDifference:
    """One fact with two values; a value that one side lacks is None and named in `only`."""

    fact: str  # a dotted path: "settings.max_tool_lines"
    seen: bool  # whether a policy can see it
    first: Any
    second: Any
    only: Literal["first", "second"] | None = None


def fidelity(first: SessionHeader, second: SessionHeader) -> list[FactDifference]:
    """Every difference of what two sessions' policies could see, then those they could not."""
    found = _deep("", first.harness_facts, second.harness_facts, True)
    known = {row.fact for row in found}
    unseen = _deep("settings.", first.settings, second.settings, False)
    found += [row for row in unseen if row.fact not in known]
    found += _deep("effort", first.effort, second.effort, True)
    found += _deep("takes_tokens", first.takes_tokens, second.takes_tokens, False)
    return found + _deep("policy", first.policy, second.policy, False)


def same_harness(first: SessionHeader, second: SessionHeader) -> bool:
    """Whether both sessions saw the same harness, by its hash."""
    return bool(first.harness) and first.harness == second.harness


def _deep(path: str, first: Any, second: Any, seen: bool) -> list[FactDifference]:
    if isinstance(first, dict) and isinstance(second, dict):
        stem = path if not path or path.endswith(".") else f"{path}."
        pairs = [(key, first.get(key, Missing), second.get(key, Missing)) for key in sorted({*first, *second})]
        return [row for key, a, b in pairs for row in _deep(f"{stem}{key}", a, b, seen)]
    if first is Missing:
        return [FactDifference(path, seen, None, second, "second")]
    if second is Missing:
        return [FactDifference(path, seen, first, None, "first")]
    if isinstance(first, list) and isinstance(second, list) and _named(first) and _named(second):
        return _deep(path, _by_name(first), _by_name(second), seen)
    return [] if first == second else [FactDifference(path, seen, first, second)]


def _named(rows: list[Any]) -> bool:
    """Tool schemas: each has a function with a name."""
    return bool(rows) and all(isinstance(row, dict) and "name" in row.get("function", {}) for row in rows)


def _by_name(rows: list[Any]) -> dict[str, Any]:
    return {row["function"]["name"]: row["function"] for row in rows}

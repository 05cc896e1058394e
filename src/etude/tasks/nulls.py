"""JSON values as TOML can hold them, and back without loss: null, which TOML does not have, is taken out and its places are recorded."""

from __future__ import annotations

from typing import Any

Place = list[str | int]  # keys and numbers from the outermost inwards


def without_nulls(value: dict[str, Any]) -> tuple[dict[str, Any], list[Place]]:
    """The value, and where nulls were: keys of tables are left out, in lists an empty text replaces it."""
    places: list[Place] = []
    return _without(value, [], places), places


def with_nulls(value: dict[str, Any], places: list[Place]) -> dict[str, Any]:
    """The value with its nulls where they were. Raises KeyError, IndexError, TypeError for places that it doesn't have."""
    for *holders, last in places:
        inner: Any = value
        for step in holders:
            inner = inner[step]
        inner[last] = None
    return value


def _without(value: Any, at: Place, places: list[Place]) -> Any:
    if isinstance(value, dict):
        places += [[*at, key] for key, inner in value.items() if inner is None]
        return {key: _without(inner, [*at, key], places) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        places += [[*at, number] for number, inner in enumerate(value) if inner is None]
        return ["" if inner is None else _without(inner, [*at, number], places) for number, inner in enumerate(value)]
    return value

"""Documents as strict JSON: where a number is NaN or infinite the document says null, and "not_finite" says where and what it was.

    {"mismatch": {"k3": null}, "not_finite": {"/mismatch/k3": "nan"}}

Places are JSON pointers (RFC 6901). Python's own `json` writes the bare words NaN and Infinity, which no other reader takes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NOT_FINITE = "not_finite"


def not_finite(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Place and spelling ("nan", "inf", "-inf") of every number in `value` that is not finite."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield at, str(float(value))
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from not_finite(inner, f"{at}/{_escaped(str(key))}")
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            yield from not_finite(inner, f"{at}/{place}")


def without_nan(value: Any) -> Any:
    """The same with None for every number that is not finite; tuples become lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(inner) for inner in value]
    return value


def strict(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document for JSON: nulls, and "not_finite" if there are any."""
    found = dict(not_finite(document))
    earlier = document.get(NOT_FINITE)
    if found and isinstance(earlier, Mapping):
        found = {**earlier, **found}
    return {**without_nan(document), **({NOT_FINITE: found} if found else {})}


def dumps(document: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Strict JSON text of a document."""
    return json.dumps(strict(document), indent=indent, allow_nan=False)


def read_file(path: Path) -> Any:
    """As `loads`, of a file, which errors name."""
    try:
        return loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}): restore it from a copy, or remove it") from error


def loads(text: str | bytes) -> Any:
    """What `dumps` wrote, with its numbers back in their places; any other JSON as it is. Raises ValueError for what is no JSON."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    if not isinstance(document, dict) or not isinstance(found := document.get(NOT_FINITE), dict):
        return document
    del document[NOT_FINITE]
    for place, spelled in found.items():
        _put(document, [_plain(part) for part in str(place).split("/")[1:]], spelled)
    return document


def _put(document: Any, path: list[str], spelled: Any) -> None:
    """Only where null is: a place that is not there, or a word that is no number, is passed over."""
    *folders, last = path or [""]
    try:
        for part in folders:
            document = document[int(part)] if isinstance(document, list) else document[part]
        key: Any = int(last) if isinstance(document, list) else last
        if document[key] is None and spelled in ("nan", "inf", "-inf"):
            document[key] = float(spelled)
    except (KeyError, IndexError, ValueError, TypeError):
        return


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _plain(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")

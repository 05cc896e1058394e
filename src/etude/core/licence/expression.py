"""SPDX expressions (SPDX 3.0, annex "License expressions"): parsed by `license_expression`, joined, compared, and sorted into families.

Beyond SPDX's list two names of ours stand for what people write without saying more: `LicenseRef-BSD` (some BSD licence, which one is not
named) and `LicenseRef-public-domain` (SPDX has no identifier for a waiver in free words)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files

from license_expression import (
    ExpressionError,
    LicenseSymbol,
    LicenseWithExceptionSymbol,
    Licensing,
    get_spdx_licensing,
)

from etude.core.licence.licence import FAMILIES, Family

SOME_BSD = "LicenseRef-BSD"
PUBLIC_DOMAIN = "LicenseRef-public-domain"
_OURS: dict[str, Family] = {SOME_BSD: "permissive", PUBLIC_DOMAIN: "permissive"}
# The categories of the licence database that comes with `license_expression`; all others (proprietary, source-available …) are "other".
_CATEGORIES: dict[str, Family] = {
    "Permissive": "permissive",
    "Public Domain": "permissive",
    "Copyleft Limited": "weak copyleft",
    "Copyleft": "strong copyleft",
}
# GPL exceptions that leave the file itself strong: they free a use of the binary, or its linking with one named library.
_STAYS_STRONG = re.compile(r"openssl|syscall|Asterisk|OpenH323|389|CC-1\.0|OCCT|Universal-FOSS|u-boot", re.IGNORECASE)


@cache
def _licensing() -> Licensing:
    return get_spdx_licensing()


@cache
def _categories() -> dict[str, Family]:
    """By SPDX identifier in lower case, the retired ones included."""
    index = json.loads((files("license_expression") / "data" / "scancode-licensedb-index.json").read_text())
    found: dict[str, Family] = {}
    for entry in index:
        for key in (entry["spdx_license_key"], *entry["other_spdx_license_keys"]):
            if key:
                found[key.lower()] = _CATEGORIES.get(entry["category"], "other")
    found.update({name.lower(): kind for name, kind in _OURS.items()})
    return found


@lru_cache(maxsize=4096)
def spdx(text: str) -> str:
    """The expression in SPDX's spelling (GPL-2.0+ becomes GPL-2.0-or-later); "" if it isn't one or names an unknown identifier
    (a LicenseRef is known to its project)."""
    text = text.strip()
    if not text or len(text) > 1_000:
        return ""
    try:
        tree = _licensing().parse(text, validate=False)
        if tree is None:
            return ""
        unknown = _licensing().unknown_license_keys(tree)
    except (ExpressionError, ValueError, TypeError, AttributeError):
        return ""  # `license_expression` raises each of these on malformed input
    if any(not re.fullmatch(r"(?:DocumentRef-[\w.-]+:)?LicenseRef-[\w.-]+", key) for key in unknown):
        return ""
    return str(tree)


@lru_cache(maxsize=4096)
def symbols(expression: str) -> frozenset[str]:
    """The licences that an expression names, exceptions with their licence ("GPL-2.0-only WITH Classpath-exception-2.0")."""
    if not expression:
        return frozenset()
    return frozenset(str(symbol) for symbol in _licensing().license_symbols(expression, decompose=False))


@lru_cache(maxsize=4096)
def family(expression: str) -> Family:
    """What the licence asks of those who pass the work on. OR takes the best of its sides, AND the worst; "" is unknown."""
    if not expression or not spdx(expression):
        return "unknown"
    return FAMILIES[_rank(_licensing().parse(expression, validate=False))]


def _rank(node: object) -> int:
    if isinstance(node, LicenseWithExceptionSymbol):
        return _rank_with(str(node.license_symbol.key), str(node.exception_symbol.key))
    if isinstance(node, LicenseSymbol):
        return FAMILIES.index(_categories().get(str(node.key).lower(), "unknown"))
    ranks = [_rank(side) for side in node.args]  # pyright: ignore[reportAttributeAccessIssue]
    return min(ranks) if type(node).__name__ == "OR" else max(ranks)


def _rank_with(licence: str, exception: str) -> int:
    """An exception only ever allows more; an unknown one changes nothing."""
    rank = FAMILIES.index(_categories().get(licence.lower(), "unknown"))
    known = _categories().get(exception.lower()) in ("permissive", "weak copyleft")
    if FAMILIES[rank] == "strong copyleft" and known and not _STAYS_STRONG.search(exception):
        return FAMILIES.index("weak copyleft")
    return rank


def join_expressions(parts: Iterable[str], *, choice: bool = False) -> str:
    """All of them hold (AND), or any one (`choice`, OR); the same for every order of `parts`."""
    known = sorted({part for part in parts if part}, key=str.lower)
    if len(known) < 2:
        return known[0] if known else ""
    word = " OR " if choice else " AND "
    inner = " AND " if choice else " OR "
    return spdx(word.join(f"({part})" if inner in part else part for part in known))


def equivalent(one: str, other: str) -> bool:
    """Whether two expressions say the same, whatever the order of their parts."""
    if one == other or not one or not other:
        return one == other
    return bool(_licensing().is_equivalent(one, other))

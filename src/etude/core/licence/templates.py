"""The texts of the common licences as bags of neighbouring words: those of the `identify` package and `templates.toml` in this folder."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from identify.vendor.licenses import LICENSES

from etude.core.licence.expression import spdx
from etude.core.licence.words import pairs, words

Pair = tuple[str, str]

# Below it a licence's advice on how to apply it begins; people leave that part out, or keep it.
ADVICE = re.compile(r"END OF TERMS AND CONDITIONS|How to Apply These Terms", re.IGNORECASE)
# `identify` writes the retired identifiers.
RENAMED = {
    "GPL-2.0": "GPL-2.0-only",
    "GPL-3.0": "GPL-3.0-only",
    "LGPL-2.1": "LGPL-2.1-only",
    "LGPL-3.0": "LGPL-3.0-only",
    "AGPL-3.0": "AGPL-3.0-only",
}


@dataclass(frozen=True)
class LicenceTemplate:
    """`pairs` with their counts; `places` of those that occur once. A licence that ends in advice has two templates."""

    licence: str
    pairs: Counter[Pair]
    places: dict[Pair, int]
    size: int


@cache
def templates() -> tuple[LicenceTemplate, ...]:
    """All of them, made once a process (0.1 s)."""
    own_templates = tomllib.loads((files("etude.core.licence") / "templates.toml").read_text(encoding="utf-8"))
    texts = [(RENAMED.get(name, name), text) for name, text in LICENSES] + [
        (name, entry["text"]) for name, entry in own_templates.items()
    ]
    found: list[LicenceTemplate] = []
    for name, text in texts:
        found.append(_template(name, text))
        if advice := ADVICE.search(text):
            found.append(_template(name, text[: advice.start()]))
    return tuple(found)


def _template(name: str, text: str) -> LicenceTemplate:
    neighbours = pairs(words(text))
    bag = Counter(neighbours)
    licence = name if name.endswith("-exception") else spdx(name)
    if not licence:
        raise ValueError(f"template {name!r} is no SPDX identifier: correct its name in templates.toml")
    return LicenceTemplate(
        licence, bag, {pair: place for place, pair in enumerate(neighbours) if bag[pair] == 1}, bag.total()
    )

"""Which licence texts a text consists of: token Dice against templates, on the span of the text where a template is densest.

The textbook compares whole files, which fails on the second licence appended, on a preface and on a list of bundled works. Here each
template first finds its span (the maximum sum of +1 for a pair of words that the template has and -1 for one that it lacks:
Kadane's scan, near the place where most pairs stand in the template's order), Dice is taken on the span, the best
template's span is cut out, and the rest is searched again.

Near relatives (BSD with 2, 3 and 4 clauses, MIT and X11, LGPL 2.0 and 2.1) all pass the threshold on one another's texts; among the passing
ones the template with the most pairs in common less those missing and those added wins."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from identify.vendor.licenses import LICENSES

from etude.core.licence.expression import spdx
from etude.core.licence.words import dice, pairs, words

# The texts of the common licences as bags of neighbouring words: those of the `identify` package and `templates.toml`
# in this folder.


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


# A BSD text whose organisation occurs at four places keeps 0.93; a licence rewritten by its user falls below 0.85.
LEAST_DICE = 0.87
# Words that no template adds by itself in an edit: one of them added inside a licence makes it another licence.
RESTRICTING = frozenset((
    "noncommercial", "commercial", "commercially", "evil", "military", "academic", "academia", "educational", "nonprofit", "evaluation", "royalties",
    "prohibited", "forbidden", "weapons", "competing", "revenue", "confidential", "proprietary", "sell", "selling", "ethical", "immoral",
))  # fmt: skip
# A part of the licence: by so much words added and left out may shift its end against its beginning.
SLACK = 10
# Of several places that a template fits about as well, the first.
NEARLY = 0.9
# Where the metadata names the licence as well: its words with another licensor's name at every place (0.83 for the PSF's).
EXPECTED_DICE = 0.8
# A first look at pairs without their repetitions asks a little less than the threshold does.
LEAST_DISTINCT = 0.9
# Pairs of a template that count as its beginning.
OPENING = 20
# Longer texts are no licences, or list hundreds of them (a browser's credits): only their beginning is read.
MOST_WORDS = 60_000
MOST_LICENCES = 40


@dataclass(frozen=True)
class LicenceMatch:
    """`licence` is an SPDX identifier, `start` the place of its first word."""

    licence: str
    dice: float
    start: int


@dataclass(frozen=True)
class LicenceAnalysis:
    """What a text consists of: licences in the order they stand, and the words that belong to none, before the first licence and after it.
    `restricted` says that words were added inside a licence that no licence of ours has: it isn't that licence any more."""

    matches: tuple[LicenceMatch, ...]
    before: str
    after: str
    restricted: bool = False

    @property
    def licences(self) -> list[str]:
        """Each once, in the order they stand; an exception joined to the licence before it."""
        whole: list[str] = []
        for match in self.matches:
            if not match.licence.endswith("-exception"):
                whole.append(match.licence)
            elif whole and " WITH " not in whole[-1]:
                whole[-1] = f"{whole[-1]} WITH {match.licence}"
        return list(dict.fromkeys(whole))

    @property
    def rest(self) -> str:
        return f"{self.before} \n {self.after}"


def analyse_text(text: str, expected: frozenset[str] = frozenset()) -> LicenceAnalysis:
    """The licences that a text consists of. Those `expected`, because the metadata names them, may differ more from their templates."""
    found = words(text)[:MOST_WORDS]
    segments = [(0, found)]
    matches: list[LicenceMatch] = []
    rest: list[tuple[int, list[str]]] = []
    restricted = False
    while segments:
        start, segment = segments.pop()
        hit = _best(segment, expected) if len(matches) < MOST_LICENCES else None
        if hit is None:
            rest.append((start, segment))
            continue
        template, share, first, last = hit
        added = Counter(segment[first:last]) - Counter(word for pair in template.pairs.elements() for word in pair)
        restricted |= not RESTRICTING.isdisjoint(added)
        matches.append(LicenceMatch(template.licence, share, start + first))
        segments += [(start, segment[:first]), (start + last, segment[last:])]
    matches.sort(key=lambda match: match.start)
    rest.sort()
    first = matches[0].start if matches else len(found)
    before = " ".join(word for start, part in rest if start < first for word in part)
    after = " \n ".join(" ".join(part) for start, part in rest if part and start >= first)
    return LicenceAnalysis(tuple(matches), before, after, restricted)


def _best(segment: list[str], expected: frozenset[str]) -> tuple[LicenceTemplate, float, int, int] | None:
    """The template that explains most of the segment, its Dice, and the words [first, last) that it explains."""
    neighbours = pairs(segment)
    bag = Counter(neighbours)
    best, most = None, 0.0
    for template in templates():
        # With Dice at its threshold, this share of the template's pairs must be there: counted without repetitions first, which is quick.
        threshold = EXPECTED_DICE if template.licence in expected else LEAST_DICE
        least = threshold / (2 - threshold)
        distinct = len(bag.keys() & template.pairs.keys())
        if len(neighbours) < least * template.size or distinct < LEAST_DISTINCT * least * len(template.pairs):
            continue
        first, last = _span(neighbours, template)
        inside = Counter(neighbours[first:last])
        share = dice(inside, template.pairs)
        net = 3 * (inside & template.pairs).total() - template.size - inside.total()
        if share >= threshold and net > most:
            best, most = (template, share, first, last + 1), net
    return best


def _span(neighbours: list[Pair], template: LicenceTemplate) -> tuple[int, int]:
    """The pairs [first, last) with the most of the template's less others, near the place where most pairs stand in the template's order: the same
    licence a second time further down is not taken into the span."""
    slack = max(4, template.size // SLACK)
    starts = Counter(
        (place - template.places[pair]) // slack for place, pair in enumerate(neighbours) if pair in template.places
    )
    support = {start: starts[start] + starts[start + 1] for start in starts}
    enough = NEARLY * max(support.values(), default=0)
    aligned = min((start for start in support if support[start] >= enough), default=0) * slack
    # The template's own beginning, so that a notice before it, made of the same words, stays outside.
    near = range(max(0, aligned - slack), min(len(neighbours), aligned + 2 * slack + OPENING))
    opening = ((place, template.places.get(neighbours[place], OPENING)) for place in near)
    begins = Counter(place - offset for place, offset in opening if offset < OPENING)
    begin = max(begins, key=lambda place: (begins[place], -place), default=aligned - slack)
    best, span = 0, (0, 0)
    first = max(0, begin)
    score, hits = 0, 0
    for place in range(first, min(len(neighbours), aligned + template.size + 2 * slack)):
        hit = neighbours[place] in template.pairs
        score += 1 if hit else -1
        hits += hit
        if score <= 0:
            score, first, hits = 0, place + 1, 0
        if score > best:
            best, span = score, (first, place + 1)
        if hits == template.size:
            break
    return span

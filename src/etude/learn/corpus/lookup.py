"""Lookups far back in real code: questions that measure a long context, and the documents it is learnt from.

A context is a pile of real functions; behind it a line begins whose end is one of several that the context itself holds, so
that knowing code does not help, and finding the place does (the lines: `learn/corpus/lookup_line.py`). The documents of form `lookups` are the same
with the answers written out: tests with all the lines, functions said again word for word in another order, as an agent quotes what
it edits; that is where a small model learns to copy. Both are functions of the files, the length and the seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice

from etude.learn.corpus.lookup_line import KINDS, Kind, LookupLine, SourceFunction, ask, functions

Count = Callable[[str], int]  # text -> tokens

# A function is cut at a line's end to this part of the context, so that even a short one holds more than the choices.
PARTS = 6
# Functions of a kind held at a time, and drawn from for questions: memory stays flat however much code there is.
POOL = 2000
# Of a document's tokens, those of the code that is asked about.
CODE_SHARE: dict[Kind, float] = {"definition": 0.48, "test": 0.75}
# Documents are whole, half, … lengths, each with the same share of tokens: the short ones teach what the long ones need.
HALVINGS = 4
# Tokens kept for wrong answers that are longer than the right one, and for the name of what a test calls.
ENDS = 16
# A context that the files fill less than this is none of its length.
FILLED = 0.6
# Targets tried for each that is wanted, before the files count as too few.
TRIED = 8
MISSES = 4  # functions in a row that do not fit: then a context counts as full
BETWEEN = "\n\n"
HEADINGS: dict[Kind, str] = {"definition": "\n\n# again\n", "test": "\n\n# tests\n"}


@dataclass(frozen=True)
class LookupQuestion:
    """`text` and the answer are at most `length` tokens; what answers lies at `depth` of the context, 0 its beginning and 1 its end."""

    kind: Kind
    target: int  # questions of one target and length differ in depth alone
    length: int
    depth: float
    text: str
    line: LookupLine


@dataclass
class _OpenLookup:
    """Functions by kind, and the names of all."""

    pools: dict[Kind, list[SourceFunction]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    names: set[str] = field(default_factory=set)


def questions(
    files: Iterable[tuple[str, str]],
    count: Count,
    *,
    lengths: Sequence[int],
    depths: Sequence[float],
    each: int,
    seed: int,
) -> list[LookupQuestion]:
    """Of every kind and length (tokens) up to `each` targets, asked at every depth; fewer where the files, (path, text), hold too few.

    A target that can't be asked at a length is replaced by another, TRIED at most for each that is wanted.
    """
    held = _sampled(files, random.Random(f"{seed}"))
    found: list[LookupQuestion] = []
    for kind in KINDS:
        targets = range(min(len(held.pools[kind]), TRIED * each))
        for length in lengths:
            asked = (_at_depths(kind, n, held, count, length, depths, seed) for n in targets)
            found += [question for group in islice(filter(None, asked), each) for question in group]
    return found


def lookup_documents(files: Iterable[tuple[str, str]], count: Count, length: int, seed: int) -> Iterator[str]:
    """Documents of at most `length` tokens, many of them shorter, from (path, text) in the order given; no function is in two.

    Streams: POOL functions are held at a time.
    """
    found = (function for path, text in files for function in functions(path, text))
    number = 0
    while window := list(islice(found, POOL)):
        names = {function.name for function in window}
        for kind in KINDS:
            rng = random.Random(f"{seed}:{kind}:{number}")
            left = [function for function in window if function.kind == kind]
            rng.shuffle(left)
            yield from _documents(kind, left, names, count, length, rng)
        number += 1


def _documents(
    kind: Kind, left: list[SourceFunction], names: set[str], count: Count, longest: int, rng: random.Random
) -> Iterator[str]:
    lengths = [longest >> n for n in range(HALVINGS)]
    while left:
        length = rng.choices(lengths, [1 / length for length in lengths])[0]
        chosen = _context([], left, int(length * CODE_SHARE[kind]), length // PARTS, count)
        if not chosen and length == longest:
            return  # nothing that is left fits
        taken = {function.name for function in chosen}
        left = [function for function in left if function.name not in taken]
        if text := _answered(kind, chosen, names, count, length, rng):
            yield text


def _answered(
    kind: Kind, chosen: list[SourceFunction], names: set[str], count: Count, length: int, rng: random.Random
) -> str:
    """The code and what is asked of it with the answers, as much as fits in a drawn order; "" if nothing is asked."""
    if kind == "definition":
        ends = [function.source + BETWEEN for function in chosen]
    else:
        ends = [f"{line}\n" for function in chosen if (line := ask(kind, function, chosen, names, rng)) is not None]
    rng.shuffle(ends)
    text = _code(chosen) + HEADINGS[kind]
    room = length - count(text)
    fitting = [end for end, used in zip(ends, accumulate(map(count, ends)), strict=True) if used <= room]
    return text + "".join(fitting).rstrip() + "\n" if fitting else ""


def _at_depths(
    kind: Kind, target: int, held: _OpenLookup, count: Count, length: int, depths: Sequence[float], seed: int
) -> list[LookupQuestion]:
    """The target's questions at one length and all depths, in the same company; none if it can't be asked there."""
    pool = held.pools[kind]
    own = _cut(pool[target], length // PARTS, count)
    rng = random.Random(f"{seed}:{kind}:{target}:{length}")
    order = (pool[n] for n in rng.sample(range(len(pool)), len(pool)) if n != target)
    asked = count(HEADINGS[kind] + own.source.split("\n")[0]) + ENDS
    chosen = _context([own], order, length - asked, length // PARTS, count)
    line = ask(kind, own, chosen, held.names, rng)
    if line is None:
        return []
    found: list[LookupQuestion] = []
    for depth in depths:
        placed = chosen[1:]
        placed.insert(round(depth * len(placed)), own)
        text = _code(placed) + HEADINGS[kind] + line.prompt
        used = count(text) + max(map(count, (line.answer, *line.others)))
        if not FILLED * length <= used <= length:
            return []
        found.append(LookupQuestion(kind, target, length, depth, text, line))
    return found


def _context(
    begun: Sequence[SourceFunction], order: Iterable[SourceFunction], room: int, longest: int, count: Count
) -> list[SourceFunction]:
    """`begun` and as many more of `order` as fit in `room` tokens, each cut to `longest`; no name twice."""
    chosen = list(begun)
    names = {function.name for function in chosen}
    room -= sum(count(function.source + BETWEEN) for function in chosen)
    missed = 0
    for function in order:
        if missed == MISSES:
            break
        if function.name in names:
            continue
        cut = _cut(function, longest, count)
        tokens = count(cut.source + BETWEEN)
        missed += tokens > room
        if tokens <= room:
            chosen.append(cut)
            names.add(cut.name)
            room, missed = room - tokens, 0
    return chosen


def _cut(function: SourceFunction, longest: int, count: Count) -> SourceFunction:
    """Its first lines, at most `longest` tokens of them but always the signature."""
    if count(function.source) <= longest:
        return function
    kept: list[str] = []
    for line in function.source.split("\n"):
        longest -= count(line + "\n")
        if kept and longest < 0:
            break
        kept.append(line)
    return replace(function, source="\n".join(kept).rstrip())


def _code(chosen: Iterable[SourceFunction]) -> str:
    return BETWEEN.join(function.source for function in chosen)


def _sampled(files: Iterable[tuple[str, str]], rng: random.Random) -> _OpenLookup:
    """At most POOL functions of a kind, each as likely as any other (reservoir sampling), in a drawn order."""
    held = _OpenLookup()
    seen = dict.fromkeys(KINDS, 0)
    for path, text in files:
        for function in functions(path, text):
            held.names.add(function.name)
            pool, kind = held.pools[function.kind], function.kind
            seen[kind] += 1
            if len(pool) < POOL:
                pool.append(function)
            elif (place := rng.randrange(seen[kind])) < POOL:
                pool[place] = function
    for pool in held.pools.values():
        rng.shuffle(pool)
    return held

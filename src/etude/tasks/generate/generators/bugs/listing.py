"""The bugs that can be put into a project, the plausible ones first: pure in (files, seed).

Drawn without replacement with chances by weight (Efraimidis and Spirakis 2006: sort by u^(1/w)), where an operator's weight is shared by its
sites, so that a file full of comparisons does not crowd out the one lock; a function is visited a few times at most.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from etude.tasks.content import is_text
from etude.tasks.generate.generators.bugs.code import Code
from etude.tasks.generate.generators.bugs.edit import OverlappingEdits, changed_files
from etude.tasks.generate.generators.bugs.families import across_files
from etude.tasks.generate.generators.bugs.operator import Site
from etude.tasks.generate.generators.bugs.registry import OPERATORS
from etude.tasks.protected import is_protected

SOURCES = re.compile(r"\.(py|js|mjs|cjs|jsx|ts|mts|cts|tsx)$")
# Files that no test would show a bug in, or that were generated.
ASIDE = re.compile(
    r"(^|/)(docs?|examples?|samples?|benchmarks?|bench|scripts?|tools|vendor|_vendor|third_party|node_modules|dist|build|coverage)/"
    r"|(^|/)(setup|conf|_version|version|noxfile|versioneer|Gruntfile|gulpfile|rollup\.config)\.[a-z]+$|\.min\.js$|\.d\.ts$"
)
LARGEST = 400_000  # bytes: what is larger was made by a program
PER_FUNCTION = 4
SHARE = 0.5  # an operator's sites share weight by n^0.5: many sites still mean more turns, not as many more


def sources(files: Mapping[str, str]) -> dict[str, Code]:
    """The files that bugs are put into, parsed: texts in UTF-8."""
    found = {}
    for path in sorted(files):
        if not SOURCES.search(path) or ASIDE.search(path) or is_protected(path):
            continue
        if len(files[path]) < LARGEST and is_text(files[path]):
            found[path] = Code(path, files[path].encode())
    return found


def list_sites(codes: Mapping[str, Code], seed: int, only: Collection[str] = ()) -> Iterator[Site]:
    """Each sound, no two with the same outcome. `only`: operators to draw from; empty: all."""
    rng = random.Random(f"bugs {seed}")
    proposed = [site for code in codes.values() for operator in OPERATORS for site in operator.propose_sites(code)]
    proposed += across_files.sites(codes)
    proposed = [site for site in proposed if not only or site.operator in only]
    many = Counter(site.operator for site in proposed)
    order = sorted(proposed, key=lambda site: -(rng.random() ** (many[site.operator] ** SHARE / site.weight)))
    visits: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[tuple[str, bytes], ...]] = set()
    for site in order:
        place = (site.path, site.function)
        if visits[place] >= PER_FUNCTION:
            continue
        outcome = outcome_of(codes, site)
        if outcome is not None and outcome not in seen:
            seen.add(outcome)
            visits[place] += 1
            yield site


def outcome_of(codes: Mapping[str, Code], site: Site) -> tuple[tuple[str, bytes], ...] | None:
    """The changed files; None where one no longer parses or says what it said."""
    try:
        changed = changed_files({path: code.source for path, code in codes.items()}, site.edits)
    except OverlappingEdits:
        return None
    return tuple(changed.items()) if all(codes[path].sound(text) for path, text in changed.items()) else None

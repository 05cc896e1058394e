"""Which documents hold a suite's text, by the fingerprints that it published (`core/fingerprint/publish.py`).

The textbook refuses at one shared n-gram, or at a share of the document; here the share is of the suite's own text: each was cut into
pieces, and a document goes that holds half of any one; so is every document of a project that a suite names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from etude.core.fingerprint.project import project_name
from etude.core.fingerprint.publish import FORMAT, GRAM_TOKENS, LEAST_TEXT_GRAMS, VERSION, digest, grams
from etude.core.fingerprint.shingles import Hashes

# Of one piece, both: 10 grams are 22 tokens, three lines of code, more than any idiom that many projects write alike;
# half of a piece leaves room for a changed line in a patch of five. A shorter piece must be there whole.
LEAST_GRAMS, LEAST_SHARE = 10, 0.5
# The filter's table has 16 places for each gram: one lookup in 16 is a false alarm and costs a binary search.
TABLE_PLACES_PER_GRAM = 16


class FingerprintsBroken(ValueError):
    """A fingerprint file is damaged or of another format; the message names it and what to do."""


@dataclass(frozen=True)
class _Suite:
    """A file as read: gram i is `hashes[i]`, from piece `owners[i]`."""

    name: str
    projects: list[str]
    pieces: int
    hashes: Hashes
    owners: NDArray[np.uint32]


class Fingerprints:
    """All suites' fingerprints at once; about 32 bytes of memory a gram."""

    def __init__(self, suites: list[_Suite]) -> None:
        self._projects = {project: suite.name for suite in reversed(suites) for project in suite.projects}
        self._suite_of: list[str] = []  # by piece
        shifted = []
        for suite in suites:
            shifted.append(suite.owners.astype(np.int64) + len(self._suite_of))
            self._suite_of += [suite.name] * suite.pieces
        hashes = np.concatenate([np.zeros(0, dtype=np.uint64), *(suite.hashes for suite in suites)])
        owners = np.concatenate([np.zeros(0, dtype=np.int64), *shifted])
        order = np.argsort(hashes, kind="stable")
        self._owners = owners[order]
        self._sizes = np.bincount(owners, minlength=len(self._suite_of))
        self._bars = np.maximum(
            np.minimum(self._sizes, LEAST_GRAMS), np.ceil(LEAST_SHARE * self._sizes).astype(np.int64)
        )
        # Each gram once, with the stretch of `_owners` that holds its pieces.
        self._hashes, self._starts = np.unique(hashes[order], return_index=True)
        self._ends = np.append(self._starts[1:], len(order))
        bits = max(10, (TABLE_PLACES_PER_GRAM * len(self._hashes)).bit_length())
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(1 << bits, dtype=np.bool_)
        self._table[self._hashes >> self._shift] = True

    @classmethod
    def load(cls, paths: Iterable[Path]) -> Fingerprints:
        """Raises FingerprintsBroken for a file that is damaged or of another version, OSError for one that can't be read."""
        return cls([_read(path) for path in paths])

    def refusal(self, project: str, text: str) -> str | None:
        """Why a document is refused, None if it may stay; `project` is its project in any source's spelling."""
        suite = self._projects.get(project_name(project))
        if suite is not None:
            return f"project in suite {suite}"
        if not len(self._hashes):
            return None
        found = grams(text)
        found = np.unique(found[self._table[found >> self._shift]])
        if len(found) < LEAST_TEXT_GRAMS:
            return None
        places = np.minimum(np.searchsorted(self._hashes, found), len(self._hashes) - 1)
        places = places[self._hashes[places] == found]
        if len(places) < LEAST_TEXT_GRAMS:
            return None
        owners = np.concatenate([self._owners[self._starts[p] : self._ends[p]] for p in places])
        shared = np.bincount(owners, minlength=len(self._suite_of))
        guilty = np.flatnonzero(shared >= self._bars)
        if not len(guilty):
            return None
        worst = guilty[np.argmax(shared[guilty])]
        return f"in suite {self._suite_of[worst]} ({shared[worst]} of {self._sizes[worst]} {GRAM_TOKENS}-grams)"


def _read(path: Path) -> _Suite:
    line, _, body = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(line)
        if (header["format"], header["version"], header["gram_tokens"]) != (FORMAT, VERSION, GRAM_TOKENS):
            raise FingerprintsBroken(
                f"{path}: format {header['format']!r} version {header['version']} with {header['gram_tokens']}-grams; "
                f"this reads {FORMAT!r} version {VERSION} with {GRAM_TOKENS}: have the suite publish it again"
            )
        count = header["grams"]
        intact = len(body) == 12 * count and digest(header, body) == header["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, FingerprintsBroken):
            raise
        raise FingerprintsBroken(f"{path}: no fingerprint file ({error!r}); have the suite publish it again") from error
    if not intact:
        raise FingerprintsBroken(
            f"{path}: damaged (its content isn't what its header says); have the suite publish it again"
        )
    hashes = np.frombuffer(body, dtype="<u8", count=count).astype(np.uint64)
    owners = np.frombuffer(body, dtype="<u4", offset=8 * count, count=count).astype(np.uint32)
    return _Suite(header["suite"], header["projects"], header["pieces"], hashes, owners)

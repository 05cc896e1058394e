"""What a suite's texts are known by, so that the corpus can refuse documents that hold them; neither side imports the other.

A suite publishes a file, the corpus reads it:

    {"format": "etude-fingerprints", "version": 1, "suite": …, "gram_tokens": 13, "projects": […], "pieces": P, "grams": G,
     "too_short": S, "sha256": "<of the header without it, then of what follows>"}\\n
    G uint64, little-endian, ascending: hashes of 13 tokens in a row
    G uint32, little-endian: the piece that each is from

13 tokens are the usual n-gram of contamination checks (GPT-3's); tokens are those of `dedup.shingles` (names kept, spaces and line ends
not), after comments went. The textbook refuses at one shared n-gram, or at a share of the document; one 13-gram of code is an import block, and
in a file of 1,000 lines a gold patch of five is half a per cent. So the share is of the suite's own text: each is cut into pieces, and a
document goes that holds half of any one. A statement, a test or a patch is one `text` of the suite; a text under 16 tokens can't be told
from chance and is only counted (`too_short`): deny its project by name.

Texts are matched as they are written here and there; redaction of the document in between costs the grams across a placeholder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etude.corpus.dedup.shingles import Hashes, shingle, token_hashes
from etude.corpus.sources.project import Ref

FORMAT, VERSION = "etude-fingerprints", 1
GRAM_TOKENS = 13
# Of one piece, both: 10 grams are 22 tokens, three lines of code, more than any idiom that many projects write alike;
# half of a piece leaves room for a changed line in a patch of five. A shorter piece must be there whole.
LEAST_GRAMS, LEAST_SHARE = 10, 0.5
# Under these (16 tokens) a text is not searched for at all.
LEAST_TEXT_GRAMS = 4
# A long text (a test module) is cut into pieces of about 25 lines, so that a quarter of it copied is found as well;
# shorter ones would be filled by a licence text alone.
PIECE_GRAMS = 200

# `#` to the end of the line whatever the language, `//` and `/*` where a line begins or after a space: the same on both sides, so that
# what is lost in a string with a `#` (or a `#include`) is lost alike.
HASH_COMMENT = re.compile(r"#[^\n]*")
SLASH_COMMENT = re.compile(r"//(?<!:)(?<![^\s;{}(),]//)[^\n]*")
BLOCK_COMMENT = re.compile(r"/\*(?<![^\s]/\*)(?:[^*]|\*(?!/))*\*/")

# The filter's table has 16 places for each gram: one lookup in 16 is a false alarm and costs a binary search.
TABLE_PLACES_PER_GRAM = 16


class FingerprintsBroken(ValueError):
    """A fingerprint file is damaged or of another format; the message names it and what to do."""


@dataclass(frozen=True)
class Written:
    """What went into a file: texts under LEAST_TEXT_GRAMS can't be found and are only counted."""

    texts: int
    grams: int
    too_short: int


@dataclass(frozen=True)
class _Suite:
    """A file as read: gram i is `hashes[i]`, from piece `owners[i]`."""

    name: str
    projects: list[str]
    pieces: int
    hashes: Hashes
    owners: NDArray[np.uint32]


def grams(text: str) -> Hashes:
    """The 13-grams of a text without its comments, in order."""
    if "#" in text:
        text = HASH_COMMENT.sub("", text)
    if "//" in text:
        text = SLASH_COMMENT.sub("", text)
    if "/*" in text:
        text = BLOCK_COMMENT.sub("", text)
    return shingle(token_hashes(text), GRAM_TOKENS)


def write_fingerprints(path: Path, suite: str, texts: Iterable[str], projects: Iterable[str]) -> Written:
    """Publishes a suite's texts (each gold patch, test file and statement is one) and its projects' names; whole or not at all."""
    hashes: list[Hashes] = []
    owners: list[NDArray[np.uint32]] = []
    count = too_short = pieces = 0
    for text in texts:
        count += 1
        found = grams(text)
        if len(np.unique(found)) < LEAST_TEXT_GRAMS:
            too_short += 1
            continue
        for piece in np.array_split(found, max(1, round(len(found) / PIECE_GRAMS))):
            distinct = np.unique(piece)
            hashes.append(distinct)
            owners.append(np.full(len(distinct), pieces, dtype=np.uint32))
            pieces += 1
    all_hashes = np.concatenate([np.zeros(0, dtype=np.uint64), *hashes])
    all_owners = np.concatenate([np.zeros(0, dtype=np.uint32), *owners])
    order = np.argsort(all_hashes, kind="stable")
    body = all_hashes[order].astype("<u8").tobytes() + all_owners[order].astype("<u4").tobytes()
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "suite": suite,
        "gram_tokens": GRAM_TOKENS,
        "projects": sorted({project_name(name) for name in projects}),
        "pieces": pieces,
        "grams": len(order),
        "too_short": too_short,
    }
    header["sha256"] = _digest(header, body)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(json.dumps(header).encode() + b"\n" + body)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return Written(count, len(order), too_short)


def project_name(name: str) -> str:
    """The one name of a project in every source."""
    return Ref(source="", kind="", name=name, version="").project


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
        return f"in suite {self._suite_of[worst]}: {shared[worst]} of {self._sizes[worst]} {GRAM_TOKENS}-grams"


def _digest(header: dict[str, Any], body: bytes) -> str:
    content = {key: value for key, value in header.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode() + body).hexdigest()


def _read(path: Path) -> _Suite:
    line, _, body = path.read_bytes().partition(b"\n")
    try:
        header = json.loads(line)
        if (header["format"], header["version"], header["gram_tokens"]) != (FORMAT, VERSION, GRAM_TOKENS):
            raise FingerprintsBroken(
                f"{path}: format {header['format']!r} version {header['version']} with {header['gram_tokens']}-grams; "
                f"this reads {FORMAT!r} version {VERSION} with {GRAM_TOKENS}: have the suite publish it anew"
            )
        count = header["grams"]
        intact = len(body) == 12 * count and _digest(header, body) == header["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, FingerprintsBroken):
            raise
        raise FingerprintsBroken(f"{path}: no fingerprint file ({error!r}); have the suite publish it anew") from error
    if not intact:
        raise FingerprintsBroken(
            f"{path}: damaged (its content isn't what its header says); have the suite publish it anew"
        )
    hashes = np.frombuffer(body, dtype="<u8", count=count).astype(np.uint64)
    owners = np.frombuffer(body, dtype="<u4", offset=8 * count, count=count).astype(np.uint32)
    return _Suite(header["suite"], header["projects"], header["pieces"], hashes, owners)

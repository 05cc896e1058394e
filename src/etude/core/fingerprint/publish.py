"""The file in which a suite publishes the fingerprints of its texts, so that no training uses documents that hold them.

The maker of tasks writes it, the corpus reads it (`learn/corpus/fingerprints.py`); neither imports the other:

    {"format": "etude-fingerprints", "version": 1, "suite": …, "gram_tokens": 13, "projects": […], "pieces": P, "grams": G,
     "too_short": S, "sha256": "<of the header without it, then of what follows>"}\\n
    G uint64, little-endian, ascending: hashes of 13 tokens in a row
    G uint32, little-endian: the piece that each is from

13 tokens are the usual n-gram of contamination checks (GPT-3's); tokens are those of `core/fingerprint/shingles.py` (names kept, spaces and line ends
not), after comments went. The textbook refuses at one shared n-gram, or at a share of the document; one 13-gram of code is an import block, and
in a file of 1,000 lines a gold patch of five is half a per cent. So the share is of the suite's own text: each is cut into pieces, and a
document goes that holds half of any one. A statement, a test or a patch is one `text` of the suite; a text under 16 tokens can't be separated
from chance and is only counted (`too_short`): deny its project by name.

Texts are matched as they are written here and there; redaction of the document in between costs the grams across a placeholder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from etude.core.files import replace_file
from etude.core.fingerprint.project import project_name
from etude.core.fingerprint.shingles import Hashes, shingle, token_hashes

FORMAT, VERSION = "etude-fingerprints", 1
GRAM_TOKENS = 13
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


@dataclass(frozen=True)
class PublishSummary:
    """What went into a file: texts under LEAST_TEXT_GRAMS can't be found and are only counted."""

    texts: int
    grams: int
    too_short: int


def grams(text: str) -> Hashes:
    """The 13-grams of a text without its comments, in order."""
    if "#" in text:
        text = HASH_COMMENT.sub("", text)
    if "//" in text:
        text = SLASH_COMMENT.sub("", text)
    if "/*" in text:
        text = BLOCK_COMMENT.sub("", text)
    return shingle(token_hashes(text), GRAM_TOKENS)


def write_fingerprints(path: Path, suite: str, texts: Iterable[str], projects: Iterable[str]) -> PublishSummary:
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
    header["sha256"] = digest(header, body)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(header).encode() + b"\n" + body)
    return PublishSummary(count, len(order), too_short)


def digest(header: dict[str, Any], body: bytes) -> str:
    """SHA-256 of a file's header without it, and its body."""
    content = {key: value for key, value in header.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode() + body).hexdigest()

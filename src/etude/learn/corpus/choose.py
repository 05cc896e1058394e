"""One text of a library, by number or at random: a person looks at what a model would learn from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from etude.learn.corpus.library import Library
from etude.learn.corpus.manifest import entries
from etude.learn.corpus.record import TextRecord


class NoSuchText(Exception):
    """The library has no text as asked for; the message says what there is."""


def choose(
    folder: Path, number: int | None = None, language: str = "", rng: random.Random | None = None
) -> tuple[TextRecord, int]:
    """The text and its number. At random every text is as likely as another; `language` restricts the draw."""
    path = folder / "manifest.jsonl"
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no library (manifest.jsonl is missing); run `etude corpus build` first"
        )
    lines = [line for line in entries(path) if line["records"]]
    library = Library(folder)
    if number is not None:
        return _by_number(library, lines, number)
    weights = [line["kept"].get(language, (0, 0))[0] if language else line["records"] for line in lines]
    if not any(weights):
        known = sorted({name for line in lines for name in line["kept"]})
        raise NoSuchText(f"{folder} has no text of language {language!r}; there are: {', '.join(known) or 'none'}")
    rng = rng or random.Random()
    place = rng.choices(range(len(lines)), weights)[0]
    before = sum(line["records"] for line in lines[:place])
    found = [
        (r, before + i)
        for i, r in enumerate(library.read(lines[place]["id"]))
        if not language or r.language == language
    ]
    return rng.choice(found)


def _by_number(library: Library, lines: Sequence[dict[str, Any]], number: int) -> tuple[TextRecord, int]:
    before = 0
    for line in lines:
        if number < before + line["records"]:
            return next(islice(library.read(line["id"]), number - before, None)), number
        before += line["records"]
    raise NoSuchText(f"there is no text {number}: the library holds {before}, numbered from 0")

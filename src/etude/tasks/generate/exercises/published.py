"""The text of the exercises that reported figures are measured on, which must not be trained on: the corpus refuses documents that hold it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from etude.core.fingerprint.publish import PublishSummary, write_fingerprints
from etude.tasks.generate.exercises.catalogue import HELD_OUT, VALIDATION
from etude.tasks.generate.exercises.template import fill
from etude.tasks.generate.exercises.words import FUNCTIONS, VARIABLES

SUITE = "exercises"
# Of each template, with other values and names each: fingerprints keep names, so a copy under names of its own is not found.
FILLINGS = 3


def published_texts() -> Iterator[str]:
    """The functions of validation and of the held-out split, as they are written here and as tasks show them."""
    for template in (*VALIDATION, *HELD_OUT):
        yield template.source
        for number, params in enumerate(islice(template.params(), FILLINGS)):
            names = {slot: words[number % len(words)] for slot, words in VARIABLES.items()}
            _, lines = template.instantiate(params)
            yield fill("\n".join(lines), names | {"f": FUNCTIONS[number]})


def publish(folder: Path) -> tuple[Path, PublishSummary]:
    """Writes the suite's fingerprint file into `folder`."""
    path = folder / f"{SUITE}.fp"
    return path, write_fingerprints(path, SUITE, published_texts(), ())

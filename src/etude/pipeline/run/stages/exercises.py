"""Text of the training exercises as the corpus takes it: each once, split by hash into training and held-out."""

from __future__ import annotations

import hashlib
from itertools import islice

from etude.learn.corpus.export import Split
from etude.learn.corpus.settings import EXERCISES
from etude.learn.corpus.sharding import Document
from etude.pipeline.recipe.recipe import Recipe
from etude.tasks.generate.exercises.documents import documents


def exercise_documents(recipe: Recipe) -> tuple[dict[Split, list[Document]], int]:
    """Documents by split, and how many were drawn twice and left out. Only training templates and functions occur."""
    found: dict[Split, list[Document]] = {"train": [], "heldout": []}
    seen: set[str] = set()
    repeated = 0
    for number, text in enumerate(
        islice(documents(recipe.exercises, seed=recipe.corpus.seed), recipe.corpus.exercise_documents)
    ):
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest in seen:
            repeated += 1
            continue
        seen.add(digest)
        split: Split = "heldout" if held_out(digest, recipe.corpus.exercise_heldout_share) else "train"
        found[split].append(
            {"text": text, "source": EXERCISES, "project": EXERCISES, "version": "", "path": f"{number:06d}"}
        )
    return found, repeated


def held_out(digest: str, share: float) -> bool:
    """A function of the text alone, so no run can leak it into another: the same answer on every machine."""
    return int(digest[:8], 16) < share * 2**32

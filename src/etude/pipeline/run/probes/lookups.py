"""Lookups in held-out code, at lengths up to the long phase's rows: does a phase's checkpoint use text from far back?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.learn.corpus.lookup import questions
from etude.learn.corpus.tokenizer import Tokenizer
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.retrieval import differences, retrieve
from etude.pipeline.recipe.recipe import ProbeSettings

# Of the length that the model was trained to before it was stretched.
FACTORS = (0.5, 1.0, 2.0, 3.0, 4.0)


def lengths(old: int, longest: int) -> list[int]:
    """Lengths asked at: below, at and beyond the old one, as far as the long phase went."""
    return sorted({int(old * factor) for factor in FACTORS if old * factor <= longest} | {longest})


def lookups(
    models: Mapping[str, CausalLM],
    tokenizer: Tokenizer,
    files: Sequence[tuple[str, str]],
    old: int,
    longest: int,
    settings: ProbeSettings,
) -> dict[str, Any]:
    """Cells by phase, the paired differences of the last phase and the first, and the old length; empty if there is nothing to ask."""

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    asked = questions(
        ((path, text) for path, text in files if path.endswith(".py")),
        lambda text: len(encode(text)),
        lengths=lengths(old, longest),
        depths=settings.depths,
        each=settings.questions,
        seed=settings.seed,
    )
    if not asked:
        return {}
    found = {phase: retrieve(model, encode, asked) for phase, model in models.items()}
    cells = {phase: [_cell(cell) for cell in of.cells()] for phase, of in found.items()}
    first, *_, last = found if len(found) > 1 else [*found, *found]
    paired = {f"{last}_minus_{first}": differences(found[first], found[last])} if first != last else {}
    return {**cells, "paired": paired, "old_length": old}


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    """As the report reads it."""
    return {("ci95" if key == "accuracy_ci95" else key): value for key, value in cell.items()}

"""Stage base: a small model of the real architecture, or a given checkpoint, learns to predict the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from etude.corpus.shards import TokenShards
from etude.model.causal_lm import CausalLM
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.model.count import count_parameters
from etude.model.init import new_model
from etude.run.stage import Context
from etude.run.stages.corpus import HELDOUT, TRAIN
from etude.train.evaluate import evaluate
from etude.train.pretrain import run_pretrain

CHECKPOINT = "checkpoint"  # inside a stage's folder: what the next stages load


def run(context: Context) -> None:
    """Leaves `checkpoint/` (a Hugging Face directory with tokenizer.json) and `summary.json`."""
    corpus = context.of("corpus")
    facts = json.loads((corpus / "summary.json").read_text())
    model = _model(context, facts["vocabulary"])
    result = run_pretrain(context.recipe.pretrain, model, TokenShards(corpus / TRAIN), context.folder, context.log)
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=corpus)
    held = evaluate(model, _documents(corpus / HELDOUT), facts["heldout_bytes"]) if facts["heldout_documents"] else None
    count = count_parameters(model.config)
    context.summarize(
        {
            "family": model.config.family,
            "parameters": count.total,
            "active_parameters": count.active,
            **{key: facts[key] for key in ("vocabulary", "documents", "bytes", "refused")},
            "steps": result.steps,
            "tokens": result.tokens,
            "loss": result.loss,
            "heldout_bits_per_byte": held.bits_per_byte if held else None,
        }
    )


def _model(context: Context, vocabulary: int) -> CausalLM:
    settings = context.recipe.model
    return load_checkpoint(Path(settings.init)) if settings.init else new_model(settings, vocabulary)


def _documents(folder: Path) -> Iterator[list[int]]:
    shards = TokenShards(folder)
    return (shards.document(number).tolist() for number in range(len(shards)))

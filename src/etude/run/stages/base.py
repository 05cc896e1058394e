"""Stage base: a small model of the real architecture, or a given checkpoint, learns to predict the corpus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from etude.chat import special
from etude.corpus.settings import EXERCISES
from etude.corpus.shards import TokenShards
from etude.corpus.tokenizer import load_tokenizer
from etude.model.checkpoint import save_checkpoint, token_ids
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
    model = new_model(context.recipe.model, facts["vocabulary"])
    shards = f"{EXERCISES}.files"
    result = run_pretrain(
        context.recipe.pretrain, model, TokenShards(corpus / TRAIN / shards), context.folder, context.log
    )
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=corpus, extra_config=_token_ids(context, corpus))
    size = facts["shards"][shards]["heldout_bytes"]
    held = evaluate(model, _documents(corpus / HELDOUT / shards), size) if size else None
    count = count_parameters(model.config)
    context.summarize(
        {
            "family": model.config.family,
            "parameters": count.total,
            "active_parameters": count.active,
            "vocabulary": facts["vocabulary"],
            "steps": result.steps,
            "tokens": result.tokens,
            "loss": result.loss,
            "heldout_bits_per_byte": held.bits_per_byte if held else None,
        }
    )


def _token_ids(context: Context, corpus: Path) -> dict[str, int | None]:
    """Where a turn ends: as the initial checkpoint says, else by our chat format."""
    if context.recipe.model.init:
        return token_ids(context.recipe.model.init)
    find = load_tokenizer(corpus).token_to_id
    return {"bos_token_id": find(special.BOS), "eos_token_id": find(special.END), "pad_token_id": find(special.PAD)}


def _documents(folder: Path) -> Iterator[list[int]]:
    shards = TokenShards(folder)
    return (shards.document(number).tolist() for number in range(len(shards)))

"""Stage base: a small model of the real architecture learns to predict the corpus; or a given checkpoint is taken as it is."""

from __future__ import annotations

import json
from pathlib import Path

from etude.agent.chat import special
from etude.learn.corpus.tokenizer import load_tokenizer
from etude.learn.model.checkpoint import token_ids
from etude.learn.model.init import new_model
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.pretraining import leave, train_phase


def run(context: Context) -> None:
    """Leaves `checkpoint/` (a Hugging Face directory with tokenizer.json) and `summary.json`."""
    corpus = context.of("corpus")
    vocabulary = json.loads((corpus / "summary.json").read_text())["vocabulary"]
    model = new_model(context.recipe.model, vocabulary)
    facts = {"vocabulary": vocabulary, "steps": 0, "tokens": 0}
    if context.recipe.model.init:
        context.log.note(context.stage, f"{context.recipe.model.init} as it is: pretraining goes on with stage short")
    else:
        result = train_phase(context, model, corpus)
        facts |= {"steps": result.steps, "tokens": result.tokens, "loss": result.loss}
    given = context.recipe.model.init
    leave(context, model, Path(given) if given else corpus, facts, **_token_ids(context))


def _token_ids(context: Context) -> dict[str, int | None]:
    """Where a turn ends: as the initial checkpoint says, else by our chat format."""
    if context.recipe.model.init:
        return token_ids(context.recipe.model.init)
    find = load_tokenizer(context.of("corpus")).token_to_id
    return {"bos_token_id": find(special.BOS), "eos_token_id": find(special.END), "pad_token_id": find(special.PAD)}

"""The measures of one checkpoint: each takes its questions and gives one figure an item, so that two checkpoints can be paired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from etude.evaluate.bench.bases.compared_checkpoint import ComparedCheckpoint
from etude.evaluate.bench.bases.material import Extent, Material, room
from etude.learn.corpus.fresh_knowledge import KnowledgeQuestion
from etude.learn.corpus.state_tracking import StateQuestion
from etude.learn.engine.cost import cache_bytes_per_token, decode_costs, greedy
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.count import count_parameters
from etude.learn.train.likelihood import answer_nats
from etude.learn.train.perplexity import codebase_perplexity

COST_PROMPT, COST_NEW = 64, 64  # tokens of a request whose decoding is timed: a turn of an agent of the laptop recipe
REPORTS = 10  # progress reports of one measure

Say = Callable[[str], None]


def perplexity(checkpoint: ComparedCheckpoint, model: CausalLM, asked: Material, say: Say) -> dict[str, Any]:
    """`nats` of each file, in the order of the files."""
    ids = [checkpoint.encode(text) for _, text in asked.files]
    sizes = [len(text.encode()) for _, text in asked.files]
    on_progress = _counted(say, f"{checkpoint.name}: perplexity of {len(ids):,} files, tokens", sum(map(len, ids)))
    found = codebase_perplexity(model, ids, sizes, window=asked.context, stride=asked.context // 2, done=on_progress)
    return {"nats": found.nats.tolist(), "tokens": found.tokens}


def state(checkpoint: ComparedCheckpoint, model: CausalLM, asked: Sequence[StateQuestion], say: Say) -> dict[str, Any]:
    """`distances` in characters, and which answers were ended by the model itself."""
    prompts = [checkpoint.encode(question.prompt()) for question in asked]
    texts = [
        checkpoint.decode(ids)
        for ids in greedy(
            model,
            prompts,
            [room(checkpoint, question.answer) for question in asked],
            lambda n, ids: asked[n].answered(checkpoint.decode(ids))[1],
            done=_counted(say, f"{checkpoint.name}: state tracking", len(asked)),
        )
    ]
    return {
        "distances": [question.distance(text) for question, text in zip(asked, texts, strict=True)],
        "closed": [question.answered(text)[1] for question, text in zip(asked, texts, strict=True)],
    }


def knowledge(
    checkpoint: ComparedCheckpoint, model: CausalLM, asked: Sequence[KnowledgeQuestion], say: Say
) -> dict[str, Any]:
    """`nats` of each answer, and whether greedy decoding says it to the letter."""
    prompts = [checkpoint.encode(question.prompt()) for question in asked]
    nats = answer_nats(model, prompts, [checkpoint.encode(" " + question.answer) for question in asked])
    texts = greedy(
        model,
        prompts,
        [room(checkpoint, question.answer) for question in asked],
        lambda n, ids: len(checkpoint.decode(ids).strip()) > len(asked[n].answer),
        done=_counted(say, f"{checkpoint.name}: fresh knowledge", len(asked)),
    )
    exact = [checkpoint.decode(ids).lstrip().startswith(q.answer) for q, ids in zip(asked, texts, strict=True)]
    return {"nats": nats.tolist(), "exact": exact}


def cost(models: Sequence[CausalLM], extent: Extent) -> list[dict[str, Any]]:
    """Of all checkpoints together, for they take turns."""
    found: list[dict[str, Any]] = [{"batches": {}} for _ in models]
    for batch in extent.batches:
        costs = decode_costs(models, batch, prompt_tokens=COST_PROMPT, new_tokens=COST_NEW, rounds=extent.rounds)
        for entry, of in zip(found, costs, strict=True):
            entry["batches"][str(batch)] = asdict(of)
    return found


def facts(checkpoint: ComparedCheckpoint) -> dict[str, Any]:
    """What is known without measuring."""
    count = count_parameters(checkpoint.config)
    return {
        "name": checkpoint.name,
        "folder": str(checkpoint.folder),
        "family": checkpoint.config.family,
        "vocabulary": checkpoint.tokenizer.get_vocab_size(),
        "positions": checkpoint.config.context_length,
        "parameters": count.total,
        "active_parameters": count.active,
        "cache_bytes_per_token": cache_bytes_per_token(checkpoint.config),
    }


def _counted(say: Say, what: str, of: int) -> Callable[[int], None]:
    """Says every tenth of the way."""
    reported = 0

    def tell(count: int) -> None:
        nonlocal reported
        if count * REPORTS // of > reported:
            reported = count * REPORTS // of
            say(f"{what} {count:,} of {of:,}")

    return tell

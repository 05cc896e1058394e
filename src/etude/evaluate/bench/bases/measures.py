"""The measures of one checkpoint: each takes its questions and gives one figure an item, so that two checkpoints can be paired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from etude.evaluate.bench.bases.contender import Contender
from etude.evaluate.bench.bases.material import Extent, Material, room
from etude.learn.corpus.fresh_knowledge import KnowledgeQuestion
from etude.learn.corpus.state_tracking import StateQuestion
from etude.learn.engine.cost import cache_bytes_per_token, decode_costs, greedy
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.count import count_parameters
from etude.learn.train.likelihood import answer_nats
from etude.learn.train.perplexity import codebase_perplexity

COST_PROMPT, COST_NEW = 64, 64  # tokens of a request whose decoding is timed: a turn of an agent of the laptop recipe
TOLD = 10  # times a measure tells how far it is

Say = Callable[[str], None]


def perplexity(contender: Contender, model: CausalLM, asked: Material, say: Say) -> dict[str, Any]:
    """`nats` of each file, in the order of the files."""
    ids = [contender.encode(text) for _, text in asked.files]
    sizes = [len(text.encode()) for _, text in asked.files]
    told = _counted(say, f"{contender.name}: perplexity of {len(ids):,} files, tokens", sum(map(len, ids)))
    found = codebase_perplexity(model, ids, sizes, window=asked.context, stride=asked.context // 2, done=told)
    return {"nats": found.nats.tolist(), "tokens": found.tokens}


def state(contender: Contender, model: CausalLM, asked: Sequence[StateQuestion], say: Say) -> dict[str, Any]:
    """`distances` in characters, and which answers were ended by the model itself."""
    prompts = [contender.encode(question.prompt()) for question in asked]
    texts = [
        contender.decode(ids)
        for ids in greedy(
            model,
            prompts,
            [room(contender, question.answer) for question in asked],
            lambda n, ids: asked[n].answered(contender.decode(ids))[1],
            done=_counted(say, f"{contender.name}: state tracking", len(asked)),
        )
    ]
    return {
        "distances": [question.distance(text) for question, text in zip(asked, texts, strict=True)],
        "closed": [question.answered(text)[1] for question, text in zip(asked, texts, strict=True)],
    }


def knowledge(contender: Contender, model: CausalLM, asked: Sequence[KnowledgeQuestion], say: Say) -> dict[str, Any]:
    """`nats` of each answer, and whether greedy decoding says it to the letter."""
    prompts = [contender.encode(question.prompt()) for question in asked]
    nats = answer_nats(model, prompts, [contender.encode(" " + question.answer) for question in asked])
    texts = greedy(
        model,
        prompts,
        [room(contender, question.answer) for question in asked],
        lambda n, ids: len(contender.decode(ids).strip()) > len(asked[n].answer),
        done=_counted(say, f"{contender.name}: fresh knowledge", len(asked)),
    )
    exact = [contender.decode(ids).lstrip().startswith(q.answer) for q, ids in zip(asked, texts, strict=True)]
    return {"nats": nats.tolist(), "exact": exact}


def cost(models: Sequence[CausalLM], extent: Extent) -> list[dict[str, Any]]:
    """Of all checkpoints together, for they take turns."""
    found: list[dict[str, Any]] = [{"batches": {}} for _ in models]
    for batch in extent.batches:
        costs = decode_costs(models, batch, prompt_tokens=COST_PROMPT, new_tokens=COST_NEW, rounds=extent.rounds)
        for entry, of in zip(found, costs, strict=True):
            entry["batches"][str(batch)] = asdict(of)
    return found


def facts(contender: Contender) -> dict[str, Any]:
    """What is known without measuring."""
    count = count_parameters(contender.config)
    return {
        "name": contender.name,
        "folder": str(contender.folder),
        "family": contender.config.family,
        "vocabulary": contender.tokenizer.get_vocab_size(),
        "positions": contender.config.context_length,
        "parameters": count.total,
        "active_parameters": count.active,
        "cache_bytes_per_token": cache_bytes_per_token(contender.config),
    }


def _counted(say: Say, what: str, of: int) -> Callable[[int], None]:
    """Says every tenth of the way."""
    told = 0

    def tell(count: int) -> None:
        nonlocal told
        if count * TOLD // of > told:
            told = count * TOLD // of
            say(f"{what} {count:,} of {of:,}")

    return tell

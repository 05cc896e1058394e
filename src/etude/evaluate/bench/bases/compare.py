"""The comparison: every checkpoint is asked the same, one model in memory at a time (but for cost, where they take turns)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from etude.evaluate.bench.bases.compared_checkpoint import ComparedCheckpoint
from etude.evaluate.bench.bases.figures import baseline, figures
from etude.evaluate.bench.bases.material import Extent, Material, room
from etude.evaluate.bench.bases.result_cache import ResultCache
from etude.learn.corpus.fresh_knowledge import KnowledgeQuestion
from etude.learn.corpus.state_tracking import StateQuestion
from etude.learn.engine.cost import cache_bytes_per_token, decode_costs, greedy
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.count import count_parameters
from etude.learn.train.likelihood import answer_nats
from etude.learn.train.perplexity import codebase_perplexity

# The measures of one checkpoint: each takes its questions and gives one figure an item, so that two checkpoints can
# be paired.


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
            lambda n, ids: asked[n].parse_answer(checkpoint.decode(ids))[1],
            done=_counted(say, f"{checkpoint.name}: state tracking", len(asked)),
        )
    ]
    return {
        "distances": [question.distance(text) for question, text in zip(asked, texts, strict=True)],
        "closed": [question.parse_answer(text)[1] for question, text in zip(asked, texts, strict=True)],
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


MEASURES = ("perplexity", "state", "knowledge", "cost")


def plan(
    found: Sequence[ComparedCheckpoint], asked: Material, extent: Extent, wanted: Sequence[str], kept: ResultCache
) -> dict[str, Any]:
    """What a comparison would ask, and what of it is there already."""
    return {
        **_asked(asked),
        "checkpoints": [facts(checkpoint) for checkpoint in found],
        "kept": {
            checkpoint.name: [
                measure for measure in _with_questions(wanted, asked)
                if kept.get(measure, _of(measure, [checkpoint] if measure != "cost" else found, asked, extent)) is not None
            ]
            for checkpoint in found
        },
    }  # fmt: skip


def compare(
    found: Sequence[ComparedCheckpoint],
    asked: Material,
    extent: Extent,
    wanted: Sequence[str],
    kept: ResultCache,
    say: Say,
) -> dict[str, Any]:
    """One document: what was asked, and a row of figures for each checkpoint. Results are kept as they come."""
    wanted = _with_questions(wanted, asked)
    items: list[dict[str, Any]] = [{} for _ in found]
    for checkpoint, own in zip(found, items, strict=True):
        model = None
        for measure in (name for name in wanted if name != "cost"):
            of = _of(measure, [checkpoint], asked, extent)
            if (result := kept.get(measure, of)) is None:
                model = model or checkpoint.load()
                result = _measured(measure, checkpoint, model, asked, say)
                kept.put(measure, of, result)
            own[measure] = result
    if "cost" in wanted:
        for own, result in zip(items, _cost(found, asked, extent, kept, say), strict=True):
            own["cost"] = result
    rows = [
        facts(checkpoint) | figures(own, items[0] if place else None, asked)
        for place, (checkpoint, own) in enumerate(zip(found, items, strict=True))
    ]
    document = {**_asked(asked), "checkpoints": rows}
    return document | ({"unchanged": baseline(asked)} if "state" in wanted else {})


def _measured(measure: str, checkpoint: ComparedCheckpoint, model: Any, asked: Material, say: Say) -> dict[str, Any]:
    if measure == "perplexity":
        return perplexity(checkpoint, model, asked, say)
    if measure == "state":
        return state(checkpoint, model, asked.state, say)
    return knowledge(checkpoint, model, asked.knowledge, say)


def _cost(
    found: Sequence[ComparedCheckpoint], asked: Material, extent: Extent, kept: ResultCache, say: Say
) -> list[dict[str, Any]]:
    """Kept as a whole: figures of different hours do not compare."""
    of = _of("cost", found, asked, extent)
    if (result := kept.get("cost", of)) is None:
        say(f"decoding, {extent.rounds} rounds in turns, batches of {', '.join(map(str, extent.batches))}")
        result = cost([checkpoint.load() for checkpoint in found], extent)
        kept.put("cost", of, result)
    return result


def _with_questions(wanted: Sequence[str], asked: Material) -> list[str]:
    """The measures that have something to ask."""
    return [name for name in MEASURES if name in wanted and name not in asked.left_out]


def _of(measure: str, found: Sequence[ComparedCheckpoint], asked: Material, extent: Extent) -> Any:
    """All that a result depends on."""
    questions: dict[str, Any] = {
        "perplexity": [asked.context, asked.files],
        "state": [asdict(question) for question in asked.state],
        "knowledge": [asdict(question) for question in asked.knowledge],
        "cost": [extent.batches, extent.rounds],
    }
    return [[checkpoint.identity() for checkpoint in found], questions[measure]]


def _asked(asked: Material) -> dict[str, Any]:
    """What was asked, in figures."""
    by_changes = [question.changes for question in asked.state]
    return {
        "context_tokens": asked.context,
        "files": len(asked.files),
        "all_files": asked.all_files,
        "bytes": sum(len(text.encode()) for _, text in asked.files),
        "state_questions": {str(n): by_changes.count(n) for n in sorted(set(by_changes))},
        "knowledge_questions": len(asked.knowledge),
        "left_out": asked.left_out,
    }

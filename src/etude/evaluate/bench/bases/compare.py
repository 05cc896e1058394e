"""The comparison: every checkpoint is asked the same, one model in memory at a time (but for cost, where they take turns)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from etude.evaluate.bench.bases import measures
from etude.evaluate.bench.bases.compared_checkpoint import ComparedCheckpoint
from etude.evaluate.bench.bases.figures import baseline, figures
from etude.evaluate.bench.bases.material import Extent, Material
from etude.evaluate.bench.bases.result_cache import ResultCache

MEASURES = ("perplexity", "state", "knowledge", "cost")


def plan(
    found: Sequence[ComparedCheckpoint], asked: Material, extent: Extent, wanted: Sequence[str], kept: ResultCache
) -> dict[str, Any]:
    """What a comparison would ask, and what of it is there already."""
    return {
        **_asked(asked),
        "checkpoints": [measures.facts(checkpoint) for checkpoint in found],
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
    say: measures.Say,
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
        measures.facts(checkpoint) | figures(own, items[0] if place else None, asked)
        for place, (checkpoint, own) in enumerate(zip(found, items, strict=True))
    ]
    document = {**_asked(asked), "checkpoints": rows}
    return document | ({"unchanged": baseline(asked)} if "state" in wanted else {})


def _measured(
    measure: str, checkpoint: ComparedCheckpoint, model: Any, asked: Material, say: measures.Say
) -> dict[str, Any]:
    if measure == "perplexity":
        return measures.perplexity(checkpoint, model, asked, say)
    if measure == "state":
        return measures.state(checkpoint, model, asked.state, say)
    return measures.knowledge(checkpoint, model, asked.knowledge, say)


def _cost(
    found: Sequence[ComparedCheckpoint], asked: Material, extent: Extent, kept: ResultCache, say: measures.Say
) -> list[dict[str, Any]]:
    """Kept as a whole: figures of different hours do not compare."""
    of = _of("cost", found, asked, extent)
    if (result := kept.get("cost", of)) is None:
        say(f"decoding, {extent.rounds} rounds in turns, batches of {', '.join(map(str, extent.batches))}")
        result = measures.cost([checkpoint.load() for checkpoint in found], extent)
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

"""Stage probes: what each phase of pretraining and the draft layers were worth, measured on what was held out from all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.agent.chat.load import load_renderer
from etude.learn.corpus.codebase import NoCode, codebase
from etude.learn.corpus.lookup import questions
from etude.learn.corpus.tokenizer import Tokenizer, load_tokenizer
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_config
from etude.learn.train.retrieval import differences, retrieve
from etude.pipeline.recipe.recipe import ProbeSettings
from etude.pipeline.run.probes.code import by_position, evenly, perplexities
from etude.pipeline.run.probes.drafts import measure_drafts, speedup
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages.corpus import HELDOUT, LIBRARY
from etude.pipeline.run.stages.loading import load_model
from etude.pipeline.run.stages.pretraining import CHECKPOINT, PHASES
from etude.pipeline.run.stages.sft import held_segments

# Lookups in held-out code, at lengths up to the long phase's rows: does a phase's checkpoint use text from far back?


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


def run(context: Context) -> None:
    """Leaves `summary.json`: perplexity by phase, loss by position, retrieval by length, acceptance and speed-up of the drafts."""
    drafts = {} if "sft" in context.recipe.run.without else _drafts(context)
    context.summarize(_phases(context) | drafts)


def _phases(context: Context) -> dict[str, Any]:
    folders = {p: context.of(p) / CHECKPOINT for p in PHASES if p not in context.recipe.run.without}
    models = {phase: load_model(context, folder) for phase, folder in folders.items()}
    library = context.of("corpus") / LIBRARY
    try:
        files = codebase(library) if library.is_dir() else []
    except NoCode as error:
        context.log.note(context.stage, str(error))
        files = []
    if not files or not models:
        context.log.note(
            context.stage,
            "no project is held out, or no phase of pretraining is part of the run, so neither perplexity nor retrieval is measured",
        )
        return {}
    settings, tokenizer = context.recipe.probes, load_tokenizer(context.of("corpus"))
    old, longest = _windows(context, models)
    chosen = evenly(files, settings.perplexity_bytes)
    context.log.note(
        context.stage, f"perplexity of {', '.join(models)} on {len(chosen)} of {len(files)} held-out files"
    )
    found = perplexities(models, tokenizer, chosen, (old, longest))
    found["by_position"] = by_position(models, context.of("corpus") / HELDOUT, longest, settings.documents)
    context.log.note(context.stage, f"lookups up to {longest:,} tokens")
    found["retrieval"] = lookups(models, tokenizer, files, old, longest, settings)
    return {key: value for key, value in found.items() if value}


def _windows(context: Context, models: dict[str, CausalLM]) -> tuple[int, int]:
    """The rows of the short phase and of the long one, as far as every checkpoint has positions."""
    most = min(model.config.context_length for model in models.values())
    pretrain = context.recipe.pretrain
    return min(pretrain.short.row_tokens, most), min(pretrain.long.row_tokens, most)


def _drafts(context: Context) -> dict[str, Any]:
    """Of the SFT checkpoint; and whether the drafts still serve the policy that RL made of it, which never saw them."""
    folder, later = context.of("sft") / CHECKPOINT, context.of("rl") / CHECKPOINT
    if not load_config(folder, context.recipe.model.impl).mtp_layers:
        context.log.note(context.stage, "the checkpoint has no draft layers, so none are measured")
        return {}
    recipe = context.recipe
    held = held_segments(context)
    stops = load_renderer(folder).stop_ids
    shared = (held, stops, recipe.probes, recipe.engine, recipe.harness.temperature)
    context.log.note(context.stage, f"drafts on {len(held)} held-out segments")
    found = measure_drafts(load_model(context, folder, drafts=True), *shared)
    own = not recipe.run.sft_checkpoint  # else RL began elsewhere, and its checkpoint has no drafts of ours
    if own and "rl" not in recipe.run.without and (later / "config.json").is_file():
        found["after_rl"] = speedup(load_model(context, later, drafts=True), *shared, batches=(1,))
    return {"mtp": found}

"""What the stages base, short and long share: the corpus' shards in the phase's mix, its watches, and the figures it leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from etude.corpus.mixture import Mixture
from etude.corpus.shards import DONE_FILE, TokenShards
from etude.corpus.tokenizer import load_tokenizer
from etude.model.causal_lm import CausalLM
from etude.model.checkpoint import save_checkpoint
from etude.model.count import count_parameters
from etude.run.stage import Context, StageError
from etude.run.stages.corpus import EXERCISES, HELDOUT, TRAIN
from etude.train.held import Held
from etude.train.loop import TrainingResult
from etude.train.midway import Midway
from etude.train.mix import NoDocuments, mix_of
from etude.train.pretrain import run_pretrain
from etude.train.regression import Regression
from etude.train.settings import PhaseSettings
from etude.train.watch import Watch

CHECKPOINT = "checkpoint"  # inside a stage's folder: what the next stages load
MIDWAY = "midway"
PHASES = ("base", "short", "long")
# Documents that the figures at a phase's end are read from: seconds on a laptop.
JUDGED = 400


def train_phase(context: Context, model: CausalLM, tokenizer_from: Path) -> TrainingResult:
    """The phase that this stage is, on `model` in place; leaves `midway/` if the recipe asks for it."""
    settings = phase(context, context.stage)
    result = run_pretrain(
        context.stage,
        settings,
        model,
        mixture_of(context, context.stage),
        context.folder,
        context.log,
        watches=_watches(context, model, tokenizer_from),
        draft_every=context.recipe.mtp.every,
    )
    if settings.midway is not None and not (context.folder / MIDWAY).is_dir():  # stopped before its middle
        save_checkpoint(model, context.folder / MIDWAY, tokenizer_from=tokenizer_from)
    return result


def phase(context: Context, stage: str) -> PhaseSettings:
    """The settings of base, short or long."""
    return getattr(context.recipe.pretrain, stage)


def mixture_of(context: Context, of: str) -> Mixture:
    """The documents of the phase `of`. Raises StageError if the corpus holds none; what only a part misses is a notice."""
    settings = phase(context, of)
    upto = [phase(context, stage) for stage in PHASES[: PHASES.index(of) + 1]]
    sources = shards_in(context.of("corpus") / TRAIN, settings.row_tokens)
    weights = {EXERCISES: float(context.recipe.corpus.exercise_weight)}
    try:
        mix = mix_of(upto, sources.keys(), weights)
    except NoDocuments as error:
        raise StageError(f"pretrain.{of}: {error}") from error
    for missing in mix.missing:
        context.log.note(context.stage, f"{missing}: its share goes to the others")
    shown = ", ".join(f"{name} {share:.0%}" for name, share in mix.shares.items())
    context.log.note(context.stage, f"tokens from {shown}")
    return Mixture({name: sources[name] for name in mix.shares}, mix.shares, settings.seed)


def shards_in(folder: Path, row_tokens: int) -> dict[str, TokenShards]:
    """Shard folders by name, `<source>.<form>`. A lookup longer than a row would be asked without what answers it: left out."""
    found = {path.parent.name: TokenShards(path.parent) for path in sorted(folder.glob(f"*/{DONE_FILE}"))}
    cut = {name: shards.within(row_tokens) if name.endswith(".lookups") else shards for name, shards in found.items()}
    return {name: shards for name, shards in cut.items() if len(shards)}


def leave(context: Context, model: CausalLM, tokenizer_from: Path, facts: dict[str, Any], **config: int | None) -> None:
    """`checkpoint/` and `summary.json`; `config` adds keys to config.json."""
    save_checkpoint(model, context.folder / CHECKPOINT, tokenizer_from=tokenizer_from, extra_config=config)
    count = count_parameters(model.config)
    context.summarize(
        {
            "family": model.config.family,
            "parameters": count.total,
            "active_parameters": count.active,
            "max_positions": model.config.max_positions,
            **facts,
            **heldout_figures(context, model, tokenizer_from),
        }
    )


def heldout_figures(context: Context, model: CausalLM, tokenizer_from: Path) -> dict[str, Any]:
    """Bits a byte of the beginnings of held-out files, of all sources together and each alone, as long as the short phase's rows."""
    window = min(context.recipe.pretrain.short.row_tokens, model.config.max_positions)
    held = _held_files(context, tokenizer_from, JUDGED)
    each = {name: found.bits_per_byte(model, window) for name, found in held.items()}
    whole = sum(held.values(), Held())
    together = whole.bits_per_byte(model, window) if whole.documents else None
    return {"heldout_bits_per_byte": together, "heldout": each}


def _watches(context: Context, model: CausalLM, tokenizer_from: Path) -> list[Watch]:
    settings = phase(context, context.stage)
    watches: list[Watch] = []
    if settings.regression is not None and (measure := _measure(context, model, tokenizer_from)) is not None:
        folder = context.folder / "regression"
        watches.append(Regression(settings.regression, model, measure, folder, context.stage, context.log))
    if settings.midway is not None:
        save = partial(save_checkpoint, model, context.folder / MIDWAY, tokenizer_from=tokenizer_from)
        watches.append(Midway(settings.midway, save))
    return watches


def _measure(context: Context, model: CausalLM, tokenizer_from: Path) -> Callable[[], float] | None:
    """Bits a byte of the regression set; None, with a notice, if nothing is held out."""
    settings = phase(context, context.stage).regression
    assert settings is not None  # _watches
    held = sum(_held_files(context, tokenizer_from, settings.documents).values(), Held())
    if not held.documents:
        context.log.note(context.stage, "no file is held out, so nothing watches for forgetting (regression)")
        return None
    return partial(held.bits_per_byte, model, context.recipe.pretrain.short.row_tokens)


def _held_files(context: Context, tokenizer_from: Path, most: int) -> dict[str, Held]:
    """The beginnings of at most so many held-out documents, as many of each source, at least one."""
    decode = load_tokenizer(tokenizer_from).decode
    window = context.recipe.pretrain.short.row_tokens
    shards = {n: s for n, s in shards_in(context.of("corpus") / HELDOUT, window).items() if n.endswith(".files")}
    held = {n: Held.of(found, decode, max(1, most // len(shards)), window) for n, found in shards.items()}
    return {name: found for name, found in held.items() if found.documents}

"""What the stages base, short and long share: the corpus' shards in the phase's mix, its watches, and the figures it leaves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.shards import DONE_FILE, TokenShards
from etude.learn.corpus.tokenizer import load_tokenizer
from etude.learn.model.adapter_files import save_adapter
from etude.learn.model.card import Training
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import check_companions, load_config, save_checkpoint
from etude.learn.model.count import count_parameters
from etude.learn.train.evaluate import HeldOutTexts
from etude.learn.train.loop import TrainingResult
from etude.learn.train.midway import Midway
from etude.learn.train.mix import CorpusMix, NoDocuments, mix_of
from etude.learn.train.pretrain import run_pretrain
from etude.learn.train.regression import Regression
from etude.learn.train.settings import PhaseSettings
from etude.learn.train.watch import TrainingWatch
from etude.learn.weights.adapter_folder import ADAPTER
from etude.pipeline.run.stage import Context, StageError
from etude.pipeline.run.stages.corpus import HELDOUT, TRAIN

CHECKPOINT = "checkpoint"  # inside a stage's folder: what the next stages load
MIDWAY = "midway"
PHASES = ("base", "short", "long")
# Documents that the figures at a phase's end are read from: seconds on a laptop.
JUDGED = 400


def train_phase(context: Context, model: CausalLM, tokenizer_from: Path) -> TrainingResult:
    """The phase that this stage is, on `model` in place; leaves `midway/` if the recipe asks for it."""
    settings = phase(context, context.stage)
    check_companions(model.config, tokenizer_from)
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
        _midway_save(context, model, tokenizer_from)()
    return result


def pretrained_checkpoint(context: Context) -> Path:
    """The checkpoint that pretraining ends with: of the last of its stages that the recipe doesn't leave out, else the one that it begins with."""
    stages = [stage for stage in ("base", "short", "mtp", "long") if stage not in context.recipe.run.without]
    if not stages:
        return Path(context.recipe.model.init)
    if stages[-1] == "mtp":  # its trunk is that of the middle of the short phase
        raise StageError(
            "run.without names long but not mtp: the draft layers would be of no checkpoint; leave mtp out as well"
        )
    return context.of(stages[-1]) / CHECKPOINT


def base_checkpoint(context: Context) -> Path:
    """What the run begins with: the stage base's, or the checkpoint that the recipe names where that stage is left out."""
    left_out = "base" in context.recipe.run.without
    return Path(context.recipe.model.init) if left_out else context.of("base") / CHECKPOINT


def chat_checkpoint(context: Context) -> Path:
    """A folder with the tokenizer and the chat format of the run's model, which is there as soon as the corpus is."""
    init = context.recipe.model.init
    return Path(init) if init else context.of("corpus")


def phase(context: Context, stage: str) -> PhaseSettings:
    """The settings of base, short or long."""
    return getattr(context.recipe.pretrain, stage)


def mixture_of(context: Context, of: str) -> Mixture:
    """The documents of the phase `of`. Raises StageError if the corpus holds none; what only a part misses is a notice."""
    settings = phase(context, of)
    sources = shards_in(context.of("corpus") / TRAIN, settings.row_tokens)
    mix = mix_in(context, of, sources)
    for missing in mix.missing:
        context.log.note(context.stage, f"{missing}: its share goes to the others")
    shown = ", ".join(f"{name} {share:.0%}" for name, share in mix.shares.items())
    context.log.note(context.stage, f"tokens from {shown}")
    return Mixture({name: sources[name] for name in mix.shares}, mix.shares, settings.seed)


def mix_in(context: Context, stage: str, sources: Collection[str]) -> CorpusMix:
    """The shares that a phase gives to what the corpus has. Raises StageError."""
    upto = [phase(context, name) for name in PHASES[: PHASES.index(stage) + 1]]
    try:
        return mix_of(upto, sources, context.recipe.corpus.weights)
    except NoDocuments as error:
        raise StageError(f"pretrain.{stage}: {error}") from error


def shards_in(folder: Path, row_tokens: int) -> dict[str, TokenShards]:
    """Shard folders by name, `<source>.<form>`. A lookup longer than a row would be asked without what answers it: left out."""
    found = {path.parent.name: TokenShards(path.parent) for path in sorted(folder.glob(f"*/{DONE_FILE}"))}
    cut = {name: shards.within(row_tokens) if name.endswith(".lookups") else shards for name, shards in found.items()}
    return {name: shards for name, shards in cut.items() if len(shards)}


def leave(context: Context, model: CausalLM, tokenizer_from: Path, facts: dict[str, Any], **config: int | None) -> None:
    """`checkpoint/`, `adapter/` where the phase trains one, and `summary.json`; `config` adds keys to config.json."""
    trained = None
    if facts["steps"]:
        trained = Training(context.stage, f"{facts['tokens']:,} tokens of documents of {_sources(context)}")
    save_checkpoint(
        model, context.folder / CHECKPOINT, tokenizer_from=tokenizer_from, extra_config=config, trained=trained
    )
    _leave_adapter(context, model, tokenizer_from)
    count = count_parameters(model.config)
    context.summarize(
        {
            "family": model.config.family,
            "parameters": count.total,
            "active_parameters": count.active,
            "max_positions": model.config.max_positions,
            **facts,
            **_mix_read(context, facts["steps"]),
            **heldout_figures(context, model, tokenizer_from),
        }
    )


def _leave_adapter(context: Context, model: CausalLM, base: Path) -> None:
    """An adapter holds no positions: behind stretched ones it would be put on a base that computes something else."""
    lora = phase(context, context.stage).lora
    if not lora.rank:
        return
    if model.config.yarn != load_config(base).yarn:
        context.log.note(
            context.stage, f"no {ADAPTER}/ is left: positions were stretched, and {CHECKPOINT}/ has it merged"
        )
        return
    save_adapter(model, lora, context.folder / ADAPTER, base)


def _mix_read(context: Context, steps: int) -> dict[str, Any]:
    """What the phase drew its tokens from, as shares; nothing for a checkpoint that was taken as it is."""
    settings = phase(context, context.stage)
    sources = shards_in(context.of("corpus") / TRAIN, settings.row_tokens)
    return {"mix": mix_in(context, context.stage, sources).shares} if steps else {}


def heldout_figures(context: Context, model: CausalLM, tokenizer_from: Path) -> dict[str, Any]:
    """Bits a byte of the beginnings of held-out files, of all sources together and each alone, as long as the short phase's rows."""
    window = min(context.recipe.pretrain.short.row_tokens, model.config.context_length)
    held = _held_files(context, tokenizer_from, JUDGED)
    each = {name: found.bits_per_byte(model, window) for name, found in held.items()}
    size = sum(found.total_bytes for found in held.values())
    together = sum(bits * held[name].total_bytes for name, bits in each.items()) / size if size else None
    return {"heldout_bits_per_byte": together, "heldout": each}


def _watches(context: Context, model: CausalLM, tokenizer_from: Path) -> list[TrainingWatch]:
    settings = phase(context, context.stage)
    watches: list[TrainingWatch] = []
    if settings.regression is not None and (measure := _measure(context, model, tokenizer_from)) is not None:
        folder = context.folder / "regression"
        watches.append(Regression(settings.regression, model, measure, folder, context.stage, context.log))
    if settings.midway is not None:
        watches.append(Midway(settings.midway, _midway_save(context, model, tokenizer_from)))
    return watches


def _midway_save(context: Context, model: CausalLM, tokenizer_from: Path) -> Callable[[], None]:
    trained = Training(context.stage, f"its first part, on documents of {_sources(context)}")
    return partial(save_checkpoint, model, context.folder / MIDWAY, tokenizer_from=tokenizer_from, trained=trained)


def _sources(context: Context) -> str:
    """The kinds of documents that this phase learns from, in words."""
    sources = shards_in(context.of("corpus") / TRAIN, phase(context, context.stage).row_tokens)
    return ", ".join(mix_in(context, context.stage, sources).shares)


def _measure(context: Context, model: CausalLM, tokenizer_from: Path) -> Callable[[], float] | None:
    """Bits a byte of the regression set, as the geometric mean over its sources: one that is forgotten shows, however few bits it has.

    None, with a notice, if nothing is held out.
    """
    settings = phase(context, context.stage).regression
    assert settings is not None  # _watches
    held = _held_files(context, tokenizer_from, settings.documents)
    if not held:
        context.log.note(context.stage, "no file is held out, so nothing watches for forgetting (regression)")
        return None
    window = context.recipe.pretrain.short.row_tokens
    return lambda: geometric_mean(found.bits_per_byte(model, window) for found in held.values())


def _held_files(context: Context, tokenizer_from: Path, most: int) -> dict[str, HeldOutTexts]:
    """The beginnings of at most `most` held-out documents, the same number of each source, at least one."""
    decode = load_tokenizer(tokenizer_from).decode
    window = context.recipe.pretrain.short.row_tokens
    shards = {n: s for n, s in shards_in(context.of("corpus") / HELDOUT, window).items() if n.endswith(".files")}
    held = {n: HeldOutTexts.of(found, decode, max(1, most // len(shards)), window) for n, found in shards.items()}
    return {name: found for name, found in held.items() if found.documents}

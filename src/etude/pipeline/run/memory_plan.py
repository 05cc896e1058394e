"""The memory that the stages of a recipe will take, from the model's shape, before anything runs; and how much RL's trainer computes at a time.

Predicted are the peaks of the processes that hold a model: a trainer, an engine. A prediction counts an engine's cache as full, and the tokens of a
step at their bound. Where `rl.update.batch_tokens` and `graph_tokens` are "auto", `fit_update` takes what the memory holds. docs/memory.md has what
was measured.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.core import allocator
from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_config import read_config
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.transformers_backend.config import implementation_of
from etude.learn.train.settings import UNPLANNED_TOKENS, LoopSettings, PolicyStepSettings
from etude.pipeline.run.machine import gpu_memory_bytes, memory_bytes

if TYPE_CHECKING:
    from etude.learn.parallel.layout import ParallelLayout
    from etude.pipeline.recipe.recipe import Recipe

# States of the trained weights that RL's trainer holds on their way to the engine: the base of the next delta, the one that is published, the next.
PUBLISHED_STATES = 3
# States that RL's engine holds in addition to its model, in the machine's memory: the one that deltas start from and the next, or the base of the
# adapters that it gets and what they are merged into.
FOLLOWED_STATES = 2
BYTES, HALF = 4, 2  # of a weight in fp32 and in bf16
PROMPTS_COMPARED = 4
# Of a memory, what "auto" leaves alone: sandboxes, the controller, files in the page cache, and what the prediction misses.
RESERVE_SHARE = 0.25
# Tokens of a micro-batch that follow the prompt which all rollouts share, where the memory holds them: larger ones are not faster. A GPU has more
# cores to fill.
WANTED_TOKENS = {"cpu": 4096, "cuda": 16_384}
BATCH_STEP, GRAPH_STEP = 512, 1024  # machines of about the same memory choose alike
# What a trainer on CPUs takes with tcmalloc, of what it takes with glibc (measured: 1.03 to 1.07, docs/memory.md).
TCMALLOC_SHARE = 1.05


@dataclass(frozen=True)
class StageMemory:
    """Peaks in bytes; 0 where a stage has no such process. `trainer`: all of its `ranks` on this machine. `advice`: what would lower the
    trainer's, and to how much. `on_gpu`: which of the two compute there, whose memory is not looked up. `published`: what is never on a GPU, states
    on their way to the engine and the whole model of the first of several ranks. `chosen`: settings that were "auto", by key; `why` says it in a
    line."""

    stage: str
    trainer: int
    engine: int
    advice: str = ""
    on_gpu: frozenset[str] = frozenset()
    published: int = 0
    chosen: dict[str, int] = field(default_factory=dict)
    why: str = ""
    ranks: int = 1

    @property
    def total(self) -> int:
        """Of this machine's own memory."""
        return sum(size for name, size in self.parts if name not in self.on_gpu)

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The processes that there are, by name."""
        found = (("trainer", self.trainer), ("engine", self.engine), ("copies of the weights", self.published))
        return [(name, size) for name, size in found if size]


def memory_plan(recipe: Recipe, selected: Collection[str]) -> list[StageMemory]:
    """Of the selected stages that train or sample on this machine; empty for a model that transformers computes, whose memory is not predicted."""
    folder = str(recipe.run.sft_checkpoint or recipe.model.init)
    if folder and implementation_of(folder, recipe.model.impl) == "transformers":
        return []
    config = _config(recipe)
    prefix = shared_prompt_tokens(recipe) if {"sft", "rl"}.intersection(selected) else 0
    plans = {
        "short": lambda: _pretraining("short", recipe, config),
        "long": lambda: _pretraining("long", recipe, config),
        "sft": lambda: _fine_tuning(recipe, config, prefix),
        "rl": lambda: _reinforcement(recipe, config, prefix),
        "bench": lambda: StageMemory(
            "bench", 0, _engine(recipe, config, recipe.engine.max_slots), on_gpu=_on_gpu(engine=recipe.engine.device)
        ),
    }
    return [plan() for stage, plan in plans.items() if stage in selected]


def document(plan: list[StageMemory]) -> list[dict[str, Any]]:
    """As --json has it; `machine_bytes`: the memory of this machine."""
    machine = memory_bytes()
    return [
        {"stage": s.stage, "trainer_bytes": s.trainer, "engine_bytes": s.engine, "published_bytes": s.published, "on_gpu": sorted(s.on_gpu),
         "machine_bytes": machine, "fits": s.total <= machine, "chosen": s.chosen}
        for s in plan
    ]  # fmt: skip


def lines(plan: list[StageMemory]) -> list[str]:
    """One for each stage, with the remedy where the machine has too little; and what was chosen for "auto"."""
    machine = memory_bytes()
    return [line for stage in plan for line in (_line(stage, machine), f"# {stage.why}") if line != "# "]


def _line(stage: StageMemory, machine: int) -> str:
    ranks = {"trainer": f" in {stage.ranks} ranks"} if stage.ranks > 1 else {}
    gpus = "GPUs" if stage.ranks > 1 else "a GPU"
    parts = [
        f"{name} {_gb(size)}{ranks.get(name, '')}{f' on {gpus}' if name in stage.on_gpu else ''}"
        for name, size in stage.parts
    ]
    text = f"# memory of {stage.stage}: {' and '.join(parts)}{f' of {_gb(machine)}' if stage.total else ''}"
    if stage.total <= machine:
        return text
    here = [name for name, _ in stage.parts if name not in stage.on_gpu]
    if here == ["copies of the weights"]:
        return f"{text}: more than this machine has; take one with more memory"
    remedy = f"{stage.advice}, or " if stage.advice and "trainer" in here else ""
    return f"{text}: more than this machine has; {remedy}lower batch_tokens or engine.max_slots"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _config(recipe: Recipe) -> ModelConfig:
    """Of the checkpoint that the run begins with, else of its new model."""
    folder = str(recipe.run.sft_checkpoint or recipe.model.init)
    if folder:
        return read_config(folder)
    return ModelConfig.from_settings(recipe.model, recipe.corpus.vocabulary_size)


def _size(
    config: ModelConfig, tokens: int, row_tokens: int, lora: LoraSettings, device: str, full: bool = False
) -> Any:
    from etude.learn.model.step_memory import ModelSize  # imports torch

    return ModelSize.of(config, tokens, row_tokens, lora if lora.rank else None, full=full, device=device)


def _pretraining(name: str, recipe: Recipe, config: ModelConfig) -> StageMemory:
    stage = getattr(recipe.pretrain, name)
    tokens = stage.row_tokens * stage.batch_rows
    steps = (tokens, stage.row_tokens, stage.packing)
    found = _supervised(name, f"pretrain.{name}.loop", config, steps, stage.loop, stage.lora)
    return replace(found, on_gpu=_on_gpu(trainer=stage.loop.device))


def _fine_tuning(recipe: Recipe, config: ModelConfig, prefix: int) -> StageMemory:
    tokens = recipe.sft.batch_tokens + recipe.sft.loop.parallel.ranks * prefix  # each rank computes the prompt
    rows = min(config.context_length, tokens)
    found = _supervised("sft", "sft.loop", config, (tokens, rows, False), recipe.sft.loop, recipe.sft.lora)
    return replace(found, on_gpu=_on_gpu(trainer=recipe.sft.loop.device))


def _allocated(device: str) -> float:
    """The factor of the allocator that a trainer here starts with."""
    return TCMALLOC_SHARE if device == "cpu" and allocator.variables() else 1.0


def _on_gpu(**devices: str) -> frozenset[str]:
    return frozenset(name for name, device in devices.items() if device == "cuda")


def fit_update(recipe: Recipe, config: ModelConfig | None = None, prefix: int | None = None) -> TrainerPlan:
    """`rl.update` with numbers for what is "auto": what fits the trainer's memory, or UNPLANNED_TOKENS where that is not known.

    `prefix`: tokens that all prompts begin with; measured here if it is None, as `config` is read.
    """
    from etude.learn.model.step_memory import fitting_tokens
    from etude.learn.train.rollout_batch import LONG_PREFIX

    update = recipe.rl.update
    if not update.auto_tokens:
        return TrainerPlan(update)
    folder = str(recipe.run.sft_checkpoint or recipe.model.init)
    if folder and implementation_of(folder, recipe.model.impl) == "transformers":
        return _planned(update, UNPLANNED_TOKENS, "the memory of a model that transformers computes is not predicted")
    config = config or _config(recipe)
    memory = _trainer_memory(recipe, config)
    if memory is None:
        return _planned(update, UNPLANNED_TOKENS, "the memory where the trainer computes is not known here")
    prefix = shared_prompt_tokens(recipe) if prefix is None else prefix
    wanted = WANTED_TOKENS[recipe.rl.device] + (prefix if prefix >= LONG_PREFIX else 0)
    wanted = update.step_tokens[0] if update.batch_tokens != "auto" else -(-wanted // BATCH_STEP) * BATCH_STEP
    if (ranks := recipe.rl.parallel.ranks) > 1:
        batch = _fitting_split(recipe, config, memory, wanted)
        return _planned(update, {"batch_tokens": batch, "graph_tokens": 0}, f"for {_gb(memory)} of {ranks} ranks")
    size = _size(config, wanted, _row_tokens(recipe, config), update.lora, recipe.rl.device)
    room = int(memory / _allocated(recipe.rl.device))
    batch, graph = fitting_tokens(size, room, wanted, recompute=update.recompute, copies=_copies(recipe))
    batch, graph = max(BATCH_STEP, batch // BATCH_STEP * BATCH_STEP), graph // GRAPH_STEP * GRAPH_STEP
    return _planned(update, {"batch_tokens": batch, "graph_tokens": graph}, f"for {_gb(memory)} of memory")


def _fitting_split(recipe: Recipe, config: ModelConfig, memory: int, wanted: int) -> int:
    """The tokens of a micro-batch of a split trainer, `wanted` of them or as many as fit, BATCH_STEP where nothing does. `memory`: of this machine,
    for all ranks, or of each rank's GPU."""
    from etude.learn.plan.rank_memory import rank_memory, split_training_bytes

    update, row, layout, device = recipe.rl.update, _row_tokens(recipe, config), recipe.rl.parallel, recipe.rl.device
    lora = update.lora if update.lora.rank else None
    copies = BYTES * _copies(recipe) * _size(config, wanted, row, update.lora, device).trained
    how: dict[str, Any] = {
        "recompute": update.recompute,
        "lora": lora,
        "compute": update.compute,
        "device": device,
    }

    def peak(steps: int) -> int:
        tokens = -(-steps * BATCH_STEP // layout.context)  # of a rank
        if device == "cuda":
            return rank_memory(config, layout, tokens, row, **how).peak + copies // layout.shard
        return split_training_bytes(config, layout, tokens, row, **how) + copies

    return BATCH_STEP * max(1, bisect_right(range(1, wanted // BATCH_STEP + 1), memory, key=peak))


@dataclass(frozen=True)
class TrainerPlan:
    """`rl.update` without "auto"; `chosen`: by key of the recipe the numbers that were put in its place, and `why`."""

    update: PolicyStepSettings
    chosen: dict[str, int] = field(default_factory=dict)
    why: str = ""


def _planned(update: PolicyStepSettings, tokens: dict[str, int], why: str) -> TrainerPlan:
    taken = {name: tokens[name] for name in update.auto_tokens}
    shown = " and ".join(f"{name} = {number:,}" for name, number in taken.items())
    chosen = {f"rl.update.{name}": number for name, number in taken.items()}
    return TrainerPlan(update.model_copy(update=taken), chosen, f"rl.update: {shown} (auto): {why}")


def _trainer_memory(recipe: Recipe, config: ModelConfig) -> int | None:
    """Bytes for one rank of RL's trainer, without the reserve and the engines; None where it computes on a machine or a GPU that is not seen here."""
    from etude.rl.devices import gpu_share, processes_on_gpus  # imports torch

    rl, engine, cluster = recipe.rl, recipe.engine, recipe.cluster
    if cluster.address and cluster.trainer:
        return None
    if rl.device == "cuda":
        gpus = gpu_memory_bytes()
        share = gpu_share(processes_on_gpus(rl, engine), len(gpus)) if gpus else 0.0
        return int((1 - RESERVE_SHARE) * share * min(gpus)) if gpus else None
    slots = max(engine.max_slots, rl.slots)
    engines = 0 if engine.device == "cuda" else _engines_here(recipe) * _engine(recipe, config, slots, follows=True)
    return max(0, int((1 - RESERVE_SHARE) * memory_bytes()) - engines) // rl.ranks


def _row_tokens(recipe: Recipe, config: ModelConfig) -> int:
    return min(config.context_length, recipe.engine.max_len)


def _copies(recipe: Recipe) -> int:
    """How many more times RL's trainer holds the trained weights: a reference, and states that are being published. On a GPU these are in the
    machine's own memory."""
    published = 0 if recipe.rl.device == "cuda" else PUBLISHED_STATES
    return published if recipe.rl.update.lora.rank else published + bool(recipe.rl.kl_beta)


def _reinforcement(recipe: Recipe, config: ModelConfig, prefix: int) -> StageMemory:
    rl, planned = recipe.rl, fit_update(recipe, config, prefix)
    update, row = planned.update, _row_tokens(recipe, config)
    batch, graph = update.step_tokens
    tokens = max(batch, prefix)
    size = _size(config, tokens, row, update.lora, rl.device)
    places = _on_gpu(trainer=rl.device, engine=recipe.engine.device)
    rollouts = -(-rl.groups_per_step * rl.group_size // rl.ranks)  # of a rank
    held = max(tokens, min(graph, _step_tokens(rollouts, row, tokens, prefix)))
    more = {"kept_tokens": held, "copies": _copies(recipe)}
    here = 1 if recipe.cluster.address else rl.ranks
    if rl.parallel.ranks > 1:
        copies = _copies(recipe) * size.trained
        each = -(-tokens // rl.parallel.context), row
        trained = _split("rl", "rl.update", config, rl.parallel, each, update, update.lora, rl.device, copies)
    else:
        trained = _trainer("rl", "rl.update", size, tokens, rl.device, recompute=update.recompute, ranks=here, **more)
    slots = max(recipe.engine.max_slots, rl.slots)
    engines = _engines_here(recipe) * _engine(recipe, config, slots, follows=True)
    published = PUBLISHED_STATES * size.trained if "trainer" in places else 0
    followed = BYTES * FOLLOWED_STATES * size.parameters - HALF * size.rounded  # a base of adapters may be in bf16
    held = BYTES * published + (_engines_here(recipe) * followed if "engine" in places else 0)
    found = replace(trained, engine=engines, on_gpu=places, published=trained.published + held)
    return replace(found, chosen=planned.chosen, why=planned.why)


def _step_tokens(rollouts: int, row: int, batch: int, prefix: int) -> int:
    """Tokens of a step whose rollouts fill their windows of `row` tokens; each micro-batch of `batch` has the prompt that all share once."""
    from etude.learn.train.rollout_batch import LONG_PREFIX

    if not LONG_PREFIX <= prefix < min(row, batch):
        return rollouts * row
    behind = rollouts * (row - prefix)
    return behind + -(-behind // (batch - prefix)) * prefix


def _engines_here(recipe: Recipe) -> int:
    """RL's engines on the machine of its trainer."""
    return 1 if recipe.cluster.address else recipe.rl.engines + recipe.rl.standbys


def _trainer(
    stage: str, table: str, size: Any, tokens: int, device: str, *, recompute: bool, ranks: int = 1, **more: int
) -> StageMemory:
    from etude.learn.model.step_memory import training_bytes

    factor = _allocated(device)
    peak = ranks * int(factor * training_bytes(size, tokens, recompute=recompute, **more))
    lower = ranks * int(factor * training_bytes(size, tokens, recompute=True, **more))
    advice = f"{table}.recompute = true takes {_gb(lower)}" if lower < peak else ""
    return StageMemory(stage, peak, 0, advice, ranks=ranks)


def _supervised(
    stage: str, table: str, config: ModelConfig, steps: tuple[int, int, bool], loop: LoopSettings, lora: LoraSettings
) -> StageMemory:
    """In one process, or over the ranks of a layout. `steps`: their tokens, those of a row, and whether every step has as many."""
    tokens, row_tokens, full = steps
    if (layout := loop.parallel).ranks == 1:
        size = _size(config, tokens, row_tokens, lora, loop.device, full)
        return _trainer(stage, table, size, tokens, loop.device, recompute=loop.recompute)
    each = -(-tokens // layout.ranks), row_tokens
    return _split(stage, table, config, layout, each, loop, lora, loop.device)


def _split(
    stage: str,
    table: str,
    config: ModelConfig,
    layout: ParallelLayout,
    tokens: tuple[int, int],
    how: LoopSettings | PolicyStepSettings,
    lora: LoraSettings,
    device: str,
    copies: int = 0,
) -> StageMemory:
    """Over the ranks of a layout, which compute that many `tokens` at a time each, in rows of that many. `copies`: further numbers."""
    from etude.learn.plan.rank_memory import split_training_bytes

    what: dict[str, Any] = {"lora": lora if lora.rank else None, "compute": how.compute, "device": device}
    peak, lower = (
        split_training_bytes(config, layout, *tokens, recompute=recompute, **what) + BYTES * copies
        for recompute in (how.recompute, True)
    )
    whole = 0
    if device == "cuda":  # the first rank keeps it in the machine's memory
        whole = BYTES * _size(config, *tokens, lora, device).parameters
        peak, lower = peak - whole, lower - whole
    advice = f"{table}.recompute = true takes {_gb(lower)}" if lower < peak else ""
    return StageMemory(stage, peak, 0, advice, published=whole, ranks=layout.ranks)


def _engine(recipe: Recipe, config: ModelConfig, slots: int, *, follows: bool = False) -> int:
    """Of one; 0 for vLLM, which sizes its cache itself. `follows`: it gets the weights of RL's trainer."""
    from etude.learn.engine.grouping import PREFILL_TOKENS
    from etude.learn.model.count import count_parameters
    from etude.learn.model.step_memory import engine_bytes

    if recipe.engine.kind == "vllm":
        return 0
    parameters = count_parameters(config).total
    length = min(recipe.engine.max_len, config.context_length)
    rounded = recipe.engine.compute == "bf16"
    tokens = max(PREFILL_TOKENS, length)
    states = FOLLOWED_STATES if follows and recipe.engine.device != "cuda" else 0
    return engine_bytes(config, parameters, slots, length, prefill_tokens=tokens, rounded=rounded, states=states)


def shared_prompt_tokens(recipe: Recipe) -> int:
    """What the first prompts of several exercises begin with alike: system prompt and tools, which a training step computes once. 0 for a new
    model, whose tokenizer is not there yet."""
    from etude.agent.chat.load import load_renderer
    from etude.agent.harness.opening import first_prompt
    from etude.rollout.attempt import task_facts
    from etude.tasks.generate.exercises.source import ExerciseSource

    folder = str(recipe.run.sft_checkpoint or recipe.model.init)
    if not (Path(folder) / "config.json").is_file():
        return 0
    source, renderer = ExerciseSource(recipe.exercises), load_renderer(Path(folder))
    tasks = [source.task(name) for name in source.ids("train")[:PROMPTS_COMPARED]]
    prompts = [asyncio.run(first_prompt(recipe.harness, task_facts(task), renderer)) for task in tasks]
    alike = zip(*prompts, strict=False)
    return next((place for place, ids in enumerate(alike) if len(set(ids)) > 1), min(map(len, prompts), default=0))

"""The memory that the stages of a recipe will take, from the model's shape, before anything runs.

Predicted are the peaks of the processes that hold a model: a trainer, an engine. A prediction counts an engine's cache as full, and the tokens of a
step at their bound. docs/memory.md has what was measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_config import read_config
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.transformers_backend.config import implementation_of
from etude.pipeline.run.machine import memory_bytes

if TYPE_CHECKING:
    from etude.pipeline.recipe.recipe import Recipe

# States of the trained weights that RL's trainer holds on their way to the engine: the base of the next delta, the one that is published, the next.
PUBLISHED_STATES = 3
BYTES = 4  # of a weight
PROMPTS_COMPARED = 4


@dataclass(frozen=True)
class StageMemory:
    """Peaks in bytes; 0 where a stage has no such process. `advice`: what would lower the trainer's, and to how much. `on_gpu`: which of the two
    compute there, whose memory is not looked up. `published`: states on their way to the engine, where the trainer is on a GPU; they are not."""

    stage: str
    trainer: int
    engine: int
    advice: str = ""
    on_gpu: frozenset[str] = frozenset()
    published: int = 0

    @property
    def total(self) -> int:
        """Of this machine's own memory."""
        return sum(size for name, size in self.parts if name not in self.on_gpu)

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The processes that there are, by name."""
        found = (("trainer", self.trainer), ("engine", self.engine), ("published weights", self.published))
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
         "machine_bytes": machine, "fits": s.total <= machine}
        for s in plan
    ]  # fmt: skip


def lines(plan: list[StageMemory]) -> list[str]:
    """One for each stage, with the remedy where the machine has too little."""
    machine = memory_bytes()
    return [_line(stage, machine) for stage in plan]


def _line(stage: StageMemory, machine: int) -> str:
    parts = [f"{name} {_gb(size)}{' on a GPU' if name in stage.on_gpu else ''}" for name, size in stage.parts]
    text = f"# memory of {stage.stage}: {' and '.join(parts)}{f' of {_gb(machine)}' if stage.total else ''}"
    if stage.total <= machine:
        return text
    here = [name for name, _ in stage.parts if name not in stage.on_gpu]
    if here == ["published weights"]:
        return f"{text}: more than this machine has, and copies of the weights need it; take one with more memory"
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


def _size(config: ModelConfig, tokens: int, row_tokens: int, lora: LoraSettings) -> Any:
    from etude.learn.model.step_memory import ModelSize  # imports torch

    return ModelSize.of(config, tokens, row_tokens, lora if lora.rank else None)


def _pretraining(name: str, recipe: Recipe, config: ModelConfig) -> StageMemory:
    stage = getattr(recipe.pretrain, name)
    tokens = stage.row_tokens * stage.batch_rows
    size = _size(config, tokens, stage.row_tokens, stage.lora)
    found = _trainer(name, f"pretrain.{name}.loop", size, tokens, recompute=stage.loop.recompute)
    return replace(found, on_gpu=_on_gpu(trainer=stage.loop.device))


def _fine_tuning(recipe: Recipe, config: ModelConfig, prefix: int) -> StageMemory:
    tokens = recipe.sft.batch_tokens + prefix
    size = _size(config, tokens, min(config.context_length, tokens), recipe.sft.lora)
    found = _trainer("sft", "sft.loop", size, tokens, recompute=recipe.sft.loop.recompute)
    return replace(found, on_gpu=_on_gpu(trainer=recipe.sft.loop.device))


def _on_gpu(**devices: str) -> frozenset[str]:
    return frozenset(name for name, device in devices.items() if device == "cuda")


def _reinforcement(recipe: Recipe, config: ModelConfig, prefix: int) -> StageMemory:
    update = recipe.rl.update
    tokens = max(update.batch_tokens, prefix)
    size = _size(config, tokens, min(config.context_length, recipe.engine.max_len), update.lora)
    places = _on_gpu(trainer=recipe.rl.device, engine=recipe.engine.device)
    reference = 0 if update.lora.rank or not recipe.rl.kl_beta else 1
    whole = reference + (
        0 if "trainer" in places else PUBLISHED_STATES
    )  # published states are copies in the machine's own memory
    copies = whole * size.parameters // size.trained
    held = max(tokens, update.graph_tokens)
    trained = _trainer("rl", "rl.update", size, tokens, recompute=update.recompute, kept_tokens=held, copies=copies)
    slots = max(recipe.engine.max_slots, recipe.rl.slots)
    published = PUBLISHED_STATES * BYTES * size.parameters if "trainer" in places else 0
    return replace(trained, engine=_engine(recipe, config, slots), on_gpu=places, published=published)


def _trainer(stage: str, table: str, size: Any, tokens: int, *, recompute: bool, **more: int) -> StageMemory:
    from etude.learn.model.step_memory import training_bytes

    peak = training_bytes(size, tokens, recompute=recompute, **more)
    lower = training_bytes(size, tokens, recompute=True, **more)
    advice = f"{table}.recompute = true takes {_gb(lower)}" if lower < peak else ""
    return StageMemory(stage, peak, 0, advice)


def _engine(recipe: Recipe, config: ModelConfig, slots: int) -> int:
    """0 for vLLM, which sizes its cache itself."""
    from etude.learn.model.count import count_parameters
    from etude.learn.model.step_memory import engine_bytes

    if recipe.engine.kind == "vllm":
        return 0
    parameters = count_parameters(config).total
    length = min(recipe.engine.max_len, config.context_length)
    return engine_bytes(config, parameters, slots, length, rounded=recipe.engine.compute == "bf16")


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

"""Training by the loop that recipes use: in one process, and over ranks of each layout, which have to reach the same weights."""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from etude.core.events.log import EventLog
from etude.learn.gpu_check.measuring import FAMILIES, VOCABULARY, Scale
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.count import ComputeCost
from etude.learn.model.step_memory import ModelSize, training_bytes
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.plan.cluster_plan import OPERATIONS, PASSES
from etude.learn.plan.rank_memory import rank_memory
from etude.learn.train.batch import TrainBatch
from etude.learn.train.pretrain import learner_of
from etude.learn.train.settings import PhaseSettings
from etude.learn.train.stage import train_stage

STEPS = 6
LAYOUT_FAMILY = "deepseek_v3"
APART = 1e-2  # of the way that training went: ranks that add in another order are closer than this


class DrawnRows:
    """The same batches each time: rows of drawn tokens. Notes when each is asked for."""

    digest = "drawn rows"
    total_batches: int | None = STEPS

    def __init__(self, scale: Scale) -> None:
        self.scale, self.step, self.asked = scale, 0, list[float]()

    def next(self) -> TrainBatch | None:
        self.asked.append(time.perf_counter())
        if self.step == STEPS:
            return None
        self.step += 1
        drawn = torch.Generator().manual_seed(self.step)
        shape = (self.scale.rows, self.scale.length)
        ids = torch.randint(0, VOCABULARY, shape, generator=drawn)
        weights = torch.ones(shape)
        weights[:, 0] = 0
        return TrainBatch(ids, weights, torch.ones(shape, dtype=torch.bool))

    def state(self) -> dict[str, Any]:
        return {"step": self.step}

    def restore(self, state: dict[str, Any]) -> None:
        self.step = state["step"]

    @property
    def step_s(self) -> float:
        """The median, without the first step, which warms up. A loss that is read at its end waits for the device."""
        times = [after - before for before, after in zip(self.asked[1:], self.asked[2:], strict=False)]
        return statistics.median(times)


def trained(scale: Scale, family: str, layout: dict[str, int], compute: str = "fp32") -> dict[str, Any]:
    """A few steps of a new model: loss, seconds of a step, the bytes that the first rank's GPU held at most, and the weights after it."""
    model, source = scale.model(family), DrawnRows(scale)
    settings = PhaseSettings.model_validate(
        {
            "optimizer": {"adam_lr": 1e-3, "matrices": "adamw"},
            "schedule": {"shape": "constant"},
            "loop": {
                "steps": STEPS, "checkpoint_every": STEPS, "log_every": STEPS, "parallel": layout, "device": scale.device, "compute": compute,
            },
        }
    )  # fmt: skip
    _forget_peak(scale)
    with tempfile.TemporaryDirectory(prefix="etude-gpu-check-") as folder:
        learner = learner_of(model, settings.router_bias_rate, 0, settings.lora)
        log = EventLog(Path(folder) / "events.jsonl")
        result = train_stage("gpu check", "gpu_check", settings, model, model, source, learner, Path(folder), log)
    peak = torch.cuda.max_memory_allocated() if scale.device == "cuda" else None
    return {"loss": result.loss, "step_s": source.step_s, "peak_bytes": peak, "model": model}


def one_process(scale: Scale, ceilings: dict[str, float]) -> dict[str, Any]:
    """By family and type of products: tokens a second, the share of the machine's own product that the step's operations reach, and memory."""
    found: dict[str, Any] = {}
    for family in FAMILIES:
        for compute in ("fp32", "bf16"):
            run = trained(scale, family, {}, compute)
            model: CausalLM = run.pop("model")
            forward = ComputeCost.of_model(model.config).of(scale.rows * scale.length, [scale.length] * scale.rows)
            rate = OPERATIONS * PASSES * forward / run["step_s"]
            tokens = scale.rows * scale.length
            size = ModelSize.of(model.config, tokens, scale.length, device=scale.device)
            found[f"{family}, {compute}"] = run | {
                "tokens_per_s": tokens / run["step_s"],
                "share_of_product": rate / ceilings[f"{compute}_flops"],
                "planned_bytes": training_bytes(size, tokens),
            }
    return found


def layouts_of(ranks: int) -> list[dict[str, int]]:
    """That many ranks in each way that a model may be split: FSDP, HSDP, expert and context parallelism, and these together."""
    found = [{"shard": ranks}, {"shard": ranks, "experts": ranks}, {"shard": ranks, "context": ranks}]
    if ranks % 2 == 0:
        found.append({"replicate": 2, "shard": ranks // 2})
    if ranks % 4 == 0:
        found.append({"replicate": 2, "shard": ranks // 2, "experts": 2, "context": 2})
    return found


def layouts(scale: Scale) -> dict[str, Any]:
    """Each layout against one process on the same device: the difference of the weights after a few steps as a share of the way that training went,
    loss, seconds of a step, and the first rank's memory. `agrees`: whether that share is below APART."""
    start = scale.model(LAYOUT_FAMILY).state_dict()
    alone = trained(scale, LAYOUT_FAMILY, {})
    wanted = alone.pop("model").state_dict()
    found: dict[str, Any] = {"one process": alone}
    for layout in layouts_of(scale.ranks):
        run = trained(scale, LAYOUT_FAMILY, layout)
        model: CausalLM = run.pop("model")
        apart = difference(model.state_dict(), wanted, start)
        split = ParallelLayout(**layout)
        tokens = scale.rows * scale.length // split.ranks
        planned = rank_memory(model.config, split, tokens, scale.length, device=scale.device)
        name = ", ".join(f"{key} {value}" for key, value in layout.items())
        found[name] = run | {"apart": apart, "agrees": apart < APART, "planned_bytes": planned.peak}
    return found


def difference(found: dict[str, Tensor], wanted: dict[str, Tensor], start: dict[str, Tensor]) -> float:
    """2-norm of the difference of two models, as a share of the way from `start` to the second."""
    apart, moved = (
        sum(float((tensor.float() - other[name].float()).square().sum()) for name, tensor in one.items())
        for one, other in ((found, wanted), (wanted, start))
    )
    return (apart / moved) ** 0.5


def _forget_peak(scale: Scale) -> None:
    if scale.device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

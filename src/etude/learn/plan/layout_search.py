"""Layouts of a number of GPUs that fit a model, fastest first, by memory and arithmetic alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd
from typing import Any

from etude.learn.model.config import ModelConfig
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.plan.accelerators import Accelerator
from etude.learn.plan.cluster_plan import ClusterPlan
from etude.learn.plan.exchanges import PlannedStep, Traffic
from etude.learn.plan.expected_traffic import ModelUnits, expected_traffic

LEAST_PIECE = 64  # tokens of a row on a rank; a rank has two pieces of it


@dataclass(frozen=True)
class ExpectedPlan(ClusterPlan):
    """A plan whose exchanges are calculated and not recorded."""

    units: ModelUnits | None = None

    @property
    def traffic(self) -> Traffic:  # type: ignore[override]
        return expected_traffic(self.config, self.step, self.units)


@dataclass(frozen=True)
class LayoutSearch:
    """Of a model on `gpus` GPUs, with steps as `step` says; its layout is replaced, and `recompute` where it is not `fixed`. `held`: what a plan of
    RL's trainer has in addition."""

    model: str
    config: ModelConfig
    step: PlannedStep
    accelerator: Accelerator
    efficiency: float
    gpus: int
    fixed: bool
    held: Mapping[str, Any] = field(default_factory=dict)

    def best(self, count: int) -> list[ExpectedPlan]:
        """At most `count` plans that fit, those first whose slower time trains the most tokens a second."""
        fitting = [plan for plan in self._plans() if not plan.misfits()]
        return sorted(fitting, key=lambda plan: plan.step_s[1] / plan.step_tokens)[:count]

    def _plans(self) -> Iterator[ExpectedPlan]:
        for layout in self._layouts():
            for recompute in (self.step.recompute,) if self.fixed else (False, True):
                step = replace(self.step, layout=layout, recompute=recompute)
                apart = layout.experts > 1 or step.compute == "bf16"
                lora = step.lora and step.lora.model_dump_json()
                units = _units(self.config, lora, apart)  # type: ignore[arg-type]  # frozen, so it has a hash
                yield ExpectedPlan(
                    self.model, self.config, step, self.accelerator, self.efficiency, units=units, **self.held
                )

    def _layouts(self) -> Iterator[ParallelLayout]:
        """Those that divide evenly, whose numbers are divisors of one another."""
        longest = max(1, self.step.length // (2 * LEAST_PIECE))
        for shard in _divisors(self.gpus):
            experts = _divisors(gcd(shard, self.config.experts)) if self.config.experts else [1]
            contexts = [each for each in _divisors(shard) if each <= longest and self.step.length % (2 * each) == 0]
            for divided in experts:
                for context in contexts or [1]:
                    yield ParallelLayout(replicate=self.gpus // shard, shard=shard, experts=divided, context=context)

    def document(self, plans: list[ExpectedPlan]) -> dict[str, Any]:
        """As --json has it."""
        return {
            "model": self.model,
            "gpus": self.gpus,
            "layouts": [
                plan.step.layout.model_dump()
                | {
                    "recompute": plan.step.recompute,
                    "peak_bytes": plan.memory.peak,
                    "step_tokens": plan.step_tokens,
                    "step_s": list(plan.step_s),
                    "tokens_per_s": [plan.step_tokens / each for each in reversed(plan.step_s)],
                }
                for plan in plans
            ],
        }

    def text(self, plans: list[ExpectedPlan]) -> str:
        """A line for each, and the options that state it in full."""
        if not plans:
            return (
                f"{self.model}: no layout of {self.gpus} GPUs of {self.accelerator.memory / 1e9:,.0f} GB fits rows of "
                f"{self.step.length:,} tokens; take more GPUs or larger ones, shorter rows, or --lora-rank"
            )
        head = f"{self.model} on {self.gpus} GPUs, {self.step.rows} x {self.step.length:,} tokens a group; times are not measured"
        lines = [head, "replicate   shard  experts  context  recompute   peak GB   tokens/s, at least and at most"]
        for plan in plans:
            layout, (low, high) = plan.step.layout, plan.step_s
            again = "yes" if plan.step.recompute else "no"
            lines.append(
                f"{layout.replicate:9} {layout.shard:7} {layout.experts:8} {layout.context:8} {again:>10} {plan.memory.peak / 1e9:9,.1f}   "
                f"{plan.step_tokens / high:,.0f} to {plan.step_tokens / low:,.0f}"
            )
        return "\n".join(lines)


@lru_cache
def _units(config: ModelConfig, lora: str | None, apart: bool) -> ModelUnits:
    return ModelUnits.of(config, None if lora is None else LoraSettings.model_validate_json(lora), apart)


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]

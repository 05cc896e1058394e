"""What training a model on a number of GPUs would take: memory by part, bytes by collective, operations and time, and what does not fit."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from etude.learn.model.config import ModelConfig
from etude.learn.model.count import ComputeCost, ParameterCount, count_parameters
from etude.learn.model.step_memory import FLOAT, HALF, ModelSize
from etude.learn.plan.accelerators import Accelerator
from etude.learn.plan.exchanges import PlannedStep, Traffic, step_exchanges
from etude.learn.plan.rank_memory import RankMemory, rank_memory

# Operations of a multiply-add; of a forward pass the backward pass is two, and recomputing one more (arXiv 2205.05198, section 4).
OPERATIONS, PASSES, RECOMPUTED_PASSES = 2, 3, 4
DAY_S = 86_400
GPU = "cuda"


@dataclass(frozen=True)
class ClusterPlan:
    """`efficiency`: the share of the accelerator's operations a second that products reach. RL's trainer may hold a `reference` in addition, and has
    `published` states of what is trained on their way to the engines. Times are in seconds, sizes in bytes."""

    model: str
    config: ModelConfig
    step: PlannedStep
    accelerator: Accelerator
    efficiency: float
    reference: bool = False
    published: int = 0

    @cached_property
    def parameters(self) -> ParameterCount:
        return count_parameters(self.config)

    @cached_property
    def size(self) -> ModelSize:
        return ModelSize.of(self.config, self.rank_tokens, self.step.length, self.step.lora, device=GPU)

    @cached_property
    def memory(self) -> RankMemory:
        """Of one rank."""
        step = self.step
        how: dict[str, Any] = {"recompute": step.recompute, "lora": step.lora, "compute": step.compute, "device": GPU}
        found = rank_memory(self.config, step.layout, self.rank_tokens, step.length, **how)
        if self.reference and step.lora is None:  # adapters that are off are one
            found.held["reference"] = -(-FLOAT * self.size.parameters // step.layout.shard)
        return found

    @cached_property
    def traffic(self) -> Traffic:
        """Bytes that a rank sends in a step."""
        return step_exchanges(self.config, self.step) if self.step.layout.ranks > 1 else Traffic()

    @property
    def rank_tokens(self) -> int:
        return -(-self.step.rows * self.step.length // self.step.layout.context)

    @property
    def step_tokens(self) -> int:
        """Of all ranks."""
        layout = self.step.layout
        return layout.ranks // layout.context * self.step.batches * self.step.rows * self.step.length

    @property
    def operations(self) -> float:
        """Of one rank in a step. Windows count as if they were open."""
        step = self.step
        forward = ComputeCost.of_model(self.config).of(step.rows * step.length, [step.length] * step.rows)
        passes = (RECOMPUTED_PASSES if step.recompute else PASSES) + step.scored
        return OPERATIONS * passes * step.batches * forward / step.layout.context

    @property
    def compute_s(self) -> float:
        return self.operations / (self.efficiency * self.accelerator.flops)

    @property
    def exchange_s(self) -> float:
        return sum(sent / self.accelerator.rate(kind.ranks) for kind, sent in self.traffic.items())

    @property
    def step_s(self) -> tuple[float, float]:
        """With all exchanges behind the products, and with none."""
        return max(self.compute_s, self.exchange_s), self.compute_s + self.exchange_s

    @property
    def whole_model(self) -> int:
        """What the first rank keeps in its machine's memory."""
        references = int(self.reference and self.step.lora is None)
        return FLOAT * ((1 + references) * self.size.parameters + self.published * self.size.trained)

    @property
    def state(self) -> int:
        """A training state on the disk."""
        return FLOAT * (self.size.parameters + 2 * self.size.trained)

    @property
    def sequence(self) -> int:
        """Keys and values of one sequence in an engine, in bf16."""
        return HALF * self.config.layers * self.config.cache_width * self.step.length

    @property
    def engine_weights(self) -> int:
        """In bf16."""
        return HALF * self.parameters.total

    def misfits(self) -> list[str]:
        """What does not fit, with the numbers."""
        found = []
        if self.memory.peak > self.accelerator.memory:
            found.append(
                f"a rank needs {_size(self.memory.peak)} of {_size(self.accelerator.memory)}: take more GPUs, experts or context, recompute, or LoRA"
            )
        return found

    def document(self, tokens: float | None, price: float | None) -> dict[str, Any]:
        """As --json has it. `tokens` of the whole training, `price` of a GPU for an hour."""
        low, high = self.step_s
        total: dict[str, Any] = {}
        if tokens is not None:
            days = [tokens / self.step_tokens * seconds / DAY_S for seconds in (low, high)]
            total = {"tokens": tokens, "days": days}
            if price is not None:
                total["cost"] = [24 * each * self.step.layout.ranks * price for each in days]
        return {
            "model": self.model,
            "parameters": asdict(self.parameters),
            "layout": self.step.layout.model_dump() | {"ranks": self.step.layout.ranks},
            "step": {"batches": self.step.batches, "scored": self.step.scored, "rows": self.step.rows,
                     "length": self.step.length, "tokens": self.step_tokens,
                     "compute": self.step.compute, "recompute": self.step.recompute,
                     "lora_rank": 0 if self.step.lora is None else self.step.lora.rank},
            "rank_memory_bytes": dict(self.memory.parts) | {"peak": self.memory.peak, "gpu": self.accelerator.memory},
            "exchanges": [
                {"what": kind.what, "collective": kind.collective, "ranks": len(kind.ranks), "apart": _apart(kind.ranks), "sent_bytes": sent,
                 "seconds": sent / self.accelerator.rate(kind.ranks)}
                for kind, sent in self.traffic.items()
            ],
            "operations": self.operations, "compute_s": self.compute_s, "exchange_s": self.exchange_s, "step_s": [low, high],
            "tokens_per_s": [self.step_tokens / high, self.step_tokens / low],
            "engine": {"weights_bytes": self.engine_weights, "sequence_bytes": self.sequence},
            "first_machine_bytes": self.whole_model, "state_bytes": self.state,
            "total": total, "misfits": self.misfits(),
        }  # fmt: skip

    def brief(self) -> str:
        """In a line."""
        low, high = self.step_s
        return (
            f"{_size(self.memory.peak)} of each, {_size(self.whole_model)} of the first machine; a step of {self.step_tokens:,} tokens in "
            f"{_seconds(low)} to {_seconds(high)}"
        )

    def text(self, tokens: float | None, price: float | None) -> str:
        """For a person."""
        found = self.document(tokens, price)
        lines = [*self._head(), "", *self._memory_lines(), "", *self._exchange_lines(), *self._time_lines(found)]
        lines.append(
            f"engine: {_size(self.engine_weights)} of weights in bf16, {_size(self.sequence)} of keys and values for {self.step.length:,} tokens"
        )
        lines.append(
            f"first machine: {_size(self.whole_model)} for whole models; disk: {_size(self.state)} for a training state"
        )
        return "\n".join([*lines, *(f"does not fit: {line}" for line in self.misfits())])

    def _head(self) -> list[str]:
        count, layout, step = self.parameters, self.step.layout, self.step
        drafts = f", draft layers {_count(count.drafts)}" if count.drafts else ""
        trained = "" if step.lora is None else f"; LoRA trains {_count(self.size.trained)}"
        ranks = "1 rank" if layout.ranks == 1 else f"{layout.ranks} ranks"
        group = "rank" if layout.context == 1 else f"{layout.context} ranks"
        how = f"{step.compute}{', recompute' if step.recompute else ''}"
        batches = f"{step.batches} micro-batches of " if step.batches > 1 else ""
        scored = ", each scored before" if step.scored else ""
        return [
            f"{self.model}: {_count(count.total)} parameters, {_count(count.active)} for a token{drafts}{trained}",
            f"{ranks}: replicate {layout.replicate} x shard {layout.shard}, experts {layout.experts}, context {layout.context}; {how}",
            f"a step: {self.step_tokens:,} tokens, {batches}{step.rows} x {step.length:,} for each {group}{scored}",
        ]

    def _memory_lines(self) -> list[str]:
        rows = [*self.memory.parts, (f"peak, of {_size(self.accelerator.memory)}", self.memory.peak)]
        return ["memory of a rank", *(f"  {name:32} {_size(size):>12}" for name, size in rows)]

    def _exchange_lines(self) -> list[str]:
        if not self.traffic:
            return []
        lines = ["sent by a rank in a step"]
        for kind, sent in self.traffic.items():
            apart = _apart(kind.ranks)
            group = f"{len(kind.ranks)} ranks{f', every {apart}th' if apart > 1 else ''}"
            seconds = sent / self.accelerator.rate(kind.ranks)
            lines.append(f"  {kind.what:18} {kind.collective:15} {group:20} {_size(sent):>12} {_seconds(seconds):>10}")
        return [*lines, ""]

    def _time_lines(self, found: dict[str, Any]) -> list[str]:
        low, high = self.step_s
        lines = [
            f"{self.operations / 1e12:,.2f} TFLOP of a rank at {self.efficiency:.0%} of {self.accelerator.flops / 1e12:,.0f} a second: "
            f"{_seconds(self.compute_s)}; exchanges {_seconds(self.exchange_s)}",
            f"a step: {_seconds(low)} to {_seconds(high)}, {self.step_tokens / high:,.0f} to {self.step_tokens / low:,.0f} tokens a second "
            "(exchanges behind products, or after them; not measured)",
        ]
        if days := found["total"].get("days"):
            cost = found["total"].get("cost")
            price = f", {cost[0]:,.0f} to {cost[1]:,.0f} in the currency of --price" if cost else ""
            lines.append(f"{found['total']['tokens']:,.0f} tokens: {days[0]:,.2f} to {days[1]:,.2f} days{price}")
        return lines


def _apart(ranks: tuple[int, ...]) -> int:
    """How far apart neighbours of a group are."""
    return ranks[1] - ranks[0]


def _size(size: float) -> str:
    return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"


def _count(numbers: int) -> str:
    return f"{numbers / 1e9:,.2f}B" if numbers >= 1e9 else f"{numbers / 1e6:,.2f}M"


def _seconds(time: float) -> str:
    return f"{time:,.1f} s" if time >= 1 else f"{1e3 * time:,.2f} ms"

"""The memory of one rank of a layout, part by part, from the model's shape alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from etude.learn.model.block import MixtureOfExperts
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import Compute
from etude.learn.model.config import ModelConfig
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.step_memory import (
    FLOAT,
    HALF,
    LOGIT_BYTES,
    LOGIT_COPIES,
    PROCESS_BYTES,
    ModelSize,
    keys_of_token,
)
from etude.learn.parallel.layout import ParallelLayout

# Blocks whose weights are whole on a rank at one time: the one that computes, and the next, which is gathered meanwhile.
GATHERED_BLOCKS = 2


@dataclass(frozen=True)
class UnitSize:
    """Numbers of the parts that a rank gathers whole: `root`, the embedding, the last norm and the head, which stay whole during a step; of the
    largest block `dense`, all but the routed experts, and `experts`, these of all ranks together."""

    root: int
    dense: int
    experts: int

    @classmethod
    @lru_cache
    def of(cls, config: ModelConfig) -> UnitSize:
        """Counted on the meta device."""
        with torch.device("meta"):
            model = CausalLM(config.model_copy(update={"mtp_layers": 0}))
        parts = [(_numbers(block) - routed, routed) for block in model.blocks for routed in [_routed(block)]]
        dense, experts = max(parts, key=sum)
        return cls(_numbers(model) - sum(map(sum, parts)), dense, experts)

    def block_bytes(self, experts: int, widths: tuple[int, int]) -> int:
        """The largest block on a rank that has one part in `experts` of its experts. `widths`: bytes of a number of `dense`, and of `experts`."""
        return widths[0] * self.dense + widths[1] * (self.experts // experts)


def _numbers(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _routed(block: nn.Module) -> int:
    return sum(_numbers(module.experts) for module in block.modules() if isinstance(module, MixtureOfExperts))


@dataclass(frozen=True)
class RankMemory:
    """Bytes. `held` by name: what is there all the time. A step adds the larger of `step`, what tokens keep until the backward pass begins, and of
    `gradients`, which replace it."""

    held: dict[str, int]
    step: dict[str, int]
    gradients: int

    @property
    def peak(self) -> int:
        return sum(self.held.values()) + max(sum(self.step.values()), self.gradients)

    @property
    def parts(self) -> list[tuple[str, int]]:
        """What makes the peak, by name."""
        step = sum(self.step.values())
        last = self.step if step >= self.gradients else {"gradients": self.gradients}
        return [(name, size) for name, size in {**self.held, **last}.items() if size]


def rank_memory(
    config: ModelConfig,
    layout: ParallelLayout,
    tokens: int,
    row_tokens: int,
    *,
    recompute: bool = False,
    lora: LoraSettings | None = None,
    device: str = "cpu",
    compute: Compute = "fp32",
) -> RankMemory:
    """Of a rank that computes `tokens` tokens at a time, in rows of `row_tokens`. With `context` ranks a row's tokens are divided among them."""
    size = ModelSize.of(config, tokens, row_tokens, lora, shared=layout.context > 1, device=device)
    units = UnitSize.of(config)  # type: ignore[arg-type]  # frozen, so it has a hash
    share, block = layout.shard, units.block_bytes(layout.experts, _gathered_widths(compute, lora))
    # Weights and gradients of what is whole during a step; adapters, which alone are trained then, are small.
    copies = 1 if lora is not None else 2
    held = {
        "process": PROCESS_BYTES,
        "weights": _share(FLOAT * size.parameters - (FLOAT - HALF) * size.rounded, share),
        "moments": _share(2 * FLOAT * size.trained, share),
        "gathered weights": FLOAT * copies * units.root + GATHERED_BLOCKS * block if layout.ranks > 1 else 0,
    }
    kept, again = size.of_token(recompute)
    # Of all layers; of one, while that is computed again.
    gathered = (layout.context - 1) * (keys_of_token(config) if recompute else size.gathered)
    step = {
        "activations": FLOAT * tokens * (kept + again),
        "keys and values of other ranks": FLOAT * tokens * gathered,
        "logits": LOGIT_COPIES * LOGIT_BYTES,
    }
    return RankMemory(held, step, _share(FLOAT * size.trained, share))


def _gathered_widths(compute: Compute, lora: LoraSettings | None) -> tuple[int, int]:
    """Bytes of a number of a block as it is gathered: all but the experts, and experts."""
    if lora is not None:
        held = HALF if lora.base == "bf16" else FLOAT
        return held, held
    return FLOAT, HALF if compute == "bf16" else FLOAT


def split_training_bytes(
    config: ModelConfig,
    layout: ParallelLayout,
    tokens: int,
    row_tokens: int,
    *,
    recompute: bool = False,
    lora: LoraSettings | None = None,
    device: str = "cpu",
    compute: Compute = "fp32",
) -> int:
    """All ranks of this machine together, each of which computes `tokens` tokens at a time, and the whole model that the first one keeps."""
    how = {"recompute": recompute, "lora": lora, "device": device, "compute": compute}
    of_rank = rank_memory(config, layout, tokens, row_tokens, **how)  # type: ignore[arg-type]
    return layout.ranks * of_rank.peak + FLOAT * ModelSize.of(config, tokens, row_tokens, lora).parameters


def _share(size: int, ranks: int) -> int:
    return -(-size // ranks)

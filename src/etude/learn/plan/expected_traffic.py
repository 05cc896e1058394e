"""What `exchanges.py` records, by arithmetic: exact for layouts that divide evenly, and instant, so that thousands of layouts can be compared.

Rings and direct sends: of what a group of n ranks gathers or scatters, a rank sends the share (n - 1) / n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from etude.learn.model.block import MixtureOfExperts
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.step_memory import FLOAT, HALF
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.plan.exchanges import CONTEXT, GRADIENTS, TOKENS, WEIGHTS, ExchangeKind, PlannedStep, Traffic, adapt

INTEGER = 8  # bytes of the number of an expert, and of a count of rows


class HeldShape(NamedTuple):
    """Of a parameter: its shape, the bytes of a number of it, and whether it is trained."""

    shape: torch.Size
    width: int
    trained: bool


@dataclass(frozen=True)
class UnitShapes:
    """The parameters that are gathered together; `experts`: along their first dimension."""

    held: tuple[HeldShape, ...]
    experts: bool = False

    @classmethod
    def of(cls, modules: Sequence[nn.Module], without: Sequence[nn.Module] = (), experts: bool = False) -> UnitShapes:
        apart = {id(parameter) for module in without for parameter in module.parameters()}
        found = {id(p): p for module in modules for p in module.parameters()}
        held = (HeldShape(p.shape, p.element_size(), p.requires_grad) for key, p in found.items() if key not in apart)
        return cls(tuple(held), experts)

    def part(self, ranks: int, divided: int = 1, trained: bool = False, width: int = 0) -> int:
        """Bytes of a rank's part, padded to equal parts, of all parameters or of those that are trained. `width`: of a number; 0: its own."""
        kept = [each for each in self.held if each.trained or not trained]
        return sum(
            (width or each.width) * -(-(each.shape[0] // divided) // ranks) * each.shape[1:].numel() for each in kept
        )


@dataclass(frozen=True)
class ModelUnits:
    """What is gathered: `root` once for each micro-batch, each of `blocks` for each pass."""

    root: UnitShapes
    blocks: tuple[UnitShapes, ...]
    adapted: bool

    @classmethod
    def of_step(cls, config: ModelConfig, step: PlannedStep) -> ModelUnits:
        return cls.of(config, step.lora, step.layout.experts > 1 or step.compute == "bf16")

    @classmethod
    def of(cls, config: ModelConfig, lora: LoraSettings | None, apart: bool) -> ModelUnits:
        """On the meta device. `apart`: experts are gathered by themselves."""
        with torch.device("meta"):
            model = CausalLM(config.model_copy(update={"mtp_layers": 0}))
            adapt(model, lora)
        units = []
        for block in model.blocks:
            experts = [m.experts for m in block.modules() if isinstance(m, MixtureOfExperts)] if apart else []
            units += [UnitShapes.of([block], experts), *(UnitShapes.of([each], experts=True) for each in experts)]
        return cls(UnitShapes.of([model], list(model.blocks)), tuple(units), lora is not None)


def expected_traffic(config: ModelConfig, step: PlannedStep, units: ModelUnits | None = None) -> Traffic:
    """As `step_exchanges`. `units`: of the model, where the caller has them."""
    layout = step.layout
    units = units or ModelUnits.of_step(config, step)
    found: Traffic = Traffic()
    for unit, times in ((units.root, 1), *((block, 2 + step.scored) for block in units.blocks)):
        rounded = unit.experts and step.compute == "bf16" and not units.adapted
        found.update(_weights(unit, layout, times, HALF if rounded else 0))
    found.update(_context(config, step))
    found.update(_tokens(config, step))
    return Traffic({kind: step.batches * sent for kind, sent in found.items() if sent})


def _weights(unit: UnitShapes, layout: ParallelLayout, times: int, width: int) -> Traffic:
    divided = layout.experts if unit.experts else 1
    ranks = layout.shard // divided
    group = tuple(range(0, layout.shard, divided))
    part, trained = unit.part(ranks, divided, width=width), unit.part(ranks, divided, trained=True, width=FLOAT)
    copies = tuple(range(0, layout.ranks, layout.shard))
    return Traffic(
        {
            ExchangeKind(WEIGHTS, "all_gather", group): times * (ranks - 1) * part,
            ExchangeKind(GRADIENTS, "reduce_scatter", group): (ranks - 1) * trained,
            ExchangeKind(GRADIENTS, "all_reduce", copies): 2 * trained * (len(copies) - 1) // len(copies),
        }
    )


def _context(config: ModelConfig, step: PlannedStep) -> Traffic:
    """Keys and values, forward, and where blocks are computed again; their gradients."""
    ranks = step.layout.context
    latent = config.attention == "latent"
    width = config.kv_lora_rank + config.rope_dim if latent else 2 * config.kv_heads * config.head_dim
    number = HALF if step.compute == "bf16" else FLOAT
    sent = config.layers * (ranks - 1) * (step.rows * step.length // ranks) * width * number
    group = tuple(range(ranks))
    return Traffic(
        {
            ExchangeKind(CONTEXT, "all_gather", group): _forward_passes(step) * sent,
            ExchangeKind(CONTEXT, "reduce_scatter", group): sent,
        }
    )


def _forward_passes(step: PlannedStep) -> int:
    return 1 + step.recompute + step.scored


def _tokens(config: ModelConfig, step: PlannedStep) -> Traffic:
    """To experts and back, in both passes, with the numbers of the experts and how many rows each rank gets."""
    ranks = step.layout.experts
    visits = step.rows * step.length // step.layout.context * config.experts_per_token
    number = HALF if step.compute == "bf16" else FLOAT
    forward = _forward_passes(step)
    rows = visits * config.hidden_size * number * (ranks - 1) // ranks
    counted = visits * INTEGER * (ranks - 1) // ranks + INTEGER * (ranks - 1)
    sent = len(config.moe_layers) * ((2 * forward + 2) * rows + forward * counted)
    return Traffic({ExchangeKind(TOKENS, "all_to_all", tuple(range(ranks))): sent if ranks > 1 else 0})

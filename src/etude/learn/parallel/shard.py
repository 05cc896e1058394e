"""Splits a model over the ranks of a layout: the modules stay as they are, their parameters become DTensors of FSDP2 (`fully_shard`).

Two device meshes lie over the same ranks, one for dense parameters and one for experts. With experts on several ranks tokens travel to the ranks of
their experts and back (expert parallelism; GShard, arXiv 2006.16668, section 3.2). Gradients are sums over the ranks, as everywhere here: losses are
divided by what the whole batch holds, never by the number of ranks.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single, all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from etude.learn.model.block import MixtureOfExperts
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import Compute
from etude.learn.model.experts import Experts
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.parallel.shared_training import ContextRank

DIST: Any = torch.distributed  # its stubs lack most of what is used here
# Weights that products in bf16 would round anyway: the results are the same bits.
ROUNDED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False)
REPLICATE, SHARD, EXPERT_SHARD, EXPERTS, CONTEXT = "replicate", "shard", "expert_shard", "experts", "context"


@dataclass(frozen=True)
class Meshes:
    """Of a layout, in a process whose default group has all its ranks. Raises ValueError for a group of another size."""

    layout: ParallelLayout
    device: str = "cpu"

    def __post_init__(self) -> None:
        if (world := DIST.get_world_size()) != self.layout.ranks:
            raise ValueError(
                f"replicate {self.layout.replicate} x shard {self.layout.shard} are {self.layout.ranks} ranks, and {world} processes were started"
            )

    @cached_property
    def dense(self) -> DeviceMesh:
        """(replicate, shard), or (shard,) without copies."""
        ranks = torch.arange(self.layout.ranks).view(self.layout.replicate, self.layout.shard)
        mesh = DeviceMesh(self.device, ranks, mesh_dim_names=(REPLICATE, SHARD))
        return mesh if self.layout.replicate > 1 else mesh[SHARD]

    @cached_property
    def _of_experts(self) -> DeviceMesh:
        groups = self.layout.shard // self.layout.experts
        ranks = torch.arange(self.layout.ranks).view(self.layout.replicate, groups, self.layout.experts)
        return DeviceMesh(self.device, ranks, mesh_dim_names=(REPLICATE, EXPERT_SHARD, EXPERTS))

    @property
    def expert_shard(self) -> DeviceMesh:
        """The ranks that hold the same experts as this one: (replicate, expert_shard), or (expert_shard,) without copies."""
        if self.layout.replicate > 1:
            return self._of_experts[REPLICATE, EXPERT_SHARD]
        return self._of_experts[EXPERT_SHARD]

    @cached_property
    def divided(self) -> DeviceMesh:
        """All ranks as the experts of a layer lie on them: (experts, expert_shard), with copies (replicate, experts, expert_shard)."""
        groups = self.layout.shard // self.layout.experts
        ranks = torch.arange(self.layout.ranks).view(self.layout.replicate, groups, self.layout.experts)
        mesh = DeviceMesh(self.device, ranks.transpose(1, 2), mesh_dim_names=(REPLICATE, EXPERTS, EXPERT_SHARD))
        return mesh if self.layout.replicate > 1 else mesh[EXPERTS, EXPERT_SHARD]

    @property
    def expert_group(self) -> Any:
        """The process group in which this rank holds its part of the experts."""
        return self._of_experts[EXPERTS].get_group()

    @property
    def expert_rank(self) -> int:
        """The place of this rank in `expert_group`."""
        return self._of_experts.get_local_rank(EXPERTS)

    @cached_property
    def context(self) -> ContextRank:
        """This rank among those that share rows; without what a token costs."""
        if self.layout.context == 1:
            return ContextRank()
        ranks = torch.arange(self.layout.ranks).view(-1, self.layout.context)
        mesh = DeviceMesh(self.device, ranks, mesh_dim_names=(SHARD, CONTEXT))
        gather = partial(gather_rows, group=mesh[CONTEXT].get_group())
        return ContextRank(mesh.get_local_rank(CONTEXT), self.layout.context, gather)


class _GatheredRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, group: Any) -> Tensor:  # type: ignore[override]
        ctx.group, ctx.shape = group, rows.shape
        ranks = DIST.get_world_size(group)
        gathered = rows.new_empty(ranks * rows.shape[0], *rows.shape[1:])
        DIST.all_gather_single(gathered, rows.contiguous(), group=group)
        return gathered

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        own = grad.new_empty(ctx.shape)
        DIST.reduce_scatter_single(own, grad.contiguous(), group=ctx.group)
        return own, None


def gather_rows(rows: Tensor, group: Any) -> Tensor:
    """(ranks * n, ...) of the group's tensors (n, ...), in order of its ranks. A rank's gradient is the sum of what all ranks have for its rows."""
    return cast(Tensor, _GatheredRows.apply(rows, group))


class DispatchedExperts(nn.Module):
    """In place of a layer's `Experts`: `local` are those of this rank, E / ranks of them, in order of the ranks of `group`."""

    def __init__(self, whole: Experts, group: Any, rank: int, ranks: int) -> None:
        super().__init__()
        self.group, self.ranks = group, ranks
        self.each = whole.gate_up.shape[0] // ranks
        kept = slice(rank * self.each, (rank + 1) * self.each)
        for name, parameter in list(whole.named_parameters(recurse=False)):
            part = nn.Parameter(parameter.detach()[kept].clone(), requires_grad=parameter.requires_grad)
            whole.register_parameter(name, part)
        self.local = whole

    def forward(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        """Tokens x (N, H), choice and weights (N, K) -> (N, H)."""
        tokens, chosen = experts.shape
        flat = experts.flatten()  # (N * K,)
        order = torch.argsort(flat, stable=True)  # by expert, so by rank
        sent = torch.bincount(flat // self.each, minlength=self.ranks)  # (ranks,)
        here, there = self._counts(sent)
        rows = x.index_select(0, order // chosen)
        if self.local.compute is not None:
            rows = rows.to(self.local.compute)  # as the experts will, so that half of it travels
        given = all_to_all_single_autograd(rows, there, here, self.group)  # (M, H)
        asked = all_to_all_single((flat % self.each)[order], there, here, self.group)  # (M,)
        ones = torch.ones(len(asked), 1, dtype=weights.dtype, device=x.device)
        computed = self.local(given, asked.unsqueeze(1), ones)
        back = all_to_all_single_autograd(computed, here, there, self.group)  # (N * K, H) in `order`
        shares = weights.flatten()[order].to(back.dtype).unsqueeze(1)
        return torch.zeros(tokens, x.shape[1], dtype=back.dtype, device=x.device).index_add(
            0, order // chosen, back * shares
        )

    def _counts(self, sent: Tensor) -> tuple[list[int], list[int]]:
        """Rows that this rank sends to each rank, and that it gets from each."""
        taken = all_to_all_single(sent, [1] * self.ranks, [1] * self.ranks, self.group)
        return sent.tolist(), taken.tolist()


def shard_model(model: CausalLM, meshes: Meshes, compute: Compute = "fp32") -> None:
    """In place; all ranks hold the same whole model before. With "bf16" experts are gathered in the type that their products take, and gradients
    still summed in fp32. Raises ValueError for experts that the layout can't divide."""
    # FSDP2 warns of hidden states that are views, into which no loss writes, and DTensor of how gloo exchanges dimensions.
    warnings.filterwarnings("ignore", message=".*returned a view tensor")
    logging.getLogger("torch.distributed.tensor._collective_utils").setLevel(logging.ERROR)
    layout = meshes.layout
    layout.require_experts(model.config.experts if layout.experts > 1 else 0)
    parts: list[nn.Module] = [*model.blocks, *model.mtp]
    for part in parts:
        if layout.experts > 1 or compute == "bf16":
            _shard_experts(part, meshes, compute)
        fully_shard(part, mesh=meshes.dense, reshard_after_forward=True)
    # The root's weights (embedding, norm, head) are used again by the loss, outside of its forward.
    fully_shard(model, mesh=meshes.dense, reshard_after_forward=False)
    for module in model.modules():
        if isinstance(module, FSDPModule):  # neither setting reaches the modules inside
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def _shard_experts(part: nn.Module, meshes: Meshes, compute: Compute) -> None:
    """Apart from the rest of the block: over other ranks where they are divided, and in another type."""
    for module in part.modules():
        if isinstance(module, MixtureOfExperts):
            mesh = meshes.dense
            if (ranks := meshes.layout.experts) > 1:
                mesh = meshes.expert_shard
                divided = DispatchedExperts(module.experts, meshes.expert_group, meshes.expert_rank, ranks)
                module.experts = divided  # type: ignore[assignment]
            adapted = not all(parameter.requires_grad for parameter in module.experts.parameters())
            policy = MixedPrecisionPolicy() if compute == "fp32" or adapted else ROUNDED
            fully_shard(module.experts, mesh=mesh, reshard_after_forward=True, mp_policy=policy)


def gradient_norm(model: nn.Module, meshes: Meshes, parameters: Iterable[Tensor]) -> Tensor:
    """The 2-norm of the gradients of these parameters of a split model together, the same on every rank: each part counts once, those of divided
    experts of all ranks that hold some."""
    divided = {
        id(p) for module in model.modules() if isinstance(module, DispatchedExperts) for p in module.parameters()
    }
    squares = torch.zeros(2)  # of parameters that all ranks share, and of experts
    for parameter in parameters:
        if parameter.grad is not None:
            squares[int(id(parameter) in divided)] += whole(parameter.grad.square().sum()).cpu()
    if divided:
        DIST.all_reduce(squares[1:], group=meshes.expert_group)
    return squares.sum().sqrt()


def whole(tensor: Tensor) -> Tensor:
    """All of a parameter or gradient. Every rank calls it: they exchange their parts."""
    return cast(DTensor, tensor).full_tensor() if isinstance(tensor, DTensor) else tensor

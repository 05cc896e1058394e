"""What the ranks of a layout send one another in a training step, counted without a second process.

One rank runs a step of the real model, split by the code that splits it over real ranks, on tensors without content (`FakeTensorMode`) and in a
process group without members (PyTorch's "fake" back end). Every collective passes a recorder. Two things are assumed: tokens choose experts evenly,
and attention itself, which exchanges nothing, is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from etude.learn.model.adapters import add_adapters
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import Compute, compute_in
from etude.learn.model.config import ModelConfig
from etude.learn.model.count import ComputeCost
from etude.learn.model.experts import Experts
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.mask import Attention
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.parallel.shard import DIST, Meshes, shard_model
from etude.learn.train.context_share import ContextMask, ContextRow, deal_pieces

WEIGHTS, GRADIENTS, CONTEXT, TOKENS = "weights", "gradients", "keys and values", "tokens of experts"
SENDS_NOTHING = ("wait_tensor",)


class ExchangeKind(NamedTuple):
    """What travels, by which collective, among which ranks."""

    what: str
    collective: str
    ranks: tuple[int, ...]


Traffic = Counter[ExchangeKind]  # bytes that a rank sends


@dataclass(frozen=True)
class Exchange:
    """One collective of one rank, and the bytes that it sends in it, as rings and direct sends do."""

    kind: ExchangeKind
    sent: int


@dataclass(frozen=True)
class PlannedStep:
    """A step of `batches` micro-batches, each of `rows` documents of `length` tokens for each group of ranks that share rows. With `scored`, as in
    RL, all of them pass through the model once without gradients before."""

    layout: ParallelLayout
    rows: int
    length: int
    compute: Compute = "fp32"
    recompute: bool = False
    lora: LoraSettings | None = None
    batches: int = 1
    scored: bool = False


def step_exchanges(config: ModelConfig, step: PlannedStep) -> Traffic:
    """Bytes that rank 0 sends in a step, by kind and group. One micro-batch is recorded, and two, whose difference counts for the others. Raises
    ValueError for a layout that the model can't have, RuntimeError where a process group is there."""
    one = _of_all_layers(config, replace(step, batches=1))
    if step.batches == 1:
        return one
    two = _of_all_layers(config, replace(step, batches=2))
    return Counter({kind: one[kind] + (step.batches - 1) * (two[kind] - one[kind]) for kind in two})


def _of_all_layers(config: ModelConfig, step: PlannedStep) -> Traffic:
    """Layers of one kind exchange alike, so each kind is recorded once and once more, and the difference counts for the others."""
    kinds: dict[tuple[Any, ...], list[int]] = {}
    for layer in range(config.layers):
        kind = (config.has_experts(layer), config.window_of(layer), config.heads_of(layer))
        kinds.setdefault(kind, []).append(layer)
    once = [layers[0] for layers in kinds.values()]
    total = least = sent(recorded(some_layers(config, once), step))
    for layers in kinds.values():
        if len(layers) > 1:
            more = sent(recorded(some_layers(config, sorted([*once, layers[1]])), step))
            added = {key: (len(layers) - 1) * (more[key] - least[key]) for key in more}
            total = Counter({key: total[key] + added.get(key, 0) for key in total | more})
    return total


def sent(exchanges: Sequence[Exchange]) -> Traffic:
    """Bytes by kind and group."""
    found: Traffic = Counter()
    for exchange in exchanges:
        found[exchange.kind] += exchange.sent
    return found


def some_layers(config: ModelConfig, layers: Sequence[int]) -> ModelConfig:
    """A model of these layers of another, in this order, without draft layers."""
    places = range(len(layers))
    shape: dict[str, Any] = {"layers": len(layers), "first_dense": 0, "sparse_step": 1, "mtp_layers": 0}
    shape["dense_layers"] = tuple(n for n in places if config.experts and not config.has_experts(layers[n]))
    shape["window_layers"] = tuple(n for n in places if layers[n] in config.window_layers)
    shape["rope_free_layers"] = tuple(n for n in places if layers[n] in config.rope_free_layers)
    shape["layer_heads"] = tuple(config.layer_heads[layer] for layer in layers) if config.layer_heads else ()
    return config.model_copy(update=shape)


def recorded(config: ModelConfig, step: PlannedStep, rank: int = 0) -> list[Exchange]:
    """The collectives of a step of one rank, in order. Raises as `step_exchanges`."""
    with _ranks_without_processes(step.layout.ranks, rank):
        meshes = Meshes(step.layout)
        _open_groups(meshes)
        cost = ComputeCost.of_model(config)
        context = replace(meshes.context, token=cost.token, pair=cost.pair)
        tokens = np.arange(step.rows * step.length).reshape(step.rows, step.length)
        rows = [ContextRow(row) for row in tokens]
        mask = _UnseenMask(rows, deal_pieces(rows, context), context)
        ids = torch.zeros(1, len(mask.numbers), dtype=torch.long)
        with FakeTensorMode(allow_non_fake_inputs=True), _Recorder() as recorder:
            model = CausalLM(config)
            adapt(model, step.lora)
            for module in model.modules():
                if isinstance(module, Experts):
                    module.back_end = "dense"  # the one whose operations do not depend on which expert a token chose
            shard_model(model, meshes, step.compute)
            compute_in(model, step.compute, step.recompute)
            recorder.found.clear()
            with torch.no_grad():
                for _ in range(step.batches if step.scored else 0):
                    model(ids, mask)
            for _ in range(step.batches):
                model(ids, mask).logits.sum().backward()
        return recorder.found


def adapt(model: CausalLM, lora: LoraSettings | None) -> None:
    """Gives a model without content the adapters that it is trained with, if any."""
    if lora is not None:
        model.base_digest = "none"  # there is nothing to digest
        add_adapters(model, lora)


@contextmanager
def _ranks_without_processes(count: int, rank: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the back end

    if DIST.is_initialized():
        raise RuntimeError("this process has a process group: a plan is made outside of training")
    DIST.init_process_group("fake", store=FakeStore(), rank=rank, world_size=count)
    try:
        yield
    finally:
        DIST.destroy_process_group()


def _open_groups(meshes: Meshes) -> None:
    """Meshes look at the numbers of their ranks, so they are made from real ones."""
    _ = meshes.dense, meshes.expert_shard, meshes.expert_group, meshes.expert_rank, meshes.context


class _UnseenMask(ContextMask):
    """Keys and values travel as always; what queries make of them has the right shape and no content."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> Tensor:
        seen = q.sum() + k.sum() + v.sum()
        return seen.expand(q.shape[0], q.shape[1], v.shape[2])


class _Recorder(TorchDispatchMode):
    """Notes collectives in `found`. Tensors with content, which are indices and counts, are computed as always."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Exchange] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if func.namespace in ("c10d", "_c10d_functional") and name not in SENDS_NOTHING:
            self.found.append(_exchange(name, args))
        if func is torch.ops.aten.bincount.default:
            return _evenly(args[0].numel(), int(args[2] if len(args) > 2 else kwargs["minlength"]))
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if not tensors or any(isinstance(x, FakeTensor) for x in tensors):
            return func(*args, **kwargs)
        if func.namespace == "_c10d_functional":
            return args[0]  # counts of rows, which are alike on all ranks
        with unset_fake_temporarily():
            return func(*args, **kwargs)


def _evenly(count: int, bins: int) -> Tensor:
    """How many of `count` choices fall on each of `bins`."""
    with unset_fake_temporarily():
        return torch.arange(count, count + bins).div(bins, rounding_mode="floor").flip(0)


def _exchange(name: str, args: tuple[Any, ...]) -> Exchange:
    """Of an operator's name and arguments. Weights travel flat, keys and values as rows. Raises KeyError for a collective that no layout has."""
    find = {
        "_allgather_base_": lambda: ("all_gather", args[1], args[2], WEIGHTS),
        "_reduce_scatter_base_": lambda: ("reduce_scatter", args[1], args[2], GRADIENTS),
        "allreduce_": lambda: ("all_reduce", args[0][0], args[1], GRADIENTS),
        "all_to_all_single": lambda: ("all_to_all", args[0], args[-1], TOKENS),
    }
    collective, given, group, what = find[name]()
    ranks = tuple(DIST.get_process_group_ranks(_group_of(group)))
    parts = {"all_gather": len(ranks), "all_reduce": 2}.get(collective, 1)
    sent = parts * given.numel() * given.element_size() * (len(ranks) - 1) // len(ranks)
    rows = what in (WEIGHTS, GRADIENTS) and given.dim() > 1
    return Exchange(ExchangeKind(CONTEXT if rows else what, collective, ranks), sent)


def _group_of(group: Any) -> Any:
    """The process group of an operator's argument: a name or a boxed group."""
    if isinstance(group, str):
        return torch._C._distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined]
    return torch.distributed.ProcessGroup.unbox(group)  # type: ignore[attr-defined]

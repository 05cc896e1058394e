"""`SharedTraining` of a model that `shard_model` has split: sums over the ranks, and whole tensors for what is written to the disk."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from etude.learn.model.adapters import load_trained_state, trained_state
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import Compute
from etude.learn.model.count import ComputeCost
from etude.learn.parallel.rank_states import (
    MODEL,
    put_together,
    read_parts,
    read_plain,
    taken_apart,
    write_parts,
)
from etude.learn.parallel.shard import DIST, DispatchedExperts, Meshes, gradient_norm, shard_model, whole
from etude.learn.parallel.shared_training import OptimizedParameters

LOCAL = "experts.local."  # in the names of a split model's experts


def _of_one(name: str) -> str:
    """What one process calls a tensor of a split model."""
    return name.replace(LOCAL, "experts.")


def first_ranks(value: Any) -> Any:
    """The first rank's value on every rank. Raises RuntimeError where a rank is lost. Nothing that arrives is run."""
    packed = io.BytesIO()
    torch.save(value, packed)
    content = torch.frombuffer(packed.getbuffer(), dtype=torch.uint8).clone()
    size = torch.tensor([len(content)])
    DIST.broadcast(size, 0)
    if DIST.get_rank():
        content = torch.empty(int(size), dtype=torch.uint8)
    DIST.broadcast(content, 0)
    return torch.load(io.BytesIO(content.numpy().tobytes()), map_location="cpu", weights_only=True)


def fill(model: nn.Module, meshes: Meshes, whole_model: nn.Module | None) -> None:
    """Gives a split model without weights, on the meta device, those of the first rank's `whole_model`. Its parameters are new objects after it."""
    model.load_state_dict(_parts(model.state_dict(), meshes, whole_model), assign=True)


@torch.no_grad()
def _parts(names: Mapping[str, Tensor], meshes: Meshes, whole_model: nn.Module | None) -> dict[str, Tensor]:
    """Of the first rank's model what this rank has, by its own names: one tensor after the other goes to all, and each keeps its part."""
    given = {} if whole_model is None else whole_model.state_dict()
    parts: dict[str, Tensor] = {}
    for name, like in names.items():
        first = given.get(_of_one(name))
        divided = LOCAL in name
        shape = list(like.shape)
        shape[:1] = [shape[0] * meshes.layout.experts] if divided else shape[:1]
        tensor = torch.empty(shape, dtype=like.dtype) if first is None else first.detach().contiguous()
        DIST.broadcast(tensor, 0)
        parts[name] = _part(tensor, like, divided, meshes).clone()
    return parts


def _part(tensor: Tensor, like: Tensor, divided: bool, meshes: Meshes) -> Tensor:
    """What this rank has of a whole tensor."""
    if divided:
        tensor = tensor.chunk(meshes.layout.experts)[meshes.expert_rank].contiguous()
    if not isinstance(like, DTensor):
        return tensor.to(meshes.device)
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def split_over(part: CausalLM, meshes: Meshes, compute: Compute, whole_model: nn.Module | None) -> SplitModel:
    """Splits a model without weights (`without_weights`) over the ranks of the default group, each of which calls it; the weights are those of the
    first rank's `whole_model`."""
    shard_model(part, meshes, compute)
    fill(part, meshes, whole_model)
    for module in part.modules():  # what is in no state: tables of positions
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(meshes.device))
    return SplitModel(part, meshes, whole_model)


class SplitModel:
    """`SharedTraining` of a model that `shard_model` has split over `meshes`; on the first rank `whole_model` is the one that `show` writes to."""

    def __init__(self, model: CausalLM, meshes: Meshes, whole_model: nn.Module | None = None) -> None:
        self.model, self.meshes, self.whole_model = model, meshes, whole_model
        self.rank, self.ranks = DIST.get_rank(), DIST.get_world_size()
        cost = ComputeCost.of_model(model.config)
        self.context = replace(meshes.context, token=cost.token, pair=cost.pair)
        experts = [module for module in model.modules() if isinstance(module, DispatchedExperts)]
        self._divided = {id(p) for module in experts for p in module.parameters()}
        self._like = dict(model.state_dict())
        self._own_names = {_of_one(name): name for name in self._like}

    def total(self, value: Tensor) -> Tensor:
        summed = value.detach().clone()
        DIST.all_reduce(summed)
        return summed

    def same(self, value: Any) -> Any:
        return first_ranks(value)

    def norm(self, parameters: list[Tensor]) -> Tensor | None:
        return gradient_norm(self.model, self.meshes, parameters)

    @torch.no_grad()
    def show(self) -> None:
        given = {} if self.whole_model is None else self.whole_model.state_dict()
        for name, tensor in trained_state(self.model).items():
            found = self._gather(tensor, LOCAL in name)
            if given:
                given[_of_one(name)].copy_(found)

    def take(self) -> None:
        load_trained_state(self.model, _parts(trained_state(self.model), self.meshes, self.whole_model))

    def write(self, path: Path, state: Mapping[str, Any], optimizers: OptimizedParameters) -> None:
        """A folder into which each rank writes what it has."""
        if self.rank == 0:
            path.mkdir()
        self.same(None)
        plain, tensors = taken_apart(
            {**state, "model": {_of_one(name): value for name, value in state["model"].items()}}
        )
        spread = {name: self._spread(tensor, *self._owner(name, optimizers)) for name, tensor in tensors.items()}
        write_parts(path, plain, spread, first=self.rank == 0)
        self.same(None)

    def read(self, path: Path, optimizers: OptimizedParameters) -> dict[str, Any]:
        parts: dict[str, Tensor] = {}
        if path.is_dir():
            (plain, wholes), spread = read_plain(path), {}
            for name, (like, divided) in self._owners(wholes, optimizers).items():
                parts[name] = torch.empty_like(like, dtype=wholes[name].dtype)
                spread[name] = self._spread(parts[name], like, divided)
            read_parts(path, spread)
        else:
            plain, wholes = taken_apart(torch.load(path, map_location="cpu", weights_only=True))
            for name, (like, divided) in self._owners(wholes, optimizers).items():
                parts[name] = _part(wholes[name], like, divided, self.meshes)
        state = put_together(plain, parts)
        return {**state, "model": {self._own_names[name]: value for name, value in state["model"].items()}}

    def _owners(self, names: Iterable[str], optimizers: OptimizedParameters) -> dict[str, tuple[Tensor, bool]]:
        """`_owner` of the names that have one here. Others belong to another model or other optimizers, which their loading reports."""
        found = {name: self._owner(name, optimizers) for name in names}
        return {name: (like, divided) for name, (like, divided) in found.items() if like is not None}

    def _owner(self, name: str, optimizers: OptimizedParameters) -> tuple[Tensor | None, bool]:
        """The parameter or buffer whose value or moment has this name in a state, and whether the experts of its layer are divided."""
        kind, rest = name.split("/", 1)
        if kind == MODEL:
            own = self._own_names.get(rest, "")
            return self._like.get(own), LOCAL in own
        place, number, _ = rest.split("/")
        parameters = optimizers[int(place)] if int(place) < len(optimizers) else []
        like = parameters[int(number)] if int(number) < len(parameters) else None
        return like, id(like) in self._divided

    def _spread(self, tensor: Tensor, like: Tensor | None, divided: bool) -> Tensor:
        """A rank's part as a part of the tensor that one process has; the memory is shared."""
        if not divided or not isinstance(tensor, DTensor):
            return tensor
        mesh, shape = self.meshes.divided, [tensor.shape[0] * self.meshes.layout.experts, *tensor.shape[1:]]
        placements = [Replicate()] * (mesh.ndim - 2) + [Shard(0), Shard(0)]
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            tensor.to_local(), mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
        )

    @torch.no_grad()
    def _gather(self, tensor: Tensor, divided: bool) -> Tensor:
        found = whole(tensor.detach())
        if not divided:
            return found.clone()
        parts = [torch.empty_like(found) for _ in range(self.meshes.layout.experts)]
        DIST.all_gather(parts, found.contiguous(), group=self.meshes.expert_group)
        return torch.cat(parts)

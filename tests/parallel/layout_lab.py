"""What one rank of a test of layouts computes, next to what one process computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.learn.model.adapters import add_adapters, trained_state
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import Compute, computing
from etude.learn.model.init import new_model, with_drafts
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.settings import ModelSettings
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.parallel.shared_training import ALONE, SharedTraining
from etude.learn.train.batch import TrainBatch, padded_batch, shared_batch
from etude.learn.train.context_share import share_of
from etude.learn.train.losses import weighted_cross_entropy
from etude.learn.train.self_distillation import DraftLearner
from etude.learn.train.sources import packed_batch

SIZES = dict(hidden_size=48, layers=3, heads=4, dense_intermediate=64, max_positions=128, init_head_std=0.3)
EXPERTS = dict(experts=4, experts_per_token=2, moe_intermediate=24)
MODELS: dict[str, dict[str, Any]] = {
    "qwen3": dict(family="qwen3", kv_heads=2, head_dim=16),
    "qwen3_moe": dict(family="qwen3_moe", kv_heads=2, head_dim=16, **EXPERTS),
    "deepseek_v3": dict(family="deepseek_v3", kv_lora_rank=16, q_lora_rank=24, shared_experts=1, **EXPERTS),
}
VOCABULARY = 97
LENGTHS = (24, 7, 31, 18)
LORA = LoraSettings(rank=2, alpha=4, targets=["attention", "dense"])
LORA_EXPERTS = LoraSettings(rank=2, alpha=4, targets=["attention", "dense", "experts"])


@dataclass(frozen=True)
class Case:
    """A layout, the kind of batch, and what is trained: "weights", "replay" of given routes, "drafts" or "lora"."""

    layout: dict[str, int]
    batch: str
    trained: str
    compute: Compute = "fp32"

    @property
    def label(self) -> str:
        return f"{self.layout}, {self.batch}, {self.trained}, {self.compute}"


def model_of(name: str, drafts: bool = False, **sizes: int) -> CausalLM:
    model = new_model(ModelSettings.model_validate(SIZES | MODELS[name] | sizes), VOCABULARY)
    return with_drafts(model, 1, 0) if drafts else model


def batch_of(kind: str) -> TrainBatch:
    """Rows of unlike lengths and weights, so that a mean over ranks would show."""
    draw = np.random.default_rng(1)
    rows = [draw.integers(0, VOCABULARY, length) for length in LENGTHS]
    if kind == "packed":
        lengths = (LENGTHS, LENGTHS[::-1])
        documents = [np.repeat(np.arange(len(order)), order) for order in lengths]
        return packed_batch([np.concatenate(rows), np.concatenate(rows[::-1])], documents)
    if kind == "tree":
        rows = [np.concatenate((rows[0][: 10 + 3 * number], row)) for number, row in enumerate(rows)]
    weights = [draw.random(len(row)).astype(np.float32) * (number + 1) for number, row in enumerate(rows)]
    for row in weights:
        row[0] = 0.0
    return (shared_batch if kind == "tree" else padded_batch)(rows, weights)


@dataclass(frozen=True)
class Computed:
    """The loss of a part of a batch, and the routes (n, L, K) of its real tokens, which are `numbers` (n,) in the batch."""

    loss: Tensor
    numbers: Tensor | None
    routes: Tensor | None


def prepared(name: str, trained: str) -> CausalLM:
    """The model of a case in one process."""
    model = model_of(name, drafts=trained == "drafts")
    if trained == "lora":
        add_adapters(model, LORA_EXPERTS if model.config.experts else LORA)
        generator = torch.Generator().manual_seed(2)
        for tensor in trained_state(model).values():
            tensor.data.normal_(0, 0.1, generator=generator)  # B begins as zero, and then A has no gradient
    return model


def numbered(batch: TrainBatch, shared: SharedTraining) -> Tensor | None:
    """(B, n) the places in the batch of the tokens of this rank's part; None for nodes of a tree whose rows are dealt, which are numbered again."""
    if batch.tree is not None and shared.ranks > shared.context.ranks:
        return None
    places = torch.arange(batch.ids.numel()).view(batch.ids.shape)
    return share_of(replace(batch, ids=places), shared).ids


def replayed(model: CausalLM, tokens: int) -> Tensor:
    """(tokens, L, K) routes that a router would not choose, drawn for each token of a batch."""
    draw = torch.rand(tokens, len(model.moe_index), model.config.experts, generator=torch.Generator().manual_seed(3))
    return draw.argsort(-1)[..., : model.config.experts_per_token]


def computed(model: CausalLM, case: Case, shared: SharedTraining) -> Computed:
    """This rank's part: forward and backward."""
    batch = batch_of(case.batch)
    part, numbers = share_of(batch, shared), numbered(batch, shared)
    if case.trained == "drafts":
        learner = DraftLearner(model, 0.0)
        learner.share(shared)
        loss = learner.loss(part)
        loss.backward()
        return Computed(loss.detach(), None, None)
    forced = None
    if case.trained == "replay":
        assert numbers is not None
        forced = replayed(model, batch.ids.numel())[numbers.flatten()].unflatten(0, numbers.shape)
    nowhere, routed = torch.zeros_like(part.real), bool(model.routers())
    out = model(part.ids, part.mask(), forced_experts=forced, return_routes=routed, logits_at=nowhere)
    loss = weighted_cross_entropy(*part.predictions(out.hidden), model.head, part.whole_weight)
    loss.backward()
    if out.routes is None or numbers is None:
        return Computed(loss.detach(), None, None)
    return Computed(loss.detach(), numbers[part.real], out.routes[part.real])


@cache
def of_one_process(name: str, batch: str, trained: str, compute: Compute) -> tuple[Computed, dict[str, Tensor | None]]:
    model = prepared(name, trained)
    with computing(model, compute, recompute=False):
        found = computed(model, Case({}, batch, trained), ALONE)
    return found, {key: parameter.grad for key, parameter in model.named_parameters()}


def ranks_agree(name: str, cases: list[Case]) -> dict[str, dict[str, float]]:
    """In each rank, by case: the largest differences from one process."""
    return {case.label: _difference(name, case) for case in cases}


def _difference(name: str, case: Case) -> dict[str, float]:
    import torch.distributed as dist

    from etude.learn.parallel.shard import Meshes, gradient_norm, shard_model, whole
    from etude.learn.parallel.split_model import SplitModel

    reference, expected = of_one_process(name, case.batch, case.trained, case.compute)
    model, layout = prepared(name, case.trained), ParallelLayout.model_validate(case.layout)
    meshes = Meshes(layout)
    shard_model(model, meshes, case.compute)
    with computing(model, case.compute, recompute=False):
        mine = computed(model, case, SplitModel(model, meshes))
    summed = mine.loss.clone()
    dist.all_reduce(summed)
    norm = float(gradient_norm(model, meshes, model.parameters()))
    found = {"loss": abs(float(summed / reference.loss) - 1), "routes": 0.0}
    if mine.routes is not None and mine.numbers is not None and reference.routes is not None:
        assert reference.numbers is not None
        at = torch.zeros(int(reference.numbers.max()) + 1, dtype=torch.int64)
        at[reference.numbers] = torch.arange(len(reference.numbers))
        found["routes"] = float((mine.routes != reference.routes[at[mine.numbers]]).sum())
    exact = float(torch.stack([g.square().sum() for g in expected.values() if g is not None]).sum().sqrt())
    found["norm"] = abs(norm - exact) / exact
    worst = 0.0
    for key, parameter in model.named_parameters():
        wanted = expected[key.replace("experts.local.", "experts.")]
        assert (wanted is None) == (parameter.grad is None), key
        if wanted is None or parameter.grad is None:
            continue
        if "experts.local." in key:
            each = wanted.shape[0] // layout.experts
            wanted = wanted[meshes.expert_rank * each : (meshes.expert_rank + 1) * each]
        worst = max(worst, float((whole(parameter.grad) - wanted).abs().max() / wanted.abs().max().clamp(min=1e-3)))
    return found | {"gradient": worst}

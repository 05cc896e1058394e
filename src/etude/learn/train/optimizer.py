"""Muon for weight matrices and stacks of them, AdamW for the rest.

Muon (Jordan et al. 2024): momentum, then the update is made orthogonal by five Newton-Schulz steps, so that all directions
of a matrix learn at one speed. Different from `torch.optim.Muon`: expert stacks (E, out, in) are many matrices, all
matrices of one shape run as one batch, and on a CPU everything stays fp32 (bf16 is 3x slower there).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from etude.learn.model.adapters import is_adapter_tensor
from etude.learn.train.settings import OptimizerSettings

# Coefficients of the quintic iteration from the Muon reference: steep at 0, singular values end in about [0.7, 1.2].
NS_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
NS_STEPS = 5
REMEDY = "put optimizer.matrices and optimizer.low_rank back as they were, or remove the state to begin again"
# What the recipe sets of a parameter group and no step moves; the learning rate follows its schedule.
SETTINGS = ("betas", "momentum", "weight_decay", "eps")

# Parameters that Muon must not touch even though they are matrices: their rows are looked up or compared, not composed.
LOOKUP_NAMES = ("embed", "head.weight", "router", "shared_gate", "_bias")  # biases of experts are (E, width)
# Draft layers have optimizers and a clip of their own: what they learn must not show in the trunk, not by a last bit.
DRAFTS = "mtp."
# The low-rank factors of MLA (`attention.kv_a` ...).
LOW_RANK_NAMES = ("q_a", "q_b", "kv_a", "kv_b")


class OtherOptimizers(ValueError):
    """A saved state belongs to other optimizers."""


def orthogonalize(update: Tensor) -> Tensor:
    """Newton-Schulz: each (m, n) matrix of a batch (B, m, n) becomes about U V^T of its singular value decomposition."""
    a, b, c = NS_COEFFICIENTS
    tall = update.size(-2) > update.size(-1)
    x = update.mT if tall else update
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)  # singular values at most 1, as the iteration needs
    for _ in range(NS_STEPS):
        gram = x @ x.mT  # (B, m, m), m <= n
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Muon over 2-D matrices (out, in) and 3-D stacks (E, out, in); one batch a shape."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() not in (2, 3):
                    raise ValueError(f"Muon takes matrices and stacks of matrices, not shape {tuple(p.shape)}")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of all parameters that have a gradient."""
        assert closure is None, "Muon evaluates no closure"
        for group in self.param_groups:
            by_shape: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:  # a split model's experts may lie on other ranks than its dense layers
                    by_shape[*p.shape[-2:], getattr(p, "device_mesh", None)].append(p)
            for params in by_shape.values():
                self._step_shape(params, group["lr"], group["momentum"], group["weight_decay"])

    def _step_shape(self, params: list[Tensor], lr: float, momentum: float, weight_decay: float) -> None:
        directions: list[Tensor] = []
        for p in params:
            state = self.state[p]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(p)
            assert p.grad is not None
            state["momentum"].lerp_(p.grad, 1 - momentum)
            nesterov = torch.lerp(p.grad, state["momentum"], momentum)
            directions.append(nesterov.reshape(-1, *p.shape[-2:]))
        updates = orthogonalize(torch.cat(directions))  # (all matrices of this shape, out, in)
        # sqrt(out/in) for tall matrices keeps the change of the layer's output as large as for square ones.
        scale = max(1.0, params[0].size(-2) / params[0].size(-1)) ** 0.5
        for p, update in zip(params, updates.split([d.size(0) for d in directions]), strict=True):
            if weight_decay:
                p.mul_(1 - lr * weight_decay)
            p.add_(update.view_as(p), alpha=-lr * scale)


class Optimizers:
    """The optimizers of one model behind one face. `set_factor` scales every peak learning rate.

    `clipped` are sets of parameters whose gradients are clipped each by its own norm; by default all are one set.
    """

    def __init__(
        self, parts: list[torch.optim.Optimizer], clip_norm: float, clipped: list[list[Tensor]] | None = None
    ) -> None:
        self.parts = parts
        self.clip_norm = clip_norm
        self.clipped = [self.params] if clipped is None else clipped
        self._peaks = [[group["lr"] for group in part.param_groups] for part in parts]

    @property
    def params(self) -> list[Tensor]:
        return [p for part in self.parts for group in part.param_groups for p in group["params"]]

    def set_factor(self, factor: float) -> None:
        for part, peaks in zip(self.parts, self._peaks, strict=True):
            for group, peak in zip(part.param_groups, peaks, strict=True):
                group["lr"] = peak * factor

    def clip(self, norm_of: Callable[[list[Tensor]], Tensor | None] = lambda parameters: None) -> float:
        """Clips the gradient of each set to `clip_norm`; returns the norm that the first one had (nan or inf if any is not finite). `norm_of`: the
        norm of a set's gradients where a process holds parts of them."""
        norms = [self._clip_set(parameters, norm_of(parameters)) for parameters in self.clipped]
        return next((norm for norm in norms if not math.isfinite(norm)), norms[0])

    def _clip_set(self, parameters: list[Tensor], norm: Tensor | None) -> float:
        if norm is None:
            return float(nn.utils.clip_grad_norm_(parameters, self.clip_norm))
        nn.utils.clip_grads_with_norm_(parameters, self.clip_norm, norm, foreach=False)
        return float(norm)

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> list[str]:
        """Takes moments and momenta from `states`; settings stay those that these optimizers were made with. What differs, in words.

        Raises OtherOptimizers for a state of other optimizers, or of other parameters.
        """
        if len(states) != len(self.parts):
            raise OtherOptimizers(
                f"the state is of {len(states)} optimizers, and there are {len(self.parts)}: {REMEDY}"
            )
        changed: dict[str, None] = {}  # in order, each once
        for part, state in zip(self.parts, states, strict=True):
            own = [{key: group[key] for key in SETTINGS if key in group} for group in part.param_groups]
            try:
                part.load_state_dict(state)
            except (ValueError, KeyError) as error:
                raise OtherOptimizers(f"the state does not fit the optimizer ({error}): {REMEDY}") from error
            for group, settings in zip(part.param_groups, own, strict=True):
                names = [key for key, value in settings.items() if _plain(group.get(key)) != _plain(value)]
                changed |= {f"{key} was {group.get(key)}, is {settings[key]}": None for key in names}
                group.update(settings)
        return list(changed)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def build_optimizers(model: nn.Module, settings: OptimizerSettings) -> Optimizers:
    """Every trainable parameter goes to exactly one optimizer; those of the trunk and of draft layers never to the same."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    trunk = [(name, p) for name, p in named if not name.startswith(DRAFTS)]
    drafts = [(name, p) for name, p in named if name.startswith(DRAFTS)]
    sets = [chosen for chosen in (trunk, drafts) if chosen]
    parts = [part for chosen in sets for part in _parts(chosen, settings)]
    return Optimizers(parts, settings.clip_norm, [[p for _, p in chosen] for chosen in sets])


def _parts(named: Sequence[tuple[str, Tensor]], settings: OptimizerSettings) -> list[torch.optim.Optimizer]:
    matrices: list[Tensor] = []
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for name, p in named:
        if p.dim() < 2 or any(word in name for word in LOOKUP_NAMES):
            plain.append(p)
        elif is_adapter_tensor(name):  # Muon's orthogonal step has no meaning for one factor of a product
            decayed.append(p)
        elif settings.matrices == "adamw" or (settings.low_rank == "adamw" and any(w in name for w in LOW_RANK_NAMES)):
            decayed.append(p)
        else:
            matrices.append(p)
    parts: list[torch.optim.Optimizer] = []
    if matrices:
        parts.append(Muon(matrices, settings.muon_lr, settings.muon_momentum, settings.weight_decay))
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    if groups:
        # fused: 4-5x faster than foreach on a CPU.
        parts.append(torch.optim.AdamW(groups, lr=settings.adam_lr, betas=settings.adam_betas, fused=True))
    return parts

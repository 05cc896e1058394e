"""Low-rank adapters (LoRA, arXiv 2106.09685; DoRA, arXiv 2402.09353) on the linear layers and the stacked experts of a model.

The weights of the model are frozen and never written: a change of a weight is scale * B A, and merging computes new tensors. So switching
adapters off gives the base model bit for bit. The token embedding, the head, norms and routers have no adapters.

A fused matrix (gate and up) has one pair A, B for each matrix that the checkpoint's family stores, as PEFT has. In a model of transformers the linear
layers of its blocks have adapters, and its experts none (`TransformersLM.linear_layers`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import product_layers
from etude.learn.model.experts import Experts, ExpertWeights
from etude.learn.model.hf_keys import place_of
from etude.learn.model.linear import Linear, linear
from etude.learn.model.lora_settings import ALL_LINEAR, ATTENTION, DENSE, EXPERTS, LoraSettings
from etude.learn.model.transformers_backend.language_model import INNER, TransformersLM
from etude.learn.weights.state import state_digest

LORA = "lora_"  # what the names of an adapter's parameters begin with
DRAFT_LAYERS = "mtp."
NEVER = ("router", "shared_gate")
EXPERT_WEIGHTS = ("gate_up", "down")


class LoraLinear(Linear):
    """A frozen weight (out, in) with adapters over `blocks` equal parts of its rows: A (blocks, rank, in), B (blocks, out / blocks, rank)."""

    lora_magnitude: Tensor | None

    def __init__(
        self, base: Linear | nn.Linear, blocks: int, settings: LoraSettings, generator: torch.Generator
    ) -> None:
        nn.Module.__init__(self)
        self.weight = base.weight
        self.register_parameter("bias", base._parameters["bias"])
        outputs, inputs = base.weight.shape
        self.scale, self.active, self.compute = settings.scale, True, getattr(base, "compute", None)
        dtype = _trained_type(base.weight, settings)
        self.lora_a = nn.Parameter(base.weight.new_empty(blocks, settings.rank, inputs, dtype=dtype))
        self.lora_b = nn.Parameter(base.weight.new_zeros(blocks, outputs // blocks, settings.rank, dtype=dtype))
        _draw(self.lora_a, generator)
        magnitude = nn.Parameter(base.weight.detach().to(dtype).norm(dim=1)) if settings.dora else None
        self.register_parameter("lora_magnitude", magnitude)

    def delta(self) -> Tensor:
        """The change of the weight (out, in) before DoRA's scaling of rows."""
        return (self.lora_b @ self.lora_a).flatten(0, 1) * self.scale

    def effective_weight(self) -> Tensor:
        """The weight with its change, in the type of the adapters."""
        if not self.active:
            return self.weight
        whole = self.weight + self.delta()
        return whole if self.lora_magnitude is None else whole * self._row_factors(whole).unsqueeze(1)

    def _row_factors(self, whole: Tensor) -> Tensor:
        """(out,) magnitude by norm. The norm has no gradient (DoRA, section 4.3)."""
        assert self.lora_magnitude is not None
        return self.lora_magnitude / whole.detach().norm(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.active:
            return super().forward(x)
        x = self._cast(x)
        flat = x if x.ndim == 2 else x.flatten(0, -2)
        inner = linear(flat, self._cast(self.lora_a.flatten(0, 1))) * self.scale  # (N, blocks * rank)
        y = torch.addmm(linear(flat, self._cast(self.weight)), inner, self._cast(self._upward()).t())
        if self.lora_magnitude is not None:
            y = y * self._row_factors((self.weight + self.delta()).detach()).to(y.dtype)
        y = y if x.ndim == 2 else y.unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias.to(y.dtype)

    @property
    def product_weight(self) -> Tensor:
        return self._cast(self.effective_weight())

    def _cast(self, tensor: Tensor) -> Tensor:
        """In the type of the product."""
        return tensor.to(self.compute or self.lora_a.dtype)

    def _upward(self) -> Tensor:
        """(out, blocks * rank): B, each block in its own rows and columns."""
        return self.lora_b[0] if len(self.lora_b) == 1 else torch.block_diag(*self.lora_b)


class LoraExperts(Experts):
    """Frozen stacks of experts with an A (E, rank, in) and a B (E, out, rank) for each stack. The changed stacks are computed in every forward."""

    def __init__(self, base: Experts, settings: LoraSettings, generator: torch.Generator) -> None:
        nn.Module.__init__(self)
        self.activation, self.scale, self.active = base.activation, settings.scale, True
        self.compute = base.compute
        for name in (*EXPERT_WEIGHTS, "gate_up_bias", "down_bias"):
            self.register_parameter(name, getattr(base, name))
        for name in EXPERT_WEIGHTS:
            stack: Tensor = getattr(base, name)
            count, outputs, inputs = stack.shape
            dtype = _trained_type(stack, settings)
            a = nn.Parameter(stack.new_empty(count, settings.rank, inputs, dtype=dtype))
            b = nn.Parameter(stack.new_zeros(count, outputs, settings.rank, dtype=dtype))
            _draw(a, generator)
            self.register_parameter(f"lora_{name}_a", a)
            self.register_parameter(f"lora_{name}_b", b)

    def effective_weight(self, name: str) -> Tensor:
        """The stack `gate_up` or `down` with its change."""
        stack: Tensor = getattr(self, name)
        a, b = getattr(self, f"lora_{name}_a"), getattr(self, f"lora_{name}_b")
        return stack + (b @ a) * self.scale if self.active else stack

    @property
    def weights(self) -> ExpertWeights:
        stacks = [self.effective_weight(name) for name in EXPERT_WEIGHTS]
        return ExpertWeights(stacks[0], stacks[1], self.activation, self.gate_up_bias, self.down_bias)


Adapted = LoraLinear | LoraExperts


def _trained_type(weight: Tensor, settings: LoraSettings) -> torch.dtype:
    """Of adapters: the type of the model's weights before any were rounded."""
    return torch.float32 if settings.base == "bf16" else weight.dtype


def _draw(a: Tensor, generator: torch.Generator) -> None:
    """Kaiming-uniform with a = sqrt(5) for each matrix, as PEFT draws it; the same numbers on every device."""
    bound = math.sqrt(1 / a.shape[-1])
    with torch.no_grad():
        a.copy_(torch.empty(a.shape).uniform_(-bound, bound, generator=generator))


def target_names(model: CausalLM, settings: LoraSettings) -> list[str]:
    """The names of the modules that get adapters. Raises ValueError for a target that the model does not have."""
    candidates = {name: _labels(name, model) for name, _ in adaptable(model)}
    wanted = {ATTENTION, DENSE} if settings.targets == ALL_LINEAR else set(settings.targets)
    if EXPERTS in wanted and isinstance(model, TransformersLM):
        raise ValueError(
            f"lora.targets names {EXPERTS}, which have no adapters in {model.config.family} of transformers; leave it out"
        )
    known = {ATTENTION, DENSE, EXPERTS} | {label for labels in candidates.values() for label in labels}
    if settings.targets != ALL_LINEAR and (unknown := sorted(wanted - known)):
        raise ValueError(f"lora.targets names {unknown[0]!r}, and this model has only {', '.join(sorted(known))}")
    chosen: list[str] = []
    for name, labels in candidates.items():
        group, *modules = labels
        partly = wanted & set(modules)
        if group not in wanted and partly and partly != set(modules):
            raise ValueError(
                f"{' and '.join(modules)} are one matrix in this model: lora.targets has to name all of them or none"
            )
        if group in wanted or partly:
            chosen.append(name)
    if not chosen:
        raise ValueError(
            f"lora.targets = {settings.targets} names no layer of this model; it has {', '.join(sorted(known))}"
        )
    return chosen


def adaptable(model: CausalLM) -> Iterator[tuple[str, Linear | Experts | nn.Linear]]:
    """Every module that may have adapters, by its name."""
    if isinstance(model, TransformersLM):
        yield from model.linear_layers()
        return
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if isinstance(module, Experts) and place_of(f"{name}.gate_up", model.config)[1].per_expert:
            yield name, module
        elif isinstance(module, Linear) and not any(part in name for part in NEVER):
            yield name, module


def hf_modules(name: str, model: CausalLM) -> list[str]:
    """The modules of the checkpoint's family that a linear layer of ours holds, one a block of its rows."""
    if isinstance(model, TransformersLM):
        return [name.removeprefix(INNER)]
    prefix, place = place_of(f"{name}.weight", model.config)
    return [(prefix + key).removesuffix(".weight") for key in place.keys]


def _labels(name: str, model: CausalLM) -> list[str]:
    """The group of a module first, then the last names of its modules in the checkpoint's family."""
    if name.endswith(".experts"):
        return [EXPERTS]
    modules = [module.rpartition(".")[2] for module in hf_modules(name, model)]
    attention = any(part.endswith(("attn", "attention")) for part in name.split(".")[:-1])  # linear attention too
    return [ATTENTION if attention else DENSE, *modules]


def add_adapters(model: CausalLM, settings: LoraSettings, names: list[str] | None = None) -> None:
    """Freeze the trunk and give adapters to the targets of `settings`, or to the modules of these `names`.

    Draft layers stay trainable. Raises ValueError for a model that has adapters, or a target that it does not have.
    """
    if has_adapters(model):
        raise ValueError("the model has adapters already; merge them first")
    chosen = target_names(model, settings) if names is None else names
    generator = torch.Generator().manual_seed(settings.seed)
    for name, parameter in model.named_parameters():
        if not name.startswith(DRAFT_LAYERS):
            parameter.requires_grad_(False)
    if settings.base == "bf16":
        _round_base(model)
    for name in chosen:
        base = model.get_submodule(name)
        if isinstance(base, Experts):
            _replace(model, name, LoraExperts(base, settings, generator))
        elif isinstance(base, Linear | nn.Linear):
            _replace(model, name, LoraLinear(base, len(hf_modules(name, model)), settings, generator))
        else:
            raise TypeError(f"{name} is a {type(base).__name__}, and adapters exist for Linear and Experts alone")
    if isinstance(model, TransformersLM):
        model.require_called(chosen)


def _round_base(model: CausalLM) -> None:
    """Holds the frozen weights of products in bf16. The digest of the base stays that of the weights that were loaded."""
    model.base_digest = base_digest(model)
    for module in product_layers(model):
        for parameter in module.parameters(recurse=False):
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(torch.bfloat16)


def base_digest(model: CausalLM) -> str:
    """A digest of the trunk's weights without adapters, as fp32 and as they were loaded."""
    if model.base_digest:
        return model.base_digest
    state = model.state_dict()
    trunk = {
        name: t.float()
        for name, t in state.items()
        if not name.startswith(DRAFT_LAYERS) and not is_adapter_tensor(name)
    }
    return state_digest(trunk)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def adapted_modules(model: nn.Module) -> dict[str, Adapted]:
    """By name the modules that have adapters."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLinear | LoraExperts)}


def has_adapters(model: nn.Module) -> bool:
    """Whether any module has adapters."""
    return any(isinstance(module, LoraLinear | LoraExperts) for module in model.modules())


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[None]:
    """Inside, the model is its base, bit for bit: the reference model of RL without a second copy."""
    modules = adapted_modules(model).values()
    for module in modules:
        module.active = False
    try:
        yield
    finally:
        for module in modules:
            module.active = True


@torch.no_grad()
def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict of the plain model that computes the same: changed weights and those that were rounded are new tensors, all others are the
    model's own."""
    state = {name: tensor for name, tensor in model.state_dict().items() if not is_adapter_tensor(name)}
    if isinstance(model, CausalLM) and model.base_digest:
        state = {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in state.items()}
    for name, module in adapted_modules(model).items():
        if isinstance(module, LoraLinear):
            state[f"{name}.weight"] = module.effective_weight().detach()
        else:
            state |= {f"{name}.{stack}": module.effective_weight(stack).detach() for stack in EXPERT_WEIGHTS}
    return state


def trained_state(model: nn.Module) -> dict[str, Tensor]:
    """What training changes: the whole state dict of a plain model; adapters, draft layers and buffers of one that has adapters."""
    if not has_adapters(model):
        return model.state_dict()
    named = model.named_parameters(remove_duplicate=False)  # a tied head has two names in a class of transformers
    frozen = {name for name, parameter in named if not parameter.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in frozen}


def load_trained_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Fill `model` with what `trained_state` gave. Raises ValueError where the state has other tensors than the model trains."""
    expected = trained_state(model).keys()
    if has_adapters(model) and expected != state.keys():
        odd = sorted(expected ^ state.keys())
        raise ValueError(
            f"the saved state was trained with other adapters: {odd[0]} is in one of them alone; put the table lora of the recipe back, or "
            "remove the state to begin again"
        )
    model.load_state_dict(state, strict=not has_adapters(model))


def is_adapter_tensor(name: str) -> bool:
    """Whether a name of a state dict is an adapter's."""
    return name.rpartition(".")[2].startswith(LORA)


@torch.no_grad()
def fold_adapters(model: CausalLM) -> None:
    """Turn a model with adapters into the plain model that computes the same, in place. Everything is trainable again."""
    for name, module in adapted_modules(model).items():
        if isinstance(module, LoraLinear):
            own = nn.Linear if isinstance(model, TransformersLM) else Linear
            outputs, inputs = module.weight.shape
            with torch.device("meta"):
                plain: Linear | Experts | nn.Linear = own(inputs, outputs, bias=module.bias is not None)
            weights = {"weight": module.effective_weight(), "bias": module.bias}
        else:
            plain = Experts.__new__(Experts)
            nn.Module.__init__(plain)
            plain.activation = module.activation
            weights = {stack: module.effective_weight(stack) for stack in EXPERT_WEIGHTS}
            weights |= {"gate_up_bias": module.gate_up_bias, "down_bias": module.down_bias}
        if not isinstance(plain, nn.Linear):
            plain.compute = module.compute
        for key, tensor in weights.items():
            plain.register_parameter(key, None if tensor is None else nn.Parameter(tensor.detach()))
        _replace(model, name, plain)
    model.requires_grad_(True)

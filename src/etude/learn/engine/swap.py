"""Putting a state into a live model: all of it or none.

Draft layers may be left out, where RL trains the trunk alone: they then go on guessing as they did for the weights before, which costs
acceptance and changes no token. An engine without any takes the trunk of a state that has some.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from etude.learn.formats.mxfp8 import round_to_mxfp8
from etude.learn.formats.nvfp4 import round_to_nvfp4
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.experts import Experts
from etude.learn.model.linear import Linear
from etude.learn.model.transformers_backend.config import refuse
from etude.learn.weights.state import State, require_finite

SELECTION_BIAS = "router.bias"  # stays in fp32 in every engine: it ranks experts by differences of thousandths
DRAFTS = "mtp."  # the draft layers' names in a model's state


def load_checked(model: CausalLM, state: State) -> None:
    """Copies `state` into the model's tensors, bit for bit or rounded to the bf16 that the model holds. Raises ValueError, before any is
    written, if one doesn't fit or is not finite.
    """
    own = model.state_dict()
    if not any(name.startswith(DRAFTS) for name in state):
        own = {name: tensor for name, tensor in own.items() if not name.startswith(DRAFTS)}
    elif not model.config.mtp_layers:
        state = {name: tensor for name, tensor in state.items() if not name.startswith(DRAFTS)}
    odd = sorted(own.keys() ^ state.keys())
    if odd:
        side = f"lack {odd[0]}" if odd[0] in own else f"carry {odd[0]}, which the model has not"
        raise ValueError(f"the new weights {side} ({len(odd)} such): they belong to another model")
    for name, tensor in own.items():
        if tensor.shape != state[name].shape or not _takes(model, tensor, state[name]):
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} {tensor.dtype} in the model and {tuple(state[name].shape)} "
                f"{state[name].dtype} in the new weights: they belong to another model"
            )
    require_finite({name: state[name] for name in own}, "the new weights")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def _takes(model: CausalLM, own: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether the types agree, or the model holds bf16 of what comes in fp32."""
    if model.holds_rounded and own.dtype == torch.bfloat16:
        return new.dtype in (torch.bfloat16, torch.float32)
    return own.dtype == new.dtype


def block_scaled(model: CausalLM) -> list[nn.Parameter]:
    """The matrices that an engine of MXFP8 or NVFP4 holds in it, contracted along their last dimension: linear layers and experts. Norms, router,
    embedding and head stay as they are: the recipe's kernels are of the experts and linear layers, and the rest is small or sensitive
    (NVFP4 advice keeps the head too)."""
    found: list[nn.Parameter] = []
    for module in model.modules():
        if isinstance(module, Linear) and module is not model.head:
            found.append(module.weight)
        elif isinstance(module, Experts):
            found += [module.gate_up, module.down]
    return found


BLOCK_FORMATS: dict[str, Callable[[Tensor], Tensor]] = {
    "mxfp8": round_to_mxfp8,
    "nvfp4": partial(round_to_nvfp4, second="tensor"),
}


def round_weights(model: CausalLM, to: Literal["bfloat16", "mxfp8", "nvfp4"]) -> None:
    """To the nearest that the format can hold, in the format they are kept in: every weight but the selection bias, or those of
    `block_scaled`."""
    with torch.no_grad():
        if (rounded := BLOCK_FORMATS.get(to)) is not None:
            refuse(model.config, f'engine.weights = "{to}"')
            for weight in block_scaled(model):
                weight.copy_(rounded(weight))
            return
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and not name.endswith(SELECTION_BIAS):
                tensor.copy_(tensor.bfloat16())

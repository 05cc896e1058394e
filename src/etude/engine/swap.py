"""Putting a state into a live model: all of it or none.

Draft layers may be left out, where RL trains the trunk alone: they then go on guessing as they did for the weights before, which costs
acceptance and changes no token. An engine without any takes the trunk of a state that has some.
"""

from __future__ import annotations

import torch

from etude.model.causal_lm import CausalLM
from etude.weights.digest import State

DRAFTS = "mtp."  # the draft layers' names in a model's state


def load_checked(model: CausalLM, state: State) -> None:
    """Copies `state` into the model's tensors, bit for bit. Raises ValueError, before any is written, if one doesn't fit."""
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
        if tensor.shape != state[name].shape or tensor.dtype != state[name].dtype:
            raise ValueError(
                f"{name} is {tuple(tensor.shape)} {tensor.dtype} in the model and {tuple(state[name].shape)} "
                f"{state[name].dtype} in the new weights: they belong to another model"
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def round_weights(model: CausalLM) -> None:
    """Every weight to the nearest that bfloat16 can hold, in the format it is kept in."""
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(tensor.bfloat16())

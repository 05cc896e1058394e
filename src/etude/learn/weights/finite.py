"""Weights that an engine takes are finite numbers: a NaN would spread to every token that is computed after it."""

from __future__ import annotations

from etude.learn.weights.digest import State


class NotFinite(ValueError):
    """Weights hold NaN or infinity; the message names the tensor."""


def require_finite(state: State, whose: str) -> None:
    """Raises NotFinite, naming the first tensor of `state` that is not finite, and how many there are."""
    odd = [
        name
        for name, tensor in state.items()
        if tensor.is_floating_point() and tensor.numel() and not all(bound.isfinite() for bound in tensor.aminmax())
    ]
    if odd:
        more = f" and {len(odd) - 1} more tensors" if len(odd) > 1 else ""
        raise NotFinite(
            f"{whose}: {odd[0]}{more} hold NaN or infinity; they are not loaded, and the former weights stay in use"
        )

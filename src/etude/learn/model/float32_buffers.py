"""Buffers that stay in fp32 whatever type a model is converted to.

The rope table and the router's selection bias lose what they are for in bf16: positions beyond 256 have the same angle as their neighbours,
and biases that differ by thousandths become equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Float32Buffers(nn.Module):
    """Its own buffers follow `.to(device)`, and keep their type and bits under `.to(dtype)`, `.half()` and the like."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        super()._apply(fn, recurse)
        for name, buffer in before.items():
            converted = self._buffers[name]
            if converted is not None and converted.dtype != buffer.dtype:
                self._buffers[name] = buffer.to(converted.device)
        return self

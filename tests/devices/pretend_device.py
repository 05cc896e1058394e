"""A device that is not the CPU, for machines without one: tensors on it are CPU tensors in a wrapper that says `pretend:0`.

Whatever meets a tensor of the CPU there raises, as on a GPU: an operation over both, or an array made of it. Only copies cross. So code
that runs on it leaves nothing behind on the CPU; how fast a real device is, and what its kernels round, it can't tell. It is for the
life of the process, so tests run it in one of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

NAME = "pretend"
ATEN = torch.ops.aten
# Lazy views are a mark on the tensor, which a wrapper does not hand down: done at once instead.
AT_ONCE = {ATEN._conj.default: ATEN._conj_physical.default, ATEN._neg_view.default: ATEN.neg.default}


class There(Tensor):
    """`held` is where its numbers are."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> There:
        with torch.inference_mode(False):  # what is made for it inside can't be looked at in parts
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                held.shape,
                strides=held.stride(),
                storage_offset=held.storage_offset(),
                dtype=held.dtype,
                device=torch.device(NAME, 0),
            )
        made.held = held
        return made

    def tolist(self) -> Any:  # a copy to the host, which wrappers are not given
        return self.held.tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:  # as a file is read that any device wrote
        return self.held.__reduce_ex__(protocol)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"There({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class Pretend(TorchDispatchMode):
    """Within the block `torch.device("pretend")` is there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def begin() -> None:
    """Once in the life of a process."""
    # Not in every PyTorch that computes on CUDA.
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME)


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    func = AT_ONCE.get(func, func)
    if func is ATEN._to_copy.default:
        return _moved(func, args[0], kwargs)
    if func is ATEN.copy_.default:
        _held(args[0]).copy_(_held(args[1]))
        return args[0]
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    there = [x for x in tensors if isinstance(x, There)]
    if there and any(x.dim() > 0 for x in tensors if not isinstance(x, There)):
        raise RuntimeError(f"{func} over tensors on {NAME} and on the CPU")
    wanted = kwargs.get("device")
    if wanted is not None:
        kwargs = kwargs | {"device": "cpu"}
    lands = bool(there) if wanted is None else torch.device(wanted).type == NAME
    args, kwargs = tree_map(_held, (args, kwargs))
    known = {id(x.held): x for x in there}  # what an operation in place gives back
    found = func(*args, **kwargs)
    return tree_map(lambda x: _wrapped(x, known), found) if lands else found


def _wrapped(x: Any, known: dict[int, There]) -> Any:
    if not isinstance(x, Tensor):
        return x
    return known[id(x)] if id(x) in known else There(x)


def _moved(func: Any, source: Tensor, kwargs: dict[str, Any]) -> Tensor:
    wanted = kwargs.get("device")
    target = source.device if wanted is None else torch.device(wanted)
    rest = {name: value for name, value in kwargs.items() if name not in ("device", "non_blocking", "pin_memory")}
    copy = func(_held(source), device="cpu", **rest)
    return There(copy) if target.type == NAME else copy


def _held(x: Any) -> Any:
    return x.held if isinstance(x, There) else x

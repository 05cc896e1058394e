"""Where a rank computes and by what its tensors travel: gloo between CPUs, NCCL between GPUs. Small exchanges go over gloo in either case."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from etude.learn.model.device import DeviceMissing, compute_reproducibly, device_of
from etude.learn.parallel.shard import DIST

BACK_ENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def require_device(device: str, here: int, key: str) -> None:
    """Raises DeviceMissing where this machine can't give each of its `here` ranks a device; `key`: the setting that asks for it."""
    device_of(device, key)
    if device == "cuda" and (count := torch.cuda.device_count()) < here:
        raise DeviceMissing(
            f'{key} = "cuda" and {here} ranks on this machine, which has {count} GPUs: a rank needs one; take fewer ranks, or start them with '
            "torchrun on several machines"
        )


def join_group(device: str, here: int, store: Any, rank: int, size: int, timeout: timedelta) -> None:
    """Makes this process rank `rank` of the default group, the `here`th on this machine. On GPUs it computes on the one of that number."""
    if device == "cuda":
        compute_reproducibly(torch.device(device))
        torch.cuda.set_device(here)
    DIST.init_process_group(BACK_ENDS[device], store=store, rank=rank, world_size=size, timeout=timeout)

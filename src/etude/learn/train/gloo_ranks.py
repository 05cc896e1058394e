"""Ranks that are processes, over gloo: any death or silence among them ends the meeting of all within a bounded time.

GlooRanks touches no state of the process (no default group), so its ranks may be threads too. What is exchanged is read without running code
from it. Sockets are bound to the address that the caller names, loopback on a laptop; gloo has no authentication, so on a cluster
that address belongs to a network that only the run can reach.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from etude.learn.parallel.launched import RankLost, interface_of, reason_of
from etude.learn.parallel.rank_device import join_group

DIST: Any = torch.distributed  # its stubs lack most of what is used here
GLOO = DIST.ProcessGroupGloo
# Elements summed at a time: 64 MiB of fp32, as much again for what comes in, in addition to the gradients.
BUCKET_ELEMENTS = 1 << 24


class Rendezvous:
    """Where the ranks of one incarnation find each other; the process that starts them holds it for as long as they live."""

    def __init__(self, host: str) -> None:
        listener = socket.create_server((host, 0))
        self.address = f"{host}:{listener.getsockname()[1]}"
        port = listener.getsockname()[1]
        # The store listens everywhere unless it is given a socket, which it then owns.
        self._store = DIST.TCPStore(
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )  # fmt: skip


class GroupRanks:
    """`ranks.Ranks` over a process group whose back end is gloo."""

    def __init__(self, group: Any, rank: int, size: int, silence_s: float) -> None:
        self.rank, self.size, self.silence_s = rank, size, silence_s
        self._group = group

    def total(self, tensors: Sequence[Tensor]) -> None:
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket]).cpu()  # gloo's wire is the host's
            summed = self._summed(flat).split([tensor.numel() for tensor in bucket])
            for tensor, part in zip(bucket, summed, strict=True):
                tensor.copy_(part.view_as(tensor))

    def gather(self, value: Any) -> list[Any]:
        packed = io.BytesIO()
        torch.save(value, packed)
        mine = torch.frombuffer(packed.getbuffer(), dtype=torch.uint8)
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(self.size)]
        self._wait(self._group.allgather([sizes], [torch.tensor([len(mine)])]))
        most = int(torch.cat(sizes).max())
        found = torch.empty(self.size * most, dtype=torch.uint8)
        self._wait(self._group._allgather_base(found, torch.nn.functional.pad(mine, (0, most - len(mine)))))
        parts = [part[:size] for part, size in zip(found.split(most), sizes, strict=True)]
        return [torch.load(io.BytesIO(part.numpy().tobytes()), weights_only=True) for part in parts]

    def _summed(self, flat: Tensor) -> Tensor:
        """Each rank adds one slice of all ranks' parts, in their order, and gives it to the others: the traffic of a ring."""
        width = -(-len(flat) // self.size)
        padded = torch.nn.functional.pad(flat, (0, width * self.size - len(flat)))
        parts = torch.empty_like(padded)
        self._wait(self._group.alltoall_base(parts, padded, [], []))
        slices = parts.view(self.size, width)
        mine = slices[0].clone()
        for part in slices[1:]:
            mine += part
        self._wait(self._group._allgather_base(padded, mine))
        return padded[: len(flat)]

    def _wait(self, work: Any) -> None:
        try:
            work.wait()
        except RuntimeError as error:
            raise RankLost(
                f"rank {self.rank} of {self.size} waited for the others in vain ({reason_of(error)}): one died, or was silent for over "
                f"{self.silence_s:g} s (rl.rank_silence_s)"
            ) from error


class GlooRanks(GroupRanks):
    """Over a group that is no process' default group. Raises RankLost where not all `size` ranks come to `address` within `silence_s`."""

    def __init__(self, address: str, host: str, rank: int, size: int, silence_s: float) -> None:
        limit = timedelta(seconds=silence_s)
        options = GLOO._Options()
        options._devices = [GLOO.create_device(hostname=host)]
        options._timeout = limit
        with _meeting(address, rank, size):
            group = GLOO(_store(address, limit), rank, size, options)
        super().__init__(group, rank, size, silence_s)


def join_default_group(address: str, host: str, rank: int, size: int, silence_s: float, device: str) -> GroupRanks:
    """Over this process' default group, by which the ranks of a split model exchange its parts too: once in the life of a process. Raises RankLost
    as GlooRanks does. gloo takes the interface that has the address `host`, unless GLOO_SOCKET_IFNAME names another. On "cuda" this process sees
    one GPU."""
    limit = timedelta(seconds=silence_s)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(host))
    with _meeting(address, rank, size):
        join_group(device, 0, _store(address, limit), rank, size, limit)
    return GroupRanks(DIST.distributed_c10d._get_default_group(), rank, size, silence_s)


def _store(address: str, limit: timedelta) -> Any:
    where, port = address.rsplit(":", 1)
    store = DIST.TCPStore(where, int(port), is_master=False, wait_for_workers=False, timeout=limit)
    return DIST.PrefixStore("trainer", store)


@contextlib.contextmanager
def _meeting(address: str, rank: int, size: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RankLost(f"rank {rank} did not meet all {size} at {address}: {reason_of(error)}") from error


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Neighbours of one dtype, BUCKET_ELEMENTS at most, or one that is larger."""
    out: list[list[Tensor]] = []
    filled = 0
    for tensor in tensors:
        if not out or out[-1][0].dtype != tensor.dtype or filled + tensor.numel() > BUCKET_ELEMENTS:
            out.append([])
            filled = 0
        out[-1].append(tensor)
        filled += tensor.numel()
    return out

"""Ranks that torchrun started, on one machine or several: the first one runs the recipe, the others join each stage that trains over ranks.

All ranks are started with the same command and see the run's folder under the same path. They find each other by torchrun's own store. What a stage
is to compute lies in a file of the run's folder; its digest goes through the store. Tensors are exchanged over gloo, on GPUs over NCCL; neither has
authentication.
Torch is imported when ranks meet, for the command line reads this module too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pickle
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from etude.core.files import replace_file

SIOCGIFADDR = 0x8915  # of linux/sockios.h: an interface's address
FOREVER = timedelta(days=365)  # until a stage begins
SILENCE = timedelta(hours=1)  # until a rank that says nothing counts as lost; the first one may measure in between
GLOO = "gloo/"  # in every message of gloo's


class RankLost(Exception):
    """Another rank died, or was silent for too long: this one can't go on either. All start over from the last checkpoint."""


class NoLauncher(ValueError):
    """The environment names ranks, but not a store that torchrun holds."""


@dataclass(frozen=True)
class LaunchedWorld:
    """This process is rank `rank` of `size`; torchrun's store is at `address` (host:port). `life` counts its restarts."""

    rank: int
    size: int
    address: str
    life: str
    of_machine: int = 1  # ranks on this machine
    here: int = 0  # the number of this one among them

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> LaunchedWorld | None:
        """None where no launcher started this process as one of several. Raises NoLauncher."""
        size = int(environment.get("WORLD_SIZE", "1"))
        if size == 1:
            return None
        if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            raise NoLauncher(
                f"WORLD_SIZE is {size}, and torchrun did not start this process: start the ranks with torchrun, or unset WORLD_SIZE"
            )
        return cls(
            int(environment["RANK"]),
            size,
            f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}",
            environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
            int(environment.get("LOCAL_WORLD_SIZE", "1")),
            int(environment.get("LOCAL_RANK", "0")),
        )

    def store(self) -> Any:
        """torchrun's, for this life of the ranks."""
        from etude.learn.parallel.shard import DIST

        host, _, port = self.address.rpartition(":")
        store = DIST.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=FOREVER)
        return DIST.PrefixStore(f"etude/{self.life}", store)

    @contextlib.contextmanager
    def leading(self) -> Iterator[None]:
        """For the first rank: when the block ends no other stage begins, and the others may end."""
        try:
            yield
        finally:
            store = self.store()
            store.set(f"stage/{store.add('stages', 1)}", "")

    def join(self, store: Any, number: int, device: str) -> None:
        """All ranks form the default group of stage `number`."""
        from etude.learn.parallel.rank_device import join_group
        from etude.learn.parallel.shard import DIST

        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface_of(address_towards(self.address)))
        meeting = DIST.PrefixStore(f"group/{number}", store)
        join_group(device, self.here, meeting, self.rank, self.size, SILENCE)


@contextlib.contextmanager
def launched_ranks(
    world: LaunchedWorld, folder: Path, device: str, work: Callable[..., Any], *given: Any
) -> Iterator[None]:
    """As `other_ranks`, over ranks that are there already: this process is the first of them. `folder` is one that all of them see."""
    import torch

    from etude.learn.parallel.shard import DIST

    own_threads = torch.get_num_threads()
    store = world.store()
    number = store.add("stages", 1)
    file = folder / f"ranks-{number}.pickle"
    content = pickle.dumps((device, work, given))
    replace_file(file, content, mode=0o600)
    store.set(f"stage/{number}", json.dumps({"file": str(file), "sha256": hashlib.sha256(content).hexdigest()}))
    try:
        with as_loss(0, world.size):
            world.join(store, number, device)
            torch.set_num_threads(max(1, own_threads // world.of_machine))
            yield
    finally:
        torch.set_num_threads(own_threads)
        file.unlink(missing_ok=True)
        if DIST.is_initialized():
            DIST.destroy_process_group()


def follow(world: LaunchedWorld) -> int:
    """The life of a rank that is not the first: it trains its part of each stage, until the first one begins no more. How many there were. Raises
    RankLost, and whatever its part of a stage raises: torchrun then ends all ranks."""
    from etude.learn.parallel.shard import DIST

    store = world.store()
    for number in count(1):
        store.wait([f"stage/{number}"], FOREVER)
        said = store.get(f"stage/{number}").decode()
        if not said:
            return number - 1
        device, work, given = _read(**json.loads(said))
        with as_loss(world.rank, world.size):
            world.join(store, number, device)
            work(*given)
            DIST.destroy_process_group()
    raise AssertionError


def _read(file: str, sha256: str) -> Any:
    """What the first rank wrote. Raises ValueError for a file that it did not write."""
    content = Path(file).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{file} is not what the first rank wrote: all machines have to see the same run's folder")
    return pickle.loads(content)


@contextlib.contextmanager
def as_loss(rank: int, size: int) -> Iterator[None]:
    """An error of gloo's within the block is a RankLost."""
    try:
        yield
    except RuntimeError as error:
        if GLOO not in str(error):
            raise
        raise RankLost(f"rank {rank} of {size} lost another one: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """The first line of what gloo says, without its advice."""
    return str(error).splitlines()[0].partition(" This is typically")[0] if str(error) else type(error).__name__


def address_towards(address: str) -> str:
    """The IPv4 address of this machine from which it reaches `address` (host:port). Nothing is sent."""
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))
        return probe.getsockname()[0]


def interface_of(host: str) -> str:
    """The name of the network interface that has this IPv4 address. Raises ValueError."""
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            asked = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # an interface without an address
                found = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24]
                if socket.inet_ntoa(found) == host:
                    return name
    raise ValueError(f"no network interface has the address {host}; name one in GLOO_SOCKET_IFNAME")

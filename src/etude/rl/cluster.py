"""A Ray cluster that others run: joined for the length of the rl stage, looked over first, and left as it was found.

Actors of ours have names, in a namespace of the run folder's own: a run that starts on the same folder after a SIGKILL ends those that are
left before it begins (promise 6), and touches nothing else. Everything that would fail or hang an hour later is asked of every machine
at the start: the same code and libraries, the run's folder and checkpoint in sight, room for all that is to run.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import platform
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import etude
from etude.rl.settings import ClusterSettings

LOOK_S = 120.0  # a machine that answers nothing for so long is named; a first worker there may take a while to start
CONNECT_S = 5.0
GLANCE_S = 0.5
END_S = 60.0  # until what an earlier life left is gone
COMPARED = ("ray", "torch", "numpy")


class ClusterError(Exception):
    """The cluster can't run this; says which machine, why, and what to do."""


class MachineSilent(ClusterError):
    """A machine that is said to be there says nothing."""


@dataclass(frozen=True)
class MachineFacts:
    """What a machine says of itself."""

    python: str
    code: str  # digest of the installed etude
    versions: dict[str, str]
    missing: tuple[str, ...]  # paths that are not to be seen there
    proof: str  # what the probe file in the run's folder holds there


class Cluster:
    """A context: `with Cluster(settings, folder, [checkpoint], engines, ranks): ...`. Actors of ours may live only inside."""

    def __init__(
        self,
        settings: ClusterSettings,
        folder: Path,
        needed: Sequence[Path],
        engines: int,
        ranks: int,
        far: Sequence[Mapping[str, float]] = (),
    ) -> None:
        """`needed`: what every machine must see, in addition to the folder. `far`: the resources of each region's engines; a machine that has
        them need not see the run's folder, and may be missing."""
        self.settings, self.folder, self.needed = settings, folder, tuple(needed)
        self.far = [taken for taken in far if taken]
        self.needs = {"engine": (engines, settings.engine), "trainer": (ranks, settings.trainer)}
        self.namespace = f"etude-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"

    def __enter__(self) -> Cluster:
        import ray

        join(self.settings.address, self.namespace)
        self._head = str(ray.get_runtime_context().gcs_address)
        try:
            self._end_leftovers()
            self._look_over()
        except BaseException:
            ray.shutdown()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        import ray

        try:
            if not self.lost():  # else no server answers, and Ray ends this whole process after a minute of trying
                self._end_leftovers()
        finally:
            ray.shutdown()

    def lost(self) -> str:
        """The name of the process that is never restarted, and without which calls to actors never return: the head; empty while it lives."""
        host, _, port = self._head.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=GLANCE_S).close()
        except ConnectionRefusedError:
            return "head of the cluster"
        except OSError:  # a wire that is down for a moment is not the head's end
            return ""
        return ""

    def remember(self) -> None:
        """Nothing to write down: the cluster knows our actors by name."""

    def _end_leftovers(self) -> None:
        """Every actor in this run's namespace, and until the cluster says that they are gone."""
        import ray

        until = time.monotonic() + END_S
        while left := ray.util.list_named_actors():
            for name in left:
                try:
                    ray.kill(ray.get_actor(name))
                except ValueError:  # it ended meanwhile
                    continue
            if time.monotonic() > until:
                raise ClusterError(
                    f"{', '.join(left)}: left by an earlier life of this run, and not to be ended within {END_S:g} s; end them with "
                    f"`ray list actors` and `ray kill`, or restart the cluster, and run again"
                )
            time.sleep(0.2)

    def _look_over(self) -> None:
        import ray

        living = [node for node in ray.nodes() if node["Alive"]]
        distant = [node for node in living if any(has_all(node["Resources"], taken) for taken in self.far)]
        machines = [node for node in living if node not in distant]
        for name, (count, taken) in self.needs.items():
            require_room(name, count, taken, [node["Resources"] for node in machines])
        probe = self.folder / f".seen-{secrets.token_hex(4)}"
        probe.write_text(proof := secrets.token_hex(16))
        try:
            sights = {_name(node): _sight_of(node["NodeID"], probe, self.needed) for node in machines}
            here = sight(probe, self.needed)
            for name, answer in sights.items():
                require_alike(name, _answer(name, answer), here, proof, self.folder)
            for node in distant:
                self._look_at_region(node, probe, here)
        finally:
            probe.unlink()

    def _look_at_region(self, node: Mapping[str, Any], probe: Path, here: MachineFacts) -> None:
        """One that does not answer is as one that is not there: the run begins without it, and says so of its engines."""
        try:
            there = _answer(_name(node), _sight_of(node["NodeID"], probe, self.needed))
        except MachineSilent:
            return
        require_region_alike(_name(node), there, here, self.needed)


def join(address: str, namespace: str) -> None:
    """Raises ClusterError where none answers, or one of another version or token."""
    import ray

    require_listener(address)
    try:
        ray.init(address=address, namespace=namespace, logging_level=logging.ERROR, log_to_driver=False)
    except ConnectionError as error:
        raise ClusterError(
            f"cluster.address = {address!r}: no Ray cluster lets this run in ({error}). Is one running (docs/cluster.md), and is its token here too "
            "(RAY_AUTH_MODE=token and RAY_AUTH_TOKEN, or ~/.ray/auth_token)? Without an address the run stays on this machine"
        ) from None
    except (RuntimeError, ValueError) as error:  # another version of Ray or Python
        raise ClusterError(f"cluster.address = {address!r} can't be joined: {str(error).strip()}") from None


def require_listener(address: str) -> None:
    """Raises ClusterError where nothing listens, which Ray would try to reach for minutes. "auto" is Ray's to find."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise ClusterError(f'cluster.address = {address!r} is not HOST:PORT, nor "auto"')
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"cluster.address = {address!r}: nothing listens there ({error}). Start a cluster (docs/cluster.md), or leave the address out to "
            "run on this machine alone"
        ) from None


def require_room(name: str, count: int, taken: Mapping[str, float], machines: Sequence[Mapping[str, float]]) -> None:
    """Raises ClusterError where `count` processes that each take `taken` don't fit into the machines' resources."""
    if not taken:
        return
    room = sum(min(int(have.get(resource, 0.0) / amount) for resource, amount in taken.items()) for have in machines)
    if room < count:
        raise ClusterError(
            f"cluster.{name} = {dict(taken)}: the cluster has room for {room}, and the run wants {count}; ask for less, add machines, or "
            "start theirs with `ray start --resources`"
        )


def require_alike(name: str, there: MachineFacts, here: MachineFacts, proof: str, folder: Path) -> None:
    """Raises ClusterError where a machine differs from this one in what the run rests on."""
    if there.missing:
        raise ClusterError(
            f"{name} does not see {', '.join(there.missing)}: put the run's folder, its checkpoint (and vLLM's Python) on a file system that "
            "every machine mounts at the same path"
        )
    if there.proof != proof:
        raise ClusterError(f"{name} has another {folder} than this machine: it must be one shared folder")
    require_same_code(name, there, here)


def require_region_alike(name: str, there: MachineFacts, here: MachineFacts, needed: Sequence[Path]) -> None:
    """Raises ClusterError where a region's machine lacks what an engine there rests on; its weights come from its own store."""
    if lacking := [str(path) for path in needed if str(path) in there.missing]:
        raise ClusterError(
            f"{name} does not see {', '.join(lacking)}: copy or install there, at the same path, what the run's engines start from"
        )
    require_same_code(name, there, here)


def has_all(have: Mapping[str, float], taken: Mapping[str, float]) -> bool:
    """Whether a machine has something of each of these resources."""
    return all(have.get(resource, 0.0) >= amount for resource, amount in taken.items())


def require_same_code(name: str, there: MachineFacts, here: MachineFacts) -> None:
    """Raises ClusterError where another etude, Python or library runs there."""
    if there.python != here.python:
        raise ClusterError(f"{name} runs Python {there.python}, this machine {here.python}: install the same")
    for library, version in here.versions.items():
        if there.versions[library] != version:
            raise ClusterError(
                f"{name} has {library} {there.versions[library]}, this machine {version}: install the same"
            )
    if there.code != here.code:
        raise ClusterError(
            f"{name} has another etude than this machine ({there.code[:12]}, here {here.code[:12]}): install the same"
        )


def sight(probe: Path, needed: Sequence[Path]) -> MachineFacts:
    """What this machine says of itself."""
    missing = tuple(str(path) for path in (probe.parent, *needed) if not path.exists())
    return MachineFacts(
        python=platform.python_version(),
        code=code_digest(Path(etude.__file__).parent),
        versions={name: importlib.metadata.version(name) for name in COMPARED},
        missing=missing,
        proof=probe.read_text() if probe.exists() else "",
    )


def code_digest(package: Path) -> str:
    """SHA-256 over the names and contents of a package's modules."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _sight_of(node: str, probe: Path, needed: Sequence[Path]) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    look: Any = ray.remote(num_cpus=0, max_calls=1)(sight)  # a worker of one call: a later call imports again
    return look.options(scheduling_strategy=there).remote(probe, needed)


def _answer(name: str, answer: Any) -> MachineFacts:
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    try:
        return ray.get(answer, timeout=LOOK_S)
    except GetTimeoutError:
        raise MachineSilent(
            f"{name} has not answered for {LOOK_S:g} s: see its Ray logs, or take it out of the cluster"
        ) from None
    except RayError as error:
        last = str(error).strip().splitlines()[-1]
        raise ClusterError(f"{name} can't run etude ({last}): install etude there with the same Python") from None


def _name(node: Mapping[str, Any]) -> str:
    return f"machine {node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"

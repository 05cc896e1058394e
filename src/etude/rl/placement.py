"""Where the processes are: engine and trainer as Ray actors, seen from the controller as one `controller.LearnerClient` and a policy.

Thin on purpose: decisions are elsewhere, here is who runs where and what happens when one dies. On a cluster engines spread over the
machines and the trainer stays with the controller, unless the recipe gives resources that say otherwise. A dead trainer comes back
from the last checkpoint and trains the batches since again (to the same digests); a dead engine comes back with the newest
weights. Both a bounded number of times (`restarts.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import torch
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from etude.core import allocator
from etude.learn.engine.adapter_merger import merger_for
from etude.learn.engine.core import EngineCore
from etude.learn.engine.service import EngineService, leave_cores_to_engine
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.child import EngineGone
from etude.learn.engine.vllm.service import VllmService
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.heap import fit_heap
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.settings import Impl
from etude.learn.parallel.launched import RankLost
from etude.learn.train.gloo_ranks import Rendezvous
from etude.learn.weights.store import WeightStore
from etude.rl.devices import gpu_share, on_gpu, processes_on_gpus
from etude.rl.learner import TrainerProcess
from etude.rl.restarts import ProcessDied
from etude.rl.settings import ClusterSettings, RlSettings
from etude.rl.split_learner import SplitTrainerProcess
from etude.rl.weight_store import place_of, store_of

if TYPE_CHECKING:
    from etude.rl.cluster import Cluster
    from etude.rl.local_ray import LocalRay

# The trainer's ranks as one process: they train together, and die together.
#
# A rank that dies leaves the others waiting for it, and a batch half summed; so with the first death or silence all
# ranks end, and the trainer's next incarnation begins with all of them, from the last checkpoint (`services.py`).
# What only one may do (publish, save, export) rank 0 does.


# What all ranks have to do, at the same time. Everything else is rank 0's. With parts of the model, whatever needs its weights too.
TOGETHER = frozenset({"restore", "train"})
SPLIT_TOGETHER = TOGETHER | {"publish", "mend", "save", "export", "compare"}


class RankGroup:
    """A handle like that of one process: `await group.method(...)` raises ProcessDied when a rank is gone. `ranks`: handles, rank 0 first."""

    def __init__(self, ranks: Sequence[Any], meeting: Rendezvous, together: Collection[str] = TOGETHER) -> None:
        self._ranks = ranks
        self._meeting = meeting  # held for as long as the ranks live
        self._together = together
        self._turn = asyncio.Lock()
        self._dead = ""

    @classmethod
    def start(
        cls, size: int, start: Callable[[int, str], Any], host: str, together: Collection[str] = TOGETHER
    ) -> RankGroup:
        """`start` gives the handle of one rank, which is to meet the others at that address of this host."""
        meeting = Rendezvous(host)
        return cls([start(rank, meeting.address) for rank in range(size)], meeting, together)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            if method not in self._together:
                return await self._ask(self._ranks[:1], method, arguments)
            async with self._turn:  # one after the other, so that all ranks have them in the same order
                return await self._ask(self._ranks, method, arguments)

        return call

    async def _ask(self, ranks: Sequence[Any], method: str, arguments: tuple[Any, ...]) -> Any:
        if self._dead:
            raise ProcessDied(self._dead)
        return await self._all([getattr(rank, method)(*arguments) for rank in ranks])

    def kill(self) -> None:
        """End all ranks, whatever they do."""
        self._dead = self._dead or "its ranks were ended"
        for rank in self._ranks:
            rank.kill()

    async def _all(self, calls: list[Awaitable[Any]]) -> Any:
        """Rank 0's answer when all have answered. The first failure ends the others: they wait for one that won't come."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            failures = [(n, task.exception()) for n, task in enumerate(tasks) if task.done() and task.exception()]
            if not failures:
                return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
        # A rank that went wrong by itself tells more than those that missed it.
        number, error = next(((n, e) for n, e in failures if not isinstance(e, RankLost | ProcessDied)), failures[0])
        assert error is not None
        self._dead = f"rank {number}: {getattr(error, 'cause', error)}"  # Ray's words have the stack before the cause
        self.kill()
        if isinstance(error, RankLost | ProcessDied):
            raise ProcessDied(self._dead) from error
        raise error


# A poll blocks one thread of the actor, a staging another; submissions, releases and readings need a third.
ENGINE_CALLS = 6
# A step blocks one thread of the actor, a version on its way to the store another; receivers join, acknowledge and leave concurrently.
TRAINER_CALLS = 6
# Where cores are few the trainer goes first (a third of a core's share for the engine against it). Without that, the rollouts
# of a batch are done before the step that they wait for is, then all idle till its weights come, and none sees a swap in flight.
ENGINE_NICENESS = 5


class EngineProcess(EngineService):
    """What the engine actor holds. Version -1 until the first weights are applied, so that these always are."""

    def __init__(
        self,
        checkpoint: Path,
        weights: Path | str,
        settings: EngineSettings,
        lora: LoraSettings,
        niceness: int = 0,
        impl: Impl = "auto",
    ) -> None:
        """`lora`: of the trainer (`rl.update.lora`), which then publishes adapters alone."""
        os.nice(niceness)  # of this thread, and of the sampling thread that it starts
        leave_cores_to_engine()
        model = load_checkpoint(checkpoint, drafts=settings.draft_tokens > 0, impl=impl)
        fit_heap(model)
        merge = merger_for(checkpoint, lora, impl)
        super().__init__(EngineCore(model, settings, version=-1), WeightStore(weights), merge)


class VllmProcess(VllmService):
    """What the engine actor holds where vLLM is the engine: the actor is vLLM's guardian, and dies to its client when that dies."""

    def __init__(
        self,
        checkpoint: Path,
        weights: Path | str,
        settings: EngineSettings,
        lora: LoraSettings,
        niceness: int,
        copies: Path,
    ) -> None:
        """`copies`: where each machine has its copy of the weights, under its name. `lora`: as for EngineProcess."""
        os.nice(niceness)  # what this thread starts is as nice
        torch.set_num_threads(settings.threads)
        merge = merger_for(checkpoint, lora)
        super().__init__(checkpoint, WeightStore(weights), settings, copies / socket.gethostname(), merge=merge)


class RemoteActor:
    """A handle on an actor: `await handle.method(...)`, with Ray's ways of dying turned into ProcessDied."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            try:
                return await getattr(self.actor, method).remote(*arguments)
            except EngineGone as gone:  # as Ray hands it on: its words behind those of a stack
                raise ProcessDied(str(getattr(gone, "cause", gone))) from gone
            except (
                RayActorError,
                NodeDiedError,
                ObjectLostError,
            ) as error:  # the last: it died between answer and delivery
                raise ProcessDied(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error

        return call

    def kill(self) -> None:
        """End the process whatever it does; used before its successor starts."""
        ray.kill(self.actor)


@dataclass
class RayPlaces:
    """What it takes to start the processes."""

    checkpoint: Path
    folder: Path
    settings: RlSettings
    engine: EngineSettings
    cluster: ClusterSettings
    ray: LocalRay | Cluster  # the Ray that the processes run on
    impl: Impl = "auto"  # whose code computes the checkpoint
    started: int = 0  # names of actors are unique in the life of a run

    def remember(self) -> None:
        self.ray.remember()

    def start_engine(self, region: str = "") -> RemoteActor:
        """With `region`, where its resources are; it sees the weights of that region's store and no others."""
        vllm = self.engine.kind == "vllm"
        actor: Any = ray.remote(VllmProcess if vllm else EngineProcess)
        last = self.folder / "vllm" / region if vllm else self.impl
        far = self.settings.regions.get(region)
        options = self._options("engine", far.engine if far else self.cluster.engine, "SPREAD")
        weights = place_of(far.store) if far else store_of(self.settings, self.folder)
        return RemoteActor(
            actor.options(max_concurrency=ENGINE_CALLS, **options).remote(
                self.checkpoint, weights, self.engine, self.settings.update.lora, ENGINE_NICENESS, last
            )
        )

    def start_trainer(self) -> RemoteActor | RankGroup:
        size, together = self.settings.trainer_ranks, SPLIT_TOGETHER if self.settings.parallel.ranks > 1 else TOGETHER
        if size == 1:
            return self._start_rank(0, "")
        return RankGroup.start(size, self._start_rank, ray.util.get_node_ip_address(), together)

    def _start_rank(self, rank: int, meeting: str) -> RemoteActor:
        actor: Any = ray.remote(TrainerProcess if self.settings.parallel.ranks == 1 else SplitTrainerProcess)
        here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
        options = self._options("trainer", self.cluster.trainer, here)
        arguments = (self.checkpoint, self.folder, self.settings, self.settings.threads, rank, meeting, self.impl)
        return RemoteActor(actor.options(max_concurrency=TRAINER_CALLS, **options).remote(*arguments))

    def _options(self, what: str, taken: dict[str, float], uncounted: Any) -> dict[str, Any]:
        """`taken` resources say where it may run, else `uncounted` does."""
        options: dict[str, Any] = {"num_cpus": taken.get("CPU", 0)}
        if not self.cluster.address:
            return options | self._allocator() | self._gpus_here(what)
        self.started += 1
        options["name"] = f"{what}-{self.started}"  # the run's namespace tells what is left of it (`cluster.py`)
        if not taken:
            return options | {"scheduling_strategy": uncounted}
        own = {name: amount for name, amount in taken.items() if name not in ("CPU", "GPU")}
        return options | {"num_gpus": taken.get("GPU", 0), "resources": own}

    @staticmethod
    def _allocator() -> dict[str, Any]:
        found = allocator.variables()
        return {"runtime_env": {"env_vars": found}} if found else {}

    def _gpus_here(self, what: str) -> dict[str, float]:
        """What it takes of this machine's GPUs."""
        wants = on_gpu(self.engine) if what == "engine" else self.settings.device == "cuda"
        there = int(ray.cluster_resources().get("GPU", 0))
        return {"num_gpus": gpu_share(processes_on_gpus(self.settings, self.engine), there)} if wants and there else {}

"""Trainer and engines as the controller sees them: `controller.LearnerClient` and a policy, over processes that may die.

A version is copied by `publish`, and on its way to the store and into the engines (`sync`) while the trainer is at the next step. A trainer
that dies meanwhile comes back where the run is: if that is at a later step, the older version is passed over, and the next one is served.

A dead trainer comes back from the last checkpoint and trains the batches since again, to the same digests; a dead engine comes back
with the newest weights (`engines.py`). The weights' way is always the same: trainer publishes, engines stage while they work, apply
between two steps, the trainer receives the version, and only then may a delta start from them (promise 7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from etude.rl.controller import StepResult
from etude.rl.engines import Engines
from etude.rl.learner import TrainedStep
from etude.rl.observer import RunObserver
from etude.rl.restarts import Lifeline, ProcessDied, ProcessPlacer
from etude.rl.resume import ReplayDiverged
from etude.rl.settings import RlSettings


class Services:
    """Start it with `restore`, then `sync`; `policy` answers from then on."""

    def __init__(self, places: ProcessPlacer, settings: RlSettings, observer: RunObserver) -> None:
        self._places = places
        self._observer = observer
        self.trainer: Lifeline[Any] = Lifeline("trainer", self._spawn_trainer, settings.max_restarts, observer)
        self.engines = Engines(settings, places, self._ask, observer)
        self.policy = self.engines.policy
        self.trainer_busy_s = 0.0
        self._saved = 0  # steps in the last checkpoint
        self._since: list[tuple[int, list[int], str]] = []  # steps trained since: step, groups, digest
        self._renewal: asyncio.Future[None] | None = None  # somebody waits for a new trainer process

    @property
    def restarts(self) -> int:
        return self.trainer.restarts + self.engines.restarts

    @property
    def admits(self) -> int:
        return self.engines.floor.version

    def listen(self, heard: Callable[[], None]) -> None:
        self.engines.regions.risen = heard

    async def restore(self, step: int) -> None:
        self._saved, self._since = step, []
        if self.trainer.generation < 0:
            self.engines.prepare()
            await self.trainer.start()
        await self._ask("restore", step)

    async def train(self, step: int, groups: list[int]) -> StepResult:
        trained: TrainedStep = await self._ask("train", groups)
        self._since.append((step, groups, trained.digest))
        for line in trained.notes:
            self._observer.note(f"step {step}: {line}")
        self.trainer_busy_s += trained.busy_s
        values = {"busy_s": trained.busy_s, "train_cpu_s": trained.cpu_s, **trained.figures}
        return StepResult(
            step, trained.digest, trained.components, trained.advantages, values, trained.measured, trained.weights
        )

    async def publish(self, version: int) -> None:
        await self._ask("publish", version)

    async def sync(self, version: int) -> dict[str, float]:
        while (published := await self._ask("publication_cost", version)) is None:  # by a trainer that came back
            if not await self._ask("publish", version):
                self._observer.note(f"version {version} is passed over: the trainer came back at a later step")
                return self.engines.regions.figures(self.policy.answered)
        await self.engines.serve(version)
        delta = {"delta_bytes": float(published["delta_bytes"] or 0), "publish_s": published["seconds"]}
        delta |= {"delta_ratio": published["ratio"] or 0.0, "anchor_bytes": float(published["anchor_bytes"])}
        return delta | self.engines.regions.figures(self.policy.answered)

    async def save(self, step: int) -> None:
        await self._ask("save", step)
        self._saved, self._since = step, []
        if self._renewal is not None:
            await self.trainer.renew(lambda reason: None)
            self._renewal.set_result(None)
            self._renewal = None

    def wants_checkpoint(self) -> bool:
        """The trainer's process is to be replaced, which is done at a checkpoint."""
        return self._renewal is not None

    async def renew_trainer(self) -> None:
        """Returns when its process has been replaced, which is done right after a checkpoint: nothing is trained again for it."""
        if self._renewal is None:
            self._renewal = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._renewal)

    async def export(self, folder: Any) -> None:
        """Write the policy as a Hugging Face directory."""
        await self._ask("export", folder)

    async def compare(self, sampled: Any) -> Any:
        """The mismatch of a sampled probe against the trainer's own forward (see `engine.probe`)."""
        return await self._ask("compare", sampled)

    async def engine_stats(self) -> dict[str, float]:
        """The engines' readings; empty if all are gone, for they are no reason to bring one back."""
        return await self.engines.stats()

    async def close(self) -> None:
        await self.engines.close()

    async def _ask(self, method: str, *arguments: Any) -> Any:
        """Call the trainer; if it dies, the next one is brought to the same state and asked again."""
        while True:
            generation = self.trainer.generation
            try:
                return await getattr(self.trainer.handle, method)(*arguments)
            except ProcessDied as death:
                await self.trainer.revive(generation, str(death))

    async def _spawn_trainer(self, generation: int) -> Any:
        handle = self._places.start_trainer()
        if generation:
            await handle.restore(self._saved)
            for step, groups, digest in self._since:
                again: TrainedStep = await handle.train(groups)
                if again.digest != digest:
                    raise ReplayDiverged(
                        f"the restarted trainer came to {again.digest} at step {step}, before {digest}"
                    )
            for receiver, served in self.engines.receivers():
                await handle.join(receiver, None)
                if served >= 0:
                    await handle.acknowledge(receiver, served)
        self._places.remember()
        return handle

"""Trainer and engine as the controller sees them: `controller.Learner` and a policy, over processes that may die.

A dead trainer comes back from the last checkpoint and trains the batches since again, to the same digests; a dead engine
comes back with the newest weights. The weights' way is always the same: trainer publishes, engine stages beside its work,
applies between two steps, the trainer is told, and only then may a delta start from them (promise 7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from etude.events.log import EventLog
from etude.rl.controller import Step
from etude.rl.engine_policy import EnginePolicy
from etude.rl.learner import Trained
from etude.rl.restarts import Lifeline, ProcessDied
from etude.rl.resume import ReplayDiverged

STAGE = "rl"


class Places(Protocol):
    """Starts processes; `placement.Places` does it with Ray, tests in their own process."""

    def start_engine(self) -> Any: ...
    def start_trainer(self) -> Any: ...


class Services:
    """Start it with `restore`, then `sync`; `policy` answers from then on."""

    def __init__(self, places: Places, max_restarts: int, log: EventLog, on_start: Callable[[], None]) -> None:
        self._places = places
        self._log = log
        self._on_start = on_start
        self.trainer: Lifeline[Any] = Lifeline("trainer", self._spawn_trainer, max_restarts)
        self.engine: Lifeline[Any] = Lifeline("engine", self._spawn_engine, max_restarts)
        self.policy = EnginePolicy(self.engine)
        self.trainer_busy_s = 0.0
        self._saved = 0  # steps in the last checkpoint
        self._since: list[tuple[int, list[int], str]] = []  # steps trained since: step, groups, digest
        self._published = -1
        self._served = -1
        self._receiver: str | None = None
        self._early: Any = None

    async def restore(self, step: int) -> None:
        self._saved, self._since = step, []
        if self.trainer.generation < 0:
            self._early = self._places.start_engine()  # it loads while the trainer does
            await self.trainer.start()
        await self._ask("restore", step)

    async def train(self, step: int, groups: list[int]) -> Step:
        trained: Trained = await self._ask("train", groups)
        self._since.append((step, groups, trained.digest))
        self.trainer_busy_s += trained.busy_s
        values = {"busy_s": trained.busy_s, "train_cpu_s": trained.cpu_s, **trained.figures}
        return Step(step, trained.digest, trained.components, trained.advantages, values)

    async def sync(self, version: int) -> dict[str, float]:
        published = await self._ask("publish", version)
        self._published = version
        if self.engine.generation < 0:
            await self.engine.start()
        while self._served < version:
            await self._serve(version)
        delta = {"delta_bytes": float(published["delta_bytes"] or 0), "publish_s": published["seconds"]}
        return delta | {"delta_ratio": published["ratio"] or 0.0, "anchor_bytes": float(published["anchor_bytes"])}

    async def save(self, step: int) -> None:
        await self._ask("save", step)
        self._saved, self._since = step, []

    async def export(self, folder: Any) -> None:
        """Write the policy as a Hugging Face directory."""
        await self._ask("export", folder)

    async def compare(self, sampled: Any) -> Any:
        """The mismatch of a sampled probe against the trainer's own forward (see `engine.probe`)."""
        return await self._ask("compare", sampled)

    async def engine_stats(self) -> dict[str, float]:
        """The engine's readings; empty if it is gone, for they are no reason to bring it back."""
        try:
            return await self.engine.handle.stats()
        except ProcessDied:
            return {}

    async def close(self) -> None:
        await self.policy.close()

    async def _ask(self, method: str, *arguments: Any) -> Any:
        """Call the trainer; if it dies, the next one is brought to the same state and asked again."""
        while True:
            generation = self.trainer.generation
            try:
                return await getattr(self.trainer.handle, method)(*arguments)
            except ProcessDied as death:
                await self.trainer.revive(generation, str(death))

    async def _serve(self, version: int) -> None:
        generation = self.engine.generation
        try:
            await self.engine.handle.stage(version)
            self._served = await self.engine.handle.apply()
        except ProcessDied as death:
            await self.engine.revive(generation, str(death))  # it starts with the newest weights
            return
        await self._ask("acknowledge", self._receiver, self._served)

    async def _spawn_engine(self, generation: int) -> Any:
        self._replace(self.engine, generation)
        handle, self._early = self._early or self._places.start_engine(), None
        name = f"engine-{generation}"
        await self._ask("join", name, self._receiver)
        self._receiver = name
        await handle.stage(self._published)
        self._served = await handle.apply()
        await self._ask("acknowledge", name, self._served)
        self._on_start()
        return handle

    async def _spawn_trainer(self, generation: int) -> Any:
        self._replace(self.trainer, generation)
        handle = self._places.start_trainer()
        if generation:
            await handle.restore(self._saved)
            for step, groups, digest in self._since:
                again: Trained = await handle.train(groups)
                if again.digest != digest:
                    raise ReplayDiverged(
                        f"the restarted trainer came to {again.digest} at step {step}, before {digest}"
                    )
            if self._receiver is not None:
                await handle.join(self._receiver, None)
                await handle.acknowledge(self._receiver, self._served)
        self._on_start()
        return handle

    def _replace(self, lifeline: Lifeline[Any], generation: int) -> None:
        if generation:
            lifeline.handle.kill()
            self._log.note(STAGE, f"the {lifeline.name} process died; starting it again (number {generation + 1})")

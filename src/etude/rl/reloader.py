"""Applies what `reload.py` asks for, while the controller runs: engines one after the other, then the trainer."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from pydantic import ValidationError

from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.found import vllm_version
from etude.learn.engine.vllm.turns import require_same_queries
from etude.learn.model.checkpoint import load_config
from etude.learn.model.hf_keys import TRANSPOSED_FAMILIES
from etude.learn.model.settings import Impl
from etude.learn.model.transformers_backend.config import refuse
from etude.rl.observer import RunObserver
from etude.rl.reload import ANSWERS, REQUEST, Reload, answers, changed_settings, fitted_to
from etude.rl.restarts import ProcessPlacer
from etude.rl.services import Services
from etude.rl.settings import RlSettings

# Checks what the chosen engine can't do of a recipe: refused, or logged, before anything starts.


def check_engine(settings: RlSettings, engine: EngineSettings, checkpoint: Path, impl: Impl = "auto") -> None:
    """Raises ValueError where the run asks for what vLLM does not give."""
    if engine.kind != "vllm":
        return
    refuse(config := load_config(checkpoint, impl), 'engine.kind = "vllm"')
    if (family := config.family) in TRANSPOSED_FAMILIES:
        raise ValueError(
            f'engine.kind = "vllm" with {checkpoint}, which is {family}: its files lay experts out otherwise than our memory does, and the copy '
            "that vLLM loads from can't hold that (docs/vllm.md); take our own engine"
        )
    require_same_queries(config, engine.max_len)
    if settings.update.router_replay and not engine.vllm.arguments.get("enforce_eager"):
        raise ValueError(
            "rl.update.router_replay = true, but engine.vllm.arguments leaves out enforce_eager = true: vLLM reports routed experts only where it "
            "runs eagerly; add it, or leave router_replay out"
        )
    if settings.drafts.every:
        raise ValueError(
            f'rl.drafts.every = {settings.drafts.every} with engine.kind = "vllm": drafts are for our own engine; set it to 0'
        )


def log_engine(engine: EngineSettings, observer: RunObserver) -> None:
    """Says what is different with vLLM. Raises NoVllm where it is not there."""
    if engine.kind == "vllm":
        version = vllm_version(engine.vllm.python)
        eager = engine.vllm.arguments.get("enforce_eager")
        rest = "" if eager else "; without enforce_eager it reports no routed experts, so none are replayed"
        observer.note(f"vLLM {version} answers, in {engine.vllm.dtype}{rest}")


LOOK_S = 0.5


class Reloader:
    """Looks for a request now and then, from `start` to `close`."""

    def __init__(
        self,
        folder: Path,
        checkpoint: Path,
        places: ProcessPlacer,
        services: Services,
        settings: RlSettings,
        observer: RunObserver,
    ) -> None:
        self._checkpoint = checkpoint
        self._folder, self._places, self._services = folder, places, services
        self._settings, self._observer = settings, observer
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            self._observer.note(f"requests to reload are looked for no longer: {task.exception()!r}")

    async def _run(self) -> None:
        while True:
            if (path := self._folder / REQUEST).exists():
                await self._answer(path)
            await asyncio.sleep(LOOK_S)

    async def _answer(self, path: Path) -> None:
        try:
            reload = Reload.model_validate_json(path.read_text())
        except ValidationError as error:
            self._observer.note(f"{path} is no request to reload and is set aside: {error}")
            path.rename(path.with_suffix(".bad"))
            return
        if reload.id not in [answer.id for answer in answers(self._folder)]:
            began = time.monotonic()
            error = await self._do(reload)
            entry = reload.model_dump() | {"seconds": round(time.monotonic() - began, 2), "error": error}
            with open(self._folder / ANSWERS, "a") as file:
                file.write(json.dumps(entry) + "\n")
            self._observer.note(f"reload {reload.id}: {error or 'done'} in {entry['seconds']:g} s")
        path.unlink()

    async def _do(self, reload: Reload) -> str:
        """What went wrong; empty if nothing did."""
        before = self._places.engine
        try:
            wanted = fitted_to(self._settings, changed_settings(before, reload.settings))
            check_engine(self._settings, wanted, self._checkpoint)
            log_engine(wanted, self._observer)
        except ValueError as error:  # a ValidationError is one
            return str(error)
        self._places.engine = wanted
        if reload.engines and (wrong := await self._engines(before)):
            return wrong
        if reload.trainer:
            await self._services.renew_trainer()
        return ""

    async def _engines(self, before: EngineSettings) -> str:
        failed: list[str] = []

        def undo(reason: str) -> None:
            failed.append(reason)
            self._places.engine = before

        engines = self._services.engines
        done = 0
        for one in engines.replicas:
            await engines.renew(one, self._settings.drain_s, undo)
            if failed:
                rest = f"{done} of {len(engines.replicas)} run with the new settings until they are replaced again"
                return f"the {one.lifeline.name} did not come up: {failed[0]}" + (f"; {rest}" if done else "")
            done += 1
        return ""

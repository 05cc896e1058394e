"""The run under test: `python driver.py CHECKPOINT FOLDER SETTINGS FLEET ENGINE`, to be started again by the same words whenever it was killed.

An RL run as the stage makes it, on exercises, in real sandboxes, on a Ray of its own; graders are watched (`witness.py`), and processes have
windows to be killed in (`points.py`). SIGUSR1 makes it print the stacks of its threads.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path
from typing import Any

from etude.agent.harness.settings import HarnessSettings
from etude.core.events.log import EventLog
from etude.learn.engine.settings import EngineSettings
from etude.rl import run
from etude.rl.local_ray import LocalRay
from etude.rl.observer import EventLogObserver
from etude.rl.run_context import RunContext
from etude.rl.settings import RlSettings
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from killing import points
from killing.witness import witnessed

HARNESS: dict[str, Any] = {"max_turns": 4, "max_tokens_per_turn": 48, "codebase_search": True}


class Watched(LocalRay):
    """Ray reads its environment when it is first imported, so `killing.actors`, which imports Ray, is imported after Ray runs."""

    def __enter__(self) -> LocalRay:
        found = super().__enter__()
        from killing.actors import place

        place()
        return found


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    checkpoint, folder = Path(sys.argv[1]), Path(sys.argv[2])
    points.install_controller()
    run.LocalRay = Watched  # type: ignore[misc]
    run.run_rl(
        RunContext(
            RlSettings.model_validate_json(sys.argv[3]),
            checkpoint,
            folder,
            ExerciseSource(ExerciseSettings()),
            HarnessSettings(**HARNESS),
            EngineSettings.model_validate_json(sys.argv[5]),
            SandboxSettings(),
            EventLogObserver(EventLog(folder / "events.jsonl")),
            graders=witnessed(folder.parent / f"{folder.name}-witness"),
            fleet=FleetSettings.model_validate_json(sys.argv[4]),
        )
    )


if __name__ == "__main__":
    main()

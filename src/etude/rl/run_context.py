"""What every part of an RL run needs: its settings, its folder, its tasks and its observer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from etude.agent.harness.settings import HarnessSettings
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.settings import Impl
from etude.rl.harder_tasks import HarderTaskOpener
from etude.rl.observer import RunObserver
from etude.rl.rewards.judge import AttemptJudge
from etude.rl.settings import ClusterSettings, RlSettings
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.settings import SandboxSettings
from etude.tasks.registry import GRADERS
from etude.tasks.task import Grader, TaskSource


@dataclass(frozen=True)
class RunContext:
    """All that decides a run, apart from the files in its folder. Settings hold their own units."""

    settings: RlSettings  # the recipe's [rl]
    checkpoint: Path  # where it starts: a Hugging Face directory with tokenizer.json
    folder: Path  # the run's files; made if it is missing
    source: TaskSource  # the tasks that are trained on and evaluated with
    harness: HarnessSettings  # the recipe's [harness]; its temperature, above 0, holds for the update too
    engine: EngineSettings  # the recipe's [engine], as the run starts; `etude reload` may replace it
    sandbox: SandboxSettings  # the recipe's [sandbox]
    observer: RunObserver  # receives notes, phases, progress and figures
    graders: Mapping[str, Grader] = field(default_factory=lambda: GRADERS)  # by name
    fleet: FleetSettings = field(
        default_factory=FleetSettings
    )  # the recipe's [fleet]; without hosts sandboxes are local
    cluster: ClusterSettings = field(
        default_factory=ClusterSettings
    )  # the recipe's [cluster]; without address a local Ray
    harder: HarderTaskOpener | None = None  # harder tasks of the source; needed with rl.harder_above
    impl: Impl = "auto"  # the recipe's model.impl: whose code computes the checkpoint
    judge: AttemptJudge | None = None  # scores attempts; needed with rl.rewards.judge, and closed when the run ends

"""The recipe: every room's settings under one roof. Each room owns its own class; this one only composes them."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

from etude.agent.harness.settings import HarnessSettings
from etude.evaluate.bench.settings import BenchSettings
from etude.evaluate.report.settings import ReportSettings
from etude.learn.corpus.settings import CorpusSettings
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.settings import ModelSettings
from etude.learn.train.mtp_settings import MtpSettings
from etude.learn.train.settings import PretrainSettings, SftSettings
from etude.pipeline.recipe.run_settings import ProbeSettings, RunSettings
from etude.rl.settings import ClusterSettings, RlSettings
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.settings import ExerciseSettings, SessionSettings
from etude.tasks.settings import TaskSettings


def _section(settings: type[BaseModel]) -> Any:
    return Field(default_factory=settings)


class Recipe(BaseModel):
    """All settings of a run. A section left out of the files has its defaults."""

    model_config = ConfigDict(extra="forbid")

    run: RunSettings = _section(RunSettings)
    model: ModelSettings = _section(ModelSettings)
    corpus: CorpusSettings = _section(CorpusSettings)
    exercises: ExerciseSettings = _section(ExerciseSettings)
    tasks: TaskSettings = _section(TaskSettings)
    sessions: SessionSettings = _section(SessionSettings)
    engine: EngineSettings = _section(EngineSettings)
    harness: HarnessSettings = _section(HarnessSettings)
    sandbox: SandboxSettings = _section(SandboxSettings)
    fleet: FleetSettings = _section(FleetSettings)
    pretrain: PretrainSettings = _section(PretrainSettings)
    mtp: MtpSettings = _section(MtpSettings)
    sft: SftSettings = _section(SftSettings)
    probes: ProbeSettings = _section(ProbeSettings)
    rl: RlSettings = _section(RlSettings)
    cluster: ClusterSettings = _section(ClusterSettings)
    bench: BenchSettings = _section(BenchSettings)
    report: ReportSettings = _section(ReportSettings)


def block(annotation: Any) -> type[BaseModel] | None:
    """The settings class behind a field's annotation (`Block` or `Block | None`), None for a plain value or a table of many."""
    if get_origin(annotation) is dict:
        return None
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def named_blocks(annotation: Any) -> type[BaseModel] | None:
    """The settings class of a table of named blocks (`dict[str, Block]`), None for anything else."""
    return block(get_args(annotation)[1]) if get_origin(annotation) is dict else None

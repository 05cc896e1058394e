"""The recipe: every room's settings under one roof. Each room owns its own class; this one only composes them."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, field_validator

from etude.agent.harness.settings import HarnessSettings
from etude.evaluate.bench.settings import BenchSettings
from etude.evaluate.report.settings import ReportSettings
from etude.learn.corpus.settings import CorpusSettings
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.settings import ModelSettings
from etude.learn.train.mtp_settings import MtpSettings
from etude.learn.train.settings import PretrainSettings, SftSettings
from etude.rl.settings import ClusterSettings, RlSettings
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.settings import ExerciseSettings, SessionSettings
from etude.tasks.settings import TaskSettings

# Settings of a run as a whole, and of its probes. Torch-free: the recipe imports them.


MAX_NAME_CHARS = 100


class RunSettings(BaseModel):
    """What belongs to no single stage."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        default="", description="name of the recipe and of its default run directory; empty: the last file's name"
    )
    sft_checkpoint: str = Field(
        default="",
        description="checkpoint that rl starts from and bench compares with, a directory or a hub name; empty: the sft stage's own",
    )
    without: list[str] = Field(
        default_factory=list, description="stages to leave out; what follows them reads what they would have read"
    )
    control_share: float = Field(
        default=1.0,
        gt=0,
        le=2,
        description="attempts and training time of the control rewarded_sft, as a share of RL's; below 1 it proves nothing; above 1 it "
        "makes up for sampling being cheaper without a trainer on the same machine",
    )

    @field_validator("name")
    @classmethod
    def _one_folder(cls, name: str) -> str:
        """The run directory is `runs/<name>`: a recipe of another person must not choose a place outside of it."""
        odd = "/" in name or "\\" in name or name.startswith((".", "-", "~")) or any(ord(char) < 32 for char in name)
        if odd or len(name) > MAX_NAME_CHARS:
            raise ValueError(
                f"{name[:MAX_NAME_CHARS]!r} is no name for a folder below runs/: take at most {MAX_NAME_CHARS} letters, digits, '-', '_' or '.', "
                "without '/', and not beginning with '.', '-' or '~'; --out names another place"
            )
        return name


class ProbeSettings(BaseModel):
    """How much the probes stage measures."""

    model_config = ConfigDict(extra="forbid")

    perplexity_bytes: int = Field(
        default=120_000,
        ge=1_000,
        description="held-out code that perplexity is measured on, whole files evenly from all",
    )
    documents: int = Field(default=24, ge=1, description="long held-out documents whose loss by position is measured")
    questions: int = Field(default=20, ge=1, description="lookups of each kind and length, each asked at every depth")
    depths: tuple[float, ...] = Field(default=(0.0, 0.5, 1.0), description="where in the context the answer is")
    requests: int = Field(default=48, ge=1, description="turns that are decoded plainly and with drafts")
    draft_tokens: int = Field(default=3, ge=1, description="tokens drafted at a time")
    batches: tuple[int, ...] = Field(default=(1, 4), description="requests decoded at once")
    repeats: int = Field(default=3, ge=1, description="passes of each way of decoding; their medians count")
    seed: int = Field(default=0, ge=0, description="draws questions and what is sampled")


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

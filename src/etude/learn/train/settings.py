"""How the model learns: one block of settings for each stage of training. Free of torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.settings import ExpertProducts
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.train.importance_settings import ImportanceSettings

TooLong = Literal["stop", "cut", "drop"]
# Settings of a policy step that the rl stage chooses where they are "auto", with their lowest values.
LEAST_TOKENS = {"batch_tokens": 64, "graph_tokens": 0}
# Where nothing is known of the memory: a small micro-batch, and no graph is kept.
UNPLANNED_TOKENS = {"batch_tokens": 4096, "graph_tokens": 0}


class OptimizerSettings(BaseModel):
    """Muon for matrices, AdamW for embeddings, head, gains and routers; or AdamW for all."""

    model_config = ConfigDict(extra="forbid")

    matrices: Literal["muon", "adamw"] = Field(default="muon", description="Optimizer of the weight matrices.")
    muon_lr: float = Field(default=0.02, gt=0, description="Peak learning rate of Muon.")
    muon_momentum: float = Field(default=0.95, ge=0, lt=1, description="Nesterov momentum of Muon.")
    low_rank: Literal["muon", "adamw"] = Field(default="muon", description="Optimizer of the low-rank factors of MLA.")
    adam_lr: float = Field(default=3e-3, gt=0, description="Peak learning rate of AdamW.")
    adam_betas: tuple[float, float] = Field(default=(0.9, 0.95), description="Decay of Adam's two moments.")
    weight_decay: float = Field(
        default=0.0, ge=0, description="Decoupled weight decay of matrices (times the learning rate)."
    )
    clip_norm: float = Field(default=1.0, gt=0, description="Largest norm of the whole gradient.")


class ScheduleSettings(BaseModel):
    """Learning rate over the run, as a factor of its peak."""

    model_config = ConfigDict(extra="forbid")

    shape: Literal["constant", "cosine", "wsd"] = Field(
        default="wsd", description="wsd: warm up, stay, decay linearly."
    )
    warmup_share: float = Field(default=0.02, ge=0, le=1, description="Share of the run spent on the linear warm-up.")
    decay_share: float = Field(default=0.3, ge=0, le=1, description="Share of the run spent on the decay (wsd only).")
    floor: float = Field(default=0.02, ge=0, le=1, description="Factor at the end of a decay.")


class LoopSettings(BaseModel):
    """When a stage ends, what it survives, and when it saves."""

    model_config = ConfigDict(extra="forbid")

    steps: int | None = Field(default=None, ge=1, description="Stop after this many optimizer steps.")
    budget_core_s: float | None = Field(
        default=None, gt=0, description="Stop after this much CPU time of the process, seconds."
    )
    bad_steps_limit: int = Field(
        default=5, ge=1, description="Stop the run after this many bad steps one after another."
    )
    spike_factor: float = Field(
        default=5.0, gt=1, description="A loss above this multiple of its moving mean is skipped."
    )
    checkpoint_every: int = Field(
        default=100,
        ge=1,
        description="Steps between saved training states; one is saved after ten minutes also where they take longer.",
    )
    keep_checkpoints: int = Field(default=2, ge=1, description="Training states kept on disk.")
    log_every: int = Field(default=10, ge=1, description="Steps between metric lines.")
    threads: int | None = Field(
        default=None, ge=1, description="Threads of the CPU kernels; unset keeps torch's choice."
    )
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Where the stage trains; cuda: on one GPU.")
    parallel: ParallelLayout = Field(
        default=ParallelLayout(),
        description="Processes that train the model together, each with a part of it (docs/scale.md).",
    )
    compute: Literal["fp32", "bf16"] = Field(
        default="fp32", description="Type of products; with bf16 the weights stay fp32 (docs/memory.md)."
    )
    recompute: bool = Field(
        default=False,
        description="Compute each block again for its gradients: less memory, a third more time, the same gradients.",
    )
    expert_products: ExpertProducts = Field(
        default="plain",
        description="Format of experts' products, emulated: mxfp8, or nvfp4 with gradients in MXFP8 (docs/low-precision.md).",
    )

    @model_validator(mode="after")
    def _ends(self) -> LoopSettings:
        if self.steps is None and self.budget_core_s is None:
            raise ValueError("a training stage needs an end: set steps, budget_core_s, or both")
        return self


class RegressionSettings(BaseModel):
    """The guard against forgetting: bits a byte of held-out short documents (geometric mean over sources), measured while a phase trains."""

    model_config = ConfigDict(extra="forbid")

    every: int = Field(default=20, ge=1, description="Steps between checks.")
    bar: float = Field(default=0.05, gt=0, description="Bits a byte above the best check by this share count as worse.")
    checks: int = Field(default=2, ge=1, description="Worse checks in a row that stop the phase.")
    documents: int = Field(default=64, ge=1, description="Held-out documents a check reads.")


class PhaseSettings(BaseModel):
    """One phase of pretraining: next-token prediction on documents of the corpus."""

    model_config = ConfigDict(extra="forbid")

    seed: int = Field(default=0, description="Order of the documents.")
    form: Literal["files", "projects"] = Field(
        default="files", description="What a document is: a file, or a project's files in dependency order."
    )
    mix: dict[str, float] = Field(
        default_factory=dict,
        description="Source = weight in tokens; empty takes all sources of the form by the corpus' weights.",
    )
    changes: float = Field(default=0.0, ge=0, lt=1, description="Share of tokens from changes between releases.")
    lookups: float = Field(default=0.0, ge=0, lt=1, description="Share of tokens from lookups far back in real code.")
    replay: float = Field(
        default=0.0, ge=0, lt=1, description="Share of tokens drawn as the phase before draws its own."
    )
    row_tokens: int = Field(default=256, ge=16, description="Length of a packed row; longer documents are cut.")
    batch_rows: int = Field(default=8, ge=1, description="Rows of one optimizer step.")
    packing: bool = Field(
        default=True,
        description="Lay documents end to end in rows; false batches them by like length (faster on CPU if most are short).",
    )
    yarn_factor: float = Field(
        default=1.0, ge=1, description="Positions are stretched by this factor before the phase (YaRN); 1 leaves them."
    )
    regression: RegressionSettings | None = Field(
        default=None, description="Stop the phase when held-out short documents get worse; unset: no check."
    )
    midway: float | None = Field(
        default=None, gt=0, lt=1, description="Share of the phase after which a checkpoint midway/ is left."
    )
    router_bias_rate: float = Field(
        default=0.01, ge=0, description="Step of the router's selection bias; 0 freezes it."
    )
    optimizer: OptimizerSettings = Field(default=OptimizerSettings(), description="Optimizer of the phase.")
    schedule: ScheduleSettings = Field(default=ScheduleSettings(), description="Learning rate of the phase.")
    loop: LoopSettings = Field(default=LoopSettings(steps=350), description="Length and safety of the phase.")
    lora: LoraSettings = Field(
        default=LoraSettings(), description="Adapters that short and long train instead of the weights."
    )

    @model_validator(mode="after")
    def _leaves_room(self) -> PhaseSettings:
        if self.changes + self.lookups + self.replay >= 1:
            raise ValueError(
                f"changes={self.changes}, lookups={self.lookups} and replay={self.replay} leave no share to "
                f"{self.form}: their sum has to be below 1"
            )
        self.lora.require_compute(self.loop.compute, "loop.compute")
        if negative := sorted(name for name, weight in self.mix.items() if weight <= 0):
            raise ValueError(f"mix gives {', '.join(negative)} no weight above 0; leave it out instead")
        return self


class PretrainSettings(BaseModel):
    """Pretraining in phases: base (a new model), short (continued, short documents), long (continued, stretched positions)."""

    model_config = ConfigDict(extra="forbid")

    base: PhaseSettings = Field(
        default=PhaseSettings(), description="A new model; with model.init there is no such phase."
    )
    short: PhaseSettings = Field(
        default=PhaseSettings(seed=1, midway=0.5, regression=RegressionSettings(every=50)),
        description="Continued pretraining on short documents.",
    )
    long: PhaseSettings = Field(
        default=PhaseSettings(
            seed=2,
            form="projects",
            lookups=0.3,
            replay=0.2,
            row_tokens=1024,
            packing=False,  # lookups stay whole, and short documents of a row are not padded to its longest
            yarn_factor=4.0,
            regression=RegressionSettings(),
            loop=LoopSettings(steps=60),
        ),
        description="Continued pretraining on long documents.",
    )

    @model_validator(mode="after")
    def _base_is_first(self) -> PretrainSettings:
        if self.base.replay or self.base.yarn_factor != 1:
            raise ValueError(
                f"base has replay={self.base.replay} and yarn_factor={self.base.yarn_factor}, but no phase precedes "
                "it: set them in pretrain.short or pretrain.long"
            )
        if self.base.lora.rank:
            raise ValueError(
                f"base has lora.rank={self.base.lora.rank}, but its model is new and has no weights to keep: set it in pretrain.short or "
                "pretrain.long"
            )
        return self


class SftSettings(BaseModel):
    """Supervised fine-tuning on sessions in the harness' own format."""

    model_config = ConfigDict(extra="forbid")

    seed: int = Field(default=0, description="Order of the sessions.")
    epochs: float = Field(default=1.0, gt=0, description="At most this many passes over the sessions.")
    batch_tokens: int = Field(default=2048, ge=64, description="Padded tokens of one optimizer step.")
    observation_weight: float = Field(default=0.1, ge=0, description="Loss weight of tokens that tools produced.")
    prompt_weight: float = Field(default=0.0, ge=0, description="Loss weight of the tokens before the first answer.")
    heldout_share: float = Field(
        default=0.015,
        ge=0,
        lt=1,
        description="Share of the sessions, the last ones, that nothing learns from: losses and drafts are measured on them.",
    )
    collected: tuple[str, ...] = Field(
        default=(),
        description="Folders of `etude session collect` that are trained on in addition to the run's own sessions; any teacher's, "
        "rendered for this model.",
    )
    too_long: TooLong = Field(
        default="stop",
        description="What becomes of a session longer than the model's positions, also of one held out: stop before training and name it, cut off "
        "its end, or drop it.",
    )
    router_bias_rate: float = Field(
        default=0.01, ge=0, description="Step of the router's selection bias; 0 freezes it."
    )
    optimizer: OptimizerSettings = Field(default=OptimizerSettings(), description="Optimizer of the SFT stage.")
    schedule: ScheduleSettings = Field(default=ScheduleSettings(), description="Learning rate of the SFT stage.")
    loop: LoopSettings = Field(default=LoopSettings(steps=900), description="Length and safety of the SFT stage.")
    lora: LoraSettings = Field(default=LoraSettings(), description="Adapters that SFT trains instead of the weights.")

    @model_validator(mode="after")
    def _base_fits(self) -> SftSettings:
        self.lora.require_compute(self.loop.compute, "loop.compute")
        return self


class PolicyStepSettings(BaseModel):
    """One policy-gradient step on a batch of rollouts."""

    model_config = ConfigDict(extra="forbid")

    lr: float = Field(default=5e-4, gt=0, description="Learning rate of Adam.")
    adam_betas: tuple[float, float] = Field(default=(0.9, 0.95), description="Decay of Adam's two moments.")
    warmup_steps: int = Field(default=5, ge=0, description="Steps of linear warm-up, while Adam's moments fill.")
    decay_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the steps, at the end, over which the learning rate falls to a tenth.",
    )
    clip_norm: float = Field(default=1.0, gt=0, description="Largest norm of the whole gradient.")
    loss_tokens: int = Field(
        default=128, ge=1, description="The constant each rollout's loss is divided by (no lengths)."
    )
    trust: ImportanceSettings = Field(
        default_factory=ImportanceSettings, description="What tokens that older weights sampled count."
    )
    temperature: float = Field(
        default=1.0, gt=0, description="Not for recipes: the rl stage puts harness.temperature here."
    )
    batch_tokens: int | Literal["auto"] = Field(
        default="auto",
        description="Padded tokens of one micro-batch, from 64 on; auto: chosen for the model and the memory (docs/memory.md).",
    )
    graph_tokens: int | Literal["auto"] = Field(
        default="auto",
        description="Batches up to this size keep score's graph for update; larger ones run twice. auto: as many as the memory holds; 0: none.",
    )
    compute: Literal["fp32", "bf16"] = Field(
        default="fp32", description="Type of products; with bf16 the weights stay fp32 (docs/memory.md)."
    )
    recompute: bool = Field(
        default=False,
        description="Compute each block again for its gradients: less memory, a third more time, the same gradients.",
    )
    expert_products: ExpertProducts = Field(
        default="plain",
        description="Format of experts' products, emulated: mxfp8, or nvfp4 with gradients in MXFP8 (docs/low-precision.md).",
    )
    router_replay: bool | None = Field(
        default=None,
        description="Route sampled tokens as the engine did; left out: wherever the engine reports its routes (vLLM: where it runs eagerly).",
    )
    replay_ratio: float = Field(
        default=0.5, ge=0, description="Replayed experts below this share of the top-k floor are replaced."
    )
    unreplayed_every: int = Field(
        default=10,
        ge=0,
        description="Number of steps between batches that are scored without replay too, which shows what replay is worth; 0 never.",
    )
    router_bias_rate: float = Field(default=0.0, ge=0, description="Step of the router's selection bias; 0 freezes it.")
    lora: LoraSettings = Field(default=LoraSettings(), description="Adapters that RL trains instead of the weights.")
    bad_steps_limit: int = Field(
        default=5, ge=1, description="Stop after this many steps without a finite gradient in a row."
    )

    @model_validator(mode="after")
    def _base_fits(self) -> PolicyStepSettings:
        self.lora.require_compute(self.compute, "compute")
        return self

    @field_validator(*LEAST_TOKENS, mode="before")
    @classmethod
    def _auto_or_a_number(cls, value: Any, found: ValidationInfo) -> Any:
        least = LEAST_TOKENS[found.field_name or ""]
        number = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if value != "auto" and not number:
            raise ValueError(f'{value!r} is not allowed: it is "auto" or a whole number of tokens, {least} or more')
        return value

    @property
    def auto_tokens(self) -> list[str]:
        """The names of LEAST_TOKENS that are "auto"."""
        return [name for name in LEAST_TOKENS if getattr(self, name) == "auto"]

    @property
    def step_tokens(self) -> tuple[int, int]:
        """`batch_tokens` and `graph_tokens`; of UNPLANNED_TOKENS where no stage has put a number in the place of "auto"."""
        batch, graph = (UNPLANNED_TOKENS[n] if n in self.auto_tokens else getattr(self, n) for n in LEAST_TOKENS)
        return batch, graph

"""Settings of the rl stage. Torch-free and ray-free: the recipe imports them."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from etude.core.plugins import is_import_path
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.train.feedback_settings import FeedbackSettings
from etude.learn.train.mtp_settings import FreshDraftsSettings
from etude.learn.train.settings import PolicyStepSettings
from etude.rl.region import RegionSettings, require_apart, require_lag, require_place
from etude.rl.reward_settings import RewardSettings
from etude.rollout.settings import AttemptSettings

Baseline = Literal["group", "category"]
BASELINES: tuple[Baseline, ...] = get_args(Baseline)

SetAside = Literal["none", "failed", "uniform"]


class EffortWeights(BaseModel):
    """Weights of the six quantities that make up the effort x of a rollout (Composer 2 technical report; values not disclosed)."""

    model_config = ConfigDict(extra="forbid")

    thinking_tokens: float = Field(default=0.01, ge=0, description="weight of a token of thinking")
    call_tokens: float = Field(default=0.01, ge=0, description="weight of a token of a tool call")
    tool_output_tokens: float = Field(default=0.005, ge=0, description="weight of a token that a tool gave back")
    message_tokens: float = Field(default=0.01, ge=0, description="weight of a token of a message to the person")
    calls: float = Field(default=0.5, ge=0, description="weight of one tool call")
    turns: float = Field(default=0.5, ge=0, description="weight of one turn")


class EffortFactors(BaseModel):
    """What the length penalty is multiplied by, by the effort that the agent was asked for (ours: the report names no numbers)."""

    model_config = ConfigDict(extra="forbid")

    low: float = Field(default=2.0, ge=0, description="factor where little effort was asked for")
    medium: float = Field(default=1.0, ge=0, description="factor at the usual effort")
    high: float = Field(default=0.5, ge=0, description="factor where much effort was asked for")


class LengthPenalty(BaseModel):
    """The concave length penalty: scale * factor of the effort * ((1 + k x)^(1 - q) - 1) / (k (1 - q))."""

    model_config = ConfigDict(extra="forbid")

    scale: float = Field(default=0.01, ge=0, description="reward lost per unit of penalty; 0 turns it off")
    k: float = Field(default=0.5, gt=0, description="curvature: how soon the penalty flattens")
    q: float = Field(default=1.0, ge=0, description="order: 0 is linear, 1 logarithmic, above 1 bounded")
    weights: EffortWeights = Field(default_factory=EffortWeights, description="weights of the six quantities")
    effort: EffortFactors = Field(default_factory=EffortFactors, description="factors by effort")


class CurriculumSettings(BaseModel):
    """Harder tasks more often later on, by the turns and thinking tokens of earlier rollouts (Composer 2 technical report)."""

    model_config = ConfigDict(extra="forbid")

    strength: float = Field(
        default=0.0,
        ge=0,
        le=10,
        description="at the end a task of the most turns and thinking is e^(2 x this) times as likely as one of the fewest; 0: all alike",
    )
    start: float = Field(default=0.5, ge=0, lt=1, description="share of the run before which all are alike")


class ClusterSettings(BaseModel):
    """A Ray cluster that is there already (docs/cluster.md). With the default, `address = ""`, the run starts its own Ray on this machine."""

    model_config = ConfigDict(extra="forbid")

    address: str = Field(default="", description='HOST:PORT of the cluster, or "auto" for the one of this machine')
    engine: dict[str, float] = Field(
        default_factory=dict,
        description="Ray resources that each engine takes, e.g. {GPU = 1}; empty: spread over the machines without counting",
    )
    trainer: dict[str, float] = Field(
        default_factory=dict,
        description="Ray resources that each trainer rank takes; empty: the machine where the run was started, without counting",
    )

    @model_validator(mode="after")
    def _resources_are_the_clusters(self) -> ClusterSettings:
        for name, taken in (("engine", self.engine), ("trainer", self.trainer)):
            if taken and not self.address:
                raise ValueError(
                    f"cluster.{name} = {taken} without cluster.address: a run on its own machine counts no resources; name the cluster"
                )
            if wrong := {resource: amount for resource, amount in taken.items() if amount <= 0}:
                raise ValueError(f"cluster.{name} has {wrong}: amounts are above 0; leave out what isn't needed")
        return self


class RlSettings(BaseModel):
    """How the asynchronous reinforcement learning stage runs."""

    model_config = ConfigDict(extra="forbid")

    steps: int = Field(default=40, ge=1, description="training steps")
    groups_per_step: int = Field(default=16, ge=1, description="groups (tasks) per step")
    group_size: int = Field(default=8, ge=1, description="rollouts per group; 1 needs a baseline of its own")
    baseline: str = Field(
        default="group",
        description="what a reward is held against: the mean of its group, or the running mean of its category over earlier steps (category); "
        "or module:name of a function of one's own (docs/extending/advantages.md)",
    )
    baseline_horizon: int = Field(
        default=256, ge=1, description="rewards of a category over which its running mean forgets"
    )
    max_staleness: int = Field(
        default=2, ge=0, description="most policy versions between sampling a token and training on it"
    )
    window: int | None = Field(
        default=None,
        ge=1,
        description="batches that may overtake: a batch is taken from the groups of this many oldest batches; 1 is first come, first "
        "trained; left out: any finished group, within max_staleness",
    )
    slots: int = Field(default=64, ge=1, description="rollouts kept running at once")
    engines: int = Field(default=1, ge=1, description="replicas of the engine, each in a process of its own")
    standbys: int = Field(
        default=0,
        ge=0,
        description="further replicas that are kept loaded and at the newest weights, and serve from the moment that another dies",
    )
    engine_silence_s: float = Field(
        default=300.0,
        gt=0,
        description="seconds without a sign of life after which an engine is ended and restarted",
    )
    weight_store: str = Field(
        default="",
        description="where the weights are published: a folder or s3://bucket/prefix; empty: the run folder's own",
    )
    regions: dict[str, RegionSettings] = Field(
        default_factory=dict, description="engines far away, each region with a weight store of its own (docs/rl.md)"
    )
    region_lag: int = Field(
        default=1,
        ge=0,
        description="versions that a region's engines may be behind and still be asked; groups are then admitted at their version, so this "
        "much of max_staleness goes to them; an engine that is further behind is away",
    )
    region_patience_s: float = Field(
        default=60.0,
        gt=0,
        description="seconds without a sign of life after which a region's engine is asked nothing and its turns in flight start again elsewhere; "
        "and without a new version, while there is one, after which deltas no longer start from what it holds",
    )
    drain_s: float = Field(
        default=120.0,
        ge=0,
        description="seconds that turns in flight may take to end before an engine that is replaced is ended (`etude reload`)",
    )
    ranks: int = Field(
        default=1,
        ge=1,
        description="processes that train together, each with the whole model and a share of a batch; changing it changes the weights' last bits",
    )
    parallel: ParallelLayout = Field(
        default_factory=ParallelLayout,
        description="processes that train together and hold a part of the model each, in place of ranks (docs/scale.md)",
    )
    rank_silence_s: float = Field(
        default=600.0,
        gt=0,
        description="seconds that trainer ranks wait for one another before all are ended and restarted; more than a step takes",
    )
    mode: Literal["async", "sync"] = Field(
        default="async", description="sync takes turns: generate a batch, then train on it"
    )
    threads: int = Field(
        default=1,
        ge=1,
        description="threads of the trainer, and of the engine unless engine_threads says otherwise; they work at the same time unless sync",
    )
    engine_threads: int | None = Field(
        default=None,
        ge=1,
        description="threads of the engine; left out: as many as the trainer's (docs/rl.md)",
    )
    device: Literal["cpu", "cuda"] = Field(
        default="cpu",
        description="where the trainer and its reference compute; cuda: each rank on one GPU, in fp32 (docs/rl.md)",
    )
    update: PolicyStepSettings = Field(
        default_factory=lambda: PolicyStepSettings.model_validate({}), description="the policy-gradient step"
    )
    drafts: FreshDraftsSettings = Field(
        default_factory=FreshDraftsSettings,
        description="lessons of the draft layers, if the checkpoint has any (docs/mtp.md)",
    )
    kl_beta: float = Field(
        default=0.0, ge=0, description="weight of the k1 KL to the initial policy, placed in the reward"
    )
    length: LengthPenalty = Field(default_factory=LengthPenalty, description="length penalty")
    efforts: dict[Literal["low", "medium", "high"], float] = Field(
        default_factory=dict,
        description="relative share of groups attempted at each effort, which the prompt states; empty: harness.effort for all",
    )
    feedback: FeedbackSettings = Field(
        default_factory=FeedbackSettings,
        description="targeted feedback on turns that the harness flags (docs/rewards.md)",
    )
    rewards: RewardSettings = Field(
        default_factory=RewardSettings, description="components in addition to outcome, KL and length"
    )
    levels: dict[str, float] = Field(
        default_factory=dict, description="relative share of each level of the exercises; empty: their own mix"
    )
    attempt: AttemptSettings = Field(default_factory=AttemptSettings, description="limits and retries of one rollout")
    curriculum: CurriculumSettings = Field(
        default_factory=CurriculumSettings, description="harder tasks more often later on"
    )
    set_aside: SetAside = Field(
        default="none",
        description="finished groups that give their place to other tasks: none, those where all failed, or all whose outcomes are the same",
    )
    spare: float = Field(
        default=0.5,
        ge=0,
        description="tasks to take for groups set aside, as a share of steps x groups_per_step; the run ends early when they are used up",
    )
    harder_above: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="a template whose last groups' mean exceeds this gives harder siblings of its tasks from then on; left out: never",
    )
    harder_candidates: int = Field(
        default=8,
        ge=0,
        description="candidates that are built, while the run trains, for a task of a folder whose template is mastered and has no harder "
        "sibling left; 0: none",
    )
    seed: int = Field(default=0, ge=0, description="seed of the schedule and of sampling")
    save_every: int = Field(
        default=10, ge=1, description="steps between checkpoints; a resume trains again from the last one"
    )
    anchor_every: int = Field(default=25, ge=1, description="steps between whole weight snapshots; deltas between them")
    max_faults: int = Field(
        default=8,
        ge=0,
        description="infra faults of one group before its task is set aside as unreachable, which the run says",
    )
    max_unreachable: int = Field(
        default=4,
        ge=0,
        description="tasks that may be set aside as unreachable, each with another in its place; one more stops the run, for then the cause is "
        "hardly the task's",
    )
    max_restarts: int = Field(
        default=3, ge=0, description="restarts of a dead engine or trainer process before the run stops"
    )
    keep_ended_bytes: int = Field(
        default=8 << 20,  # twice what an agent may leave by default, so that its tokens have room too
        ge=0,
        description="most bytes, compressed, of what an agent left that are kept until its verdict, so that a killed run grades it instead of "
        "rolling it out again; 0: none is kept",
    )
    keep_sessions: int = Field(
        default=1,
        ge=0,
        description="groups of each step whose sessions are kept as files, all rollouts of each; 0 is none",
    )
    solvable_tasks: int = Field(
        default=16,
        ge=0,
        description="tasks of the schedule that are attempted eight times before step 1, to report the solvable share; 0: none",
    )
    eval_every: int = Field(
        default=0,
        ge=0,
        description="steps between evaluations on validation tasks, on an engine of their own where there are several; 0 is never",
    )
    eval_tasks: int = Field(default=32, ge=1, description="validation tasks per evaluation")

    @property
    def staleness_bound(self) -> int:
        """Of tokens, at the step that trains on them."""
        return 0 if self.mode == "sync" else self.max_staleness

    @model_validator(mode="after")
    def _stores_are_apart(self) -> RlSettings:
        require_place(self.weight_store)
        require_apart(self.regions, self.weight_store)
        if self.regions:
            require_lag(self.region_lag, self.staleness_bound)
        return self

    @field_validator("baseline")
    @classmethod
    def _known_baseline(cls, baseline: str) -> str:
        if baseline not in BASELINES and not is_import_path(baseline):
            raise ValueError(f"{baseline!r} is none of {', '.join(BASELINES)}, and no import path (module:name)")
        return baseline

    @model_validator(mode="after")
    def _a_group_of_one_is_no_group(self) -> RlSettings:
        if self.group_size == 1 and self.baseline == "group":
            raise ValueError(
                'rl.group_size = 1 with rl.baseline = "group": a rollout alone is its own mean and would teach nothing; '
                'take rl.baseline = "category", or larger groups'
            )
        if self.group_size == 1 and self.set_aside != "none":
            raise ValueError(
                f'rl.set_aside = "{self.set_aside}" with rl.group_size = 1: every outcome of a single rollout is uniform; take larger groups'
            )
        return self

    @model_validator(mode="after")
    def _a_split_model_is_all_that_is_trained(self) -> RlSettings:
        if (split := self.parallel.ranks) == 1:
            return self
        others = {
            f"rl.ranks = {self.ranks}": self.ranks > 1,
            f"rl.feedback.weight = {self.feedback.weight:g}": self.feedback.weight > 0,
            f"rl.drafts.every = {self.drafts.every}": self.drafts.every > 0,
        }
        if found := [text for text, there in others.items() if there]:
            raise ValueError(
                f"rl.parallel splits the model over {split} ranks, which does not go with {found[0]} so far; set one of them back"
            )
        return self

    @property
    def trainer_ranks(self) -> int:
        """Processes of the trainer."""
        return self.ranks * self.parallel.ranks

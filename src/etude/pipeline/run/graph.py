"""The stage graph: which stages there are, what each reads, in the order they run."""

from __future__ import annotations

from etude.pipeline.run.stage import Stage

_AGENT = ("harness", "sandbox", "fleet", "exercises", "tasks")  # whatever lets an agent attempt a task
# Small models train little faster on two threads than on one (1.2 to 1.3 times), so two stages side by side use the cores better.
_HALF = 0.5
# While training runs, which has one thread: it goes at full speed, and the sandboxes take what is left.
_YIELDING = 5

GRAPH: tuple[Stage, ...] = (
    Stage(
        "corpus",
        spared_by=("sessions",),
        substitute="model.init",
        after=(),
        reads=("corpus", "exercises", "model.init", "pretrain.long.row_tokens"),
        body="etude.pipeline.run.stages.corpus:run",
        processes="one process",
    ),
    Stage(
        "base",
        spared_by=("short", "long", "sft", "competent_sft", "trials"),
        substitute="model.init",
        after=("corpus",),
        reads=("model", "pretrain.base", "pretrain.short.row_tokens"),
        body="etude.pipeline.run.stages.base:run",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "short",
        spared_by=("long", "sft", "competent_sft"),
        after=("base",),
        reads=("model.impl", "pretrain.base", "pretrain.short"),
        body="etude.pipeline.run.stages.short:run",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "mtp",
        spared_by=("long", "sft"),
        after=("short",),
        reads=("model.impl", "mtp", "pretrain.base", "pretrain.short", "harness.temperature"),
        body="etude.pipeline.run.stages.mtp:run",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "long",
        spared_by=("sft", "competent_sft"),
        after=("short", "mtp"),
        reads=("model.impl", "pretrain", "mtp.every"),
        body="etude.pipeline.run.stages.long:run",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "sessions",
        spared_by=("sft",),
        after=("corpus",),
        reads=("sessions", *_AGENT),
        body="etude.pipeline.run.stages.sessions:run",
        processes="harness loops in one process; sandboxes",
        share=_HALF,
        nice=_YIELDING,
    ),
    Stage(
        "sft",
        spared_by=("probes",),
        after=("long", "sessions"),
        reads=("model.impl", "sft", "mtp.every"),
        body="etude.pipeline.run.stages.sft:run",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "competent_sft",
        spared_by=("trials",),
        after=("long", "sessions"),
        reads=(
            "model.impl",
            "sft",
        ),
        body="etude.pipeline.run.stages.sft:run_competent",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "rl",
        after=("sft",),
        stand_ins={"sft": "run.sft_checkpoint"},
        reads=("model.impl", "rl", "engine", "run.sft_checkpoint", *_AGENT),
        body="etude.pipeline.run.stages.rl:run",
        processes="local Ray: engine, trainer, controller with the harness loops; sandboxes",
    ),
    Stage(
        "attempts",
        after=("sft",),
        stand_ins={"sft": "run.sft_checkpoint"},
        reads=("model.impl", "rl", "engine", "run.sft_checkpoint", "run.control_share", *_AGENT),
        body="etude.pipeline.run.stages.attempts:run",
        processes="engine thread and harness loops in one process; sandboxes",
    ),
    Stage(
        "rewarded_sft",
        after=("sft", "attempts", "rl"),
        stand_ins={"sft": "run.sft_checkpoint"},
        reads=("model.impl", "sft", "rl.update.lr", "rl.threads", "run.sft_checkpoint", "run.control_share"),
        body="etude.pipeline.run.stages.rewarded:run",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "trials",
        after=("base", "sft"),
        also=("competent_sft", "rl"),  # what is trained so far can be judged before the rest is
        reads=("model.impl", "bench", "engine", "run.sft_checkpoint", *_AGENT),
        body="etude.pipeline.run.stages.bench:run_trials",
        processes="engine thread and harness loops in one process; sandboxes",
        share=_HALF,
        nice=_YIELDING,
    ),
    Stage(
        "probes",
        spared_by=("report",),
        after=("sft",),
        also=("rl",),
        reads=("model.impl", "probes", "engine", "harness.temperature", "corpus.library", "run.without"),
        body="etude.pipeline.run.stages.probes:run",
        processes="one process, torch threads",
        share=_HALF,
    ),
    Stage(
        "bench",
        spared_by=("report",),
        after=("trials",),
        also=("rewarded_sft",),
        reads=("model.impl", "bench", "engine", "run.sft_checkpoint", *_AGENT),
        body="etude.pipeline.run.stages.bench:run",
        processes="engine thread and harness loops in one process; sandboxes",
    ),
    Stage(
        "report",
        after=("bench", "probes"),
        reads=("report",),
        body="etude.pipeline.run.stages.report:run",
        processes="one process",
        always=True,
    ),
)


def names(graph: tuple[Stage, ...] = GRAPH) -> list[str]:
    """Stage names in running order."""
    return [stage.name for stage in graph]

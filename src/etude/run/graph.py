"""The stage graph: which stages there are, what each reads, in the order they run."""

from __future__ import annotations

from etude.run.stage import Stage

_AGENT = ("harness", "sandbox", "exercises")  # whatever lets an agent attempt a task

GRAPH: tuple[Stage, ...] = (
    Stage(
        "base",
        after=(),
        reads=("model", "corpus", "exercises", "pretrain"),
        body="etude.run.stages.base:run",
        processes="one process, torch threads",
    ),
    Stage(
        "sft",
        after=("base",),
        reads=("sft", "sessions", *_AGENT),
        body="etude.run.stages.sft:run",
        processes="session collection in sandboxes, then one process with torch threads",
    ),
    Stage(
        "rl",
        after=("sft",),
        reads=("rl", "engine", "run.sft_checkpoint", *_AGENT),
        body="etude.run.stages.rl:run",
        processes="local Ray: engine, trainer, controller with the harness loops; sandboxes",
    ),
    Stage(
        "controls",
        after=("base", "sft", "rl"),
        reads=("sft", "sessions", "rl", *_AGENT),
        body="etude.run.stages.controls:run",
        processes="one process, torch threads",
    ),
    Stage(
        "bench",
        after=("base", "sft"),
        also=("rl", "controls"),  # what is trained so far can be judged before the rest is
        reads=("bench", "engine", "run.sft_checkpoint", *_AGENT),
        body="etude.run.stages.bench:run",
        processes="engine thread and harness loops in one process; sandboxes",
    ),
    Stage(
        "report",
        after=("bench",),
        reads=("report",),
        body="etude.run.stages.report:run",
        processes="one process",
        always=True,
    ),
)


def names(graph: tuple[Stage, ...] = GRAPH) -> list[str]:
    """Stage names in running order."""
    return [stage.name for stage in graph]

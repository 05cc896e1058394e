"""`etude launch`: the script with which a cluster's scheduler starts a recipe's ranks.

The script calls torchrun on each machine (`learn/parallel/launched.py`). It names this Python by its path, which all machines have to have.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Out, Overrides, Recipes
from etude.cli.verbs import APP_SETTINGS

if TYPE_CHECKING:
    from etude.pipeline.run.execute import Run

app = typer.Typer(
    help="Print the script with which a scheduler starts a recipe's ranks on its machines.", **APP_SETTINGS
)

# A job's ranks meet at a port of their own, for jobs may share a machine.
FIRST_PORT, PORTS = 20_000, 10_000
SCRIPT = """\
#!/bin/bash
{options}
set -euo pipefail
export OMP_NUM_THREADS={cpus}
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
exec srun --kill-on-bad-exit=1 {python} -m torch.distributed.run \\
  --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node {processes} \\
  --rdzv-id "$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}" --rdzv-backend c10d --rdzv-endpoint "$first:$(({first_port} + SLURM_JOB_ID % {ports}))" \\
  -m etude run {words}
"""


@app.callback()
def root() -> None:
    """Print the script with which a scheduler starts a recipe's ranks on its machines."""


@app.command()
def slurm(
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Out = None,
    last: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="End with this stage.")] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, metavar="N", help="Machines.")] = 1,
    processes: Annotated[int, typer.Option("--processes", min=1, metavar="N", help="Ranks on each machine.")] = 2,
    cpus: Annotated[int, typer.Option("--cpus", min=1, metavar="N", help="Cores for each rank.")] = 1,
    time: Annotated[
        str | None, typer.Option("--time", metavar="D-HH:MM:SS", help="Limit of the job. Default: the partition's.")
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="NAME", help="Partition. Default: the cluster's.")
    ] = None,
    json: Json = False,
) -> Answer:
    """Print a batch script: etude launch slurm laptop --nodes 2 --processes 4 --out /shared/run | sbatch.

    A job that Slurm requeues goes on where it was. The stages with a layout must have nodes x processes ranks; rl starts its own by Ray.
    """
    from etude.cli.prepare import prepare
    from etude.pipeline.run.plan import select

    found = prepare(recipes, overrides, out, None)
    selected = select(found.graph, None, None, last)
    require_ranks(found, selected, nodes * processes)
    words = [*(recipes or ["laptop"]), "--out", str(found.folder.resolve())]
    words += ["--until", last] if last else []
    words += [word for override in overrides or [] for word in ("--set", override)]
    options = {
        "job-name": f"etude-{found.recipe.run.name}", "nodes": nodes, "ntasks-per-node": 1, "cpus-per-task": processes * cpus,
        "time": time, "partition": partition, "output": f"{found.folder.resolve()}.slurm-%j.log", "open-mode": "append",
    }  # fmt: skip
    script = _script(options, processes, cpus, words)
    return Answer({"script": script, "ranks": nodes * processes, "run": str(found.folder)}, script.rstrip())


def _script(options: dict[str, Any], processes: int, cpus: int, words: list[str]) -> str:
    lines = [f"#SBATCH --{name}={shlex.quote(str(value))}" for name, value in options.items() if value is not None]
    return SCRIPT.format(
        options="\n".join([*lines, "#SBATCH --requeue"]),
        python=shlex.quote(sys.executable),
        processes=processes,
        cpus=cpus,
        first_port=FIRST_PORT,
        ports=PORTS,
        words=shlex.join(words),
    )


def require_ranks(run: Run, selected: list[str], ranks: int) -> None:
    """Raises RecipeError where no selected stage has a layout of that many ranks, or one has another."""
    from etude.cli.prepare import loops_over_ranks, require_layouts, require_world

    require_layouts(run, selected)
    require_world(loops_over_ranks(run, selected), ranks, f"the job has {ranks}")

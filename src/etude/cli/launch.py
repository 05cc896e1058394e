"""`etude launch`: what a cluster's scheduler is given to run a recipe: a batch script for Slurm, a manifest for KubeRay.

Slurm's script calls torchrun on each machine (`learn/parallel/launched.py`). It names this Python by its path, which all machines have to have.
KubeRay's manifest makes a Ray cluster on which stage rl places its processes (`docs/cluster.md`).
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json, Out, Overrides, Recipes
from etude.cli.verbs import APP_SETTINGS

if TYPE_CHECKING:
    from etude.pipeline.run.execute import Run

app = typer.Typer(help="Print what a scheduler is given to run a recipe on its machines.", **APP_SETTINGS)

# A job's ranks meet at a port of their own, for jobs may share a machine.
FIRST_PORT, PORTS = 20_000, 10_000
RETRIES = 3  # times that KubeRay starts a failed job again
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
    """Print what a scheduler is given to run a recipe on its machines."""


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
    words = _words(found, recipes, overrides, last)
    options = {
        "job-name": f"etude-{found.recipe.run.name}", "nodes": nodes, "ntasks-per-node": 1, "cpus-per-task": processes * cpus,
        "time": time, "partition": partition, "output": f"{found.folder.resolve()}.slurm-%j.log", "open-mode": "append",
    }  # fmt: skip
    script = _script(options, processes, cpus, words)
    return Answer({"script": script, "ranks": nodes * processes, "run": str(found.folder)}, script.rstrip())


Image = Annotated[str, typer.Option("--image", metavar="NAME", help="Container image with Etude and ray[default].")]
Volume = Annotated[
    str, typer.Option("--volume", metavar="CLAIM", help="Claim of a volume that many pods may write; --out lies in it.")
]
Workers = Annotated[int, typer.Option("--workers", min=0, metavar="N", help="Pods in addition to the head.")]


@app.command()
def kuberay(
    image: Image,
    volume: Volume,
    recipes: Recipes = None,
    overrides: Overrides = None,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", help="The run directory, in the volume, which is mounted at its parent."),
    ] = Path("/shared/run"),
    last: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="End with this stage.")] = None,
    workers: Workers = 1,
    cpus: Annotated[int, typer.Option("--cpus", min=1, metavar="N", help="Cores of each pod.")] = 8,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of each pod, such as 64Gi.")] = "32Gi",
    gpus: Annotated[int, typer.Option("--gpus", min=0, metavar="N", help="GPUs of each worker.")] = 0,
    json: Json = False,
) -> Answer:
    """Print a RayJob: etude launch kuberay laptop --image I --volume C | kubectl apply -f -. The head runs the recipe, rl uses all pods.

    The head is privileged, for sandboxes are made in it. A job that failed is started again and goes on where it was.
    """
    import yaml

    from etude.cli.prepare import prepare
    from etude.pipeline.run.plan import select

    if not out.is_absolute() or out.parent == Path("/"):
        raise ValueError(
            f"--out {out}: name a folder below one at which the volume can be mounted, such as /shared/run"
        )
    found = prepare(recipes, overrides, out, "auto")
    select(found.graph, None, None, last)
    words = ["etude", "run", *_words(found, recipes, overrides, last), "--address", "auto"]
    pod = {"image": image, "volume": volume, "mount": str(out.parent), "cpus": cpus, "memory": memory}
    manifest = ray_job(found.recipe.run.name, shlex.join(words), workers, gpus, pod)
    return Answer(manifest, yaml.safe_dump(manifest, sort_keys=False, width=1000).rstrip())


def ray_job(name: str, entrypoint: str, workers: int, gpus: int, pod: dict[str, Any]) -> dict[str, Any]:
    """A RayJob of ray.io/v1. `pod`: image, volume, mount, cpus and memory of each."""
    head = {"rayStartParams": {"num-cpus": str(pod["cpus"])}, "template": _pod("ray-head", 0, pod, privileged=True)}
    group = {
        "groupName": "workers",
        "replicas": workers,
        "minReplicas": workers,
        "maxReplicas": workers,
        "rayStartParams": {},
    }
    group["template"] = _pod("ray-worker", gpus, pod)
    cluster = {"rayVersion": version("ray"), "authOptions": {"mode": "token"}, "headGroupSpec": head}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": f"etude-{re.sub('[^a-z0-9-]+', '-', name.lower()).strip('-')}"},
        "spec": {
            "entrypoint": entrypoint,
            "shutdownAfterJobFinishes": True,
            "backoffLimit": RETRIES,
            "rayClusterSpec": {**cluster, "workerGroupSpecs": [group] if workers else []},
        },
    }


def _pod(name: str, gpus: int, pod: dict[str, Any], *, privileged: bool = False) -> dict[str, Any]:
    taken = {"cpu": str(pod["cpus"]), "memory": pod["memory"]} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    container: dict[str, Any] = {
        "name": name,
        "image": pod["image"],
        "resources": {"limits": taken, "requests": dict(taken)},
        "volumeMounts": [{"name": "shared", "mountPath": pod["mount"]}],
    }
    if privileged:
        container["securityContext"] = {"privileged": True}
    volume = {"name": "shared", "persistentVolumeClaim": {"claimName": pod["volume"]}}
    return {"spec": {"containers": [container], "volumes": [volume]}}


def _words(run: Run, recipes: list[str] | None, overrides: list[str] | None, last: str | None) -> list[str]:
    """What `etude run` is given."""
    words = [*(recipes or ["laptop"]), "--out", str(run.folder.resolve()), *(["--until", last] if last else [])]
    return words + [word for override in overrides or [] for word in ("--set", override)]


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

"""`etude launch` as a person types it. docs/scale.md says what was tried with a real Slurm and with KubeRay's schema."""

from __future__ import annotations

import subprocess

import pytest
import yaml
from here import Here, document

SPLIT = ("--set", "pretrain.short.loop.parallel.shard=8")


def test_a_batch_script_starts_as_many_ranks_as_the_layout_has(here: Here) -> None:
    words = (
        "launch",
        "slurm",
        "laptop",
        "--nodes",
        "2",
        "--processes",
        "4",
        "--until",
        "short",
        "--out",
        "a run",
        *SPLIT,
    )
    done = here(*words, "--time", "1-00:00:00", "--partition", "cpu", "--cpus", "3")
    assert done.returncode == 0, done.stderr
    assert subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=False).returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "#!/bin/bash"
    options = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines if line.startswith("#SBATCH"))
    assert options["nodes"] == "2" and options["ntasks-per-node"] == "1" and options["cpus-per-task"] == "12"
    assert options["time"] == "1-00:00:00" and options["partition"] == "cpu" and "requeue" in options
    assert "export OMP_NUM_THREADS=3" in lines and "--nproc-per-node 4 \\" in done.stdout
    assert lines[-1].startswith("  -m etude run laptop --out '/") and lines[-1].endswith(
        "/a run' --until short " + " ".join(SPLIT)
    )
    assert document(here(*words, "--json"))["ranks"] == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nodes", "3", *SPLIT), "pretrain.short.loop.parallel has 8 ranks, and the job has 6 processes; make them the same"),
        ((), "no selected stage has a layout, and the job has 2 processes; set its loop.parallel"),
        (("--until", "corpus", *SPLIT), "no selected stage has a layout"),
    ],
)  # fmt: skip
def test_a_job_of_another_size_is_refused_before_it_is_submitted(
    here: Here, words: tuple[str, ...], message: str
) -> None:
    done = here("launch", "slurm", "laptop", *words)
    assert done.returncode != 0 and message in done.stderr and not done.stdout


RAY_JOB = ("launch", "kuberay", "laptop", "--image", "registry/etude:1", "--volume", "shared-claim")


def test_a_ray_job_runs_the_recipe_on_a_cluster_of_its_pods(here: Here) -> None:
    done = here(*RAY_JOB, "--workers", "3", "--gpus", "2", "--set", "rl.engines=2", "--until", "rl")
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(done.stdout)
    assert (found["kind"], found["metadata"]["name"], found["spec"]["backoffLimit"]) == ("RayJob", "etude-laptop", 3)
    assert (
        found["spec"]["entrypoint"] == "etude run laptop --out /shared/run --until rl --set rl.engines=2 --address auto"
    )
    cluster = found["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    assert cluster["authOptions"] == {"mode": "token"} and group["replicas"] == 3
    head, worker = (part["template"]["spec"] for part in (cluster["headGroupSpec"], group))
    assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "nvidia.com/gpu" not in head["containers"][0]["resources"]["limits"]
    for pod in (head, worker):
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared-claim"}
        assert pod["containers"][0]["volumeMounts"] == [{"name": "shared", "mountPath": "/shared"}]
    assert here(*RAY_JOB, "--json").stdout.count("RayJob") == 1


@pytest.mark.parametrize("out", ["run", "/run"])
def test_a_folder_that_is_in_no_volume_is_refused(here: Here, out: str) -> None:
    done = here(*RAY_JOB, "--out", out)
    assert (
        done.returncode != 0
        and f"--out {out}: name a folder below one at which the volume can be mounted" in done.stderr
    )

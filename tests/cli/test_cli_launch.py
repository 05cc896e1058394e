"""`etude launch` as a person types it. docs/scale.md says what was tried with a real Slurm."""

from __future__ import annotations

import subprocess

import pytest
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

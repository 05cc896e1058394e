"""Grades exported directories as another harness would: their own solution, then their own `tests/test.sh`, read by the importer of foreign
directories, in a sandbox of the snapshot that the Dockerfile makes again elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from etude.sandbox.protocol import Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import KEY
from etude.tasks.environment.workspace import OVERLAY
from etude.tasks.graders.script import ScriptGrader
from etude.tasks.harbor import read_task
from etude.tasks.importers.terminal import read_foreign_task
from etude.tasks.task import Task

BELOW = "/tmp/harbor"  # a snapshot's sandbox has the host's root, which can't be written


@dataclass(frozen=True)
class Proof:
    """Scores by the directory's own script, and what it said."""

    reference: float
    nop: float
    output: str

    @property
    def good(self) -> bool:
        return self.reference == 1 and self.nop == 0


def foreign_task(folder: Path) -> Task:
    """The directory as the importer reads it; of ours only the files that its Dockerfile copies and the snapshot that replaces it.
    Raises TaskError, HarborError."""
    own, read = read_task(folder), read_foreign_task(folder, {})
    environment = {key: own.metadata[key] for key in (KEY, OVERLAY) if key in own.metadata}
    return replace(read, files=own.files, metadata={**read.metadata, **environment})


def as_it_is(spec: SandboxSpec, task: Task) -> SandboxSpec:
    return spec


async def prove_directory(folder: Path, pool: Machines) -> Proof:
    """Raises CandidateRejected where its solution can't be run, InfraError, TaskError."""
    task, grader = foreign_task(folder), ScriptGrader(as_it_is, BELOW)
    reference = await grader.grade(task, await grader.solved(task, pool), pool)
    nothing = await grader.grade(task, await grader.untouched(task, pool), pool)
    return Proof(reference.score, nothing.score, f"reference: {reference.reason}; nop: {nothing.reason}")

"""Harbor directories and Terminal-Bench's older folders as tasks: what they ask, their image by name, their tests hidden.

    Harbor            task.toml, instruction.md, environment/Dockerfile, tests/test.sh, solution/solve.sh
    Terminal-Bench    task.yaml, Dockerfile, run-tests.sh, tests/, solution.sh

A task runs in the image that its Dockerfile or `docker_image` tells, which is not built here: the suite names one of the layer
store for it, or running it is refused. The prompt rule is the Composer 2 report's for Terminal-Bench: the instruction, then where
files and the environment are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from etude.tasks.environment.environment import KEY, Environment, TestPlan
from etude.tasks.errors import TaskError
from etude.tasks.importers.harbor_settings import read_settings
from etude.tasks.importers.terminal_bench import HARBOR, Foreign, one_service, read_terminal_bench
from etude.tasks.importers.texts import files_below, maybe_text, text_of
from etude.tasks.place import folder_of
from etude.tasks.task import Task

# A Harbor directory (Terminal-Bench 2 and later): task.toml, instruction.md, environment/, tests/test.sh,
# solution/solve.sh.


SCRIPT = "test.sh"
# Marks of provenance at the head of an instruction, `<!-- ... canary ... -->`: for corpora to refuse it by, not for agents.
_CANARY = re.compile(r"^(<!--.*canary.*-->|#.*canary.*)$", re.IGNORECASE)


def read_harbor(folder: Path, variables: dict[str, str]) -> Foreign:
    """Raises TaskError."""
    settings = read_settings(folder / "task.toml", variables)
    environment = folder / "environment"
    one_service(environment / "docker-compose.yaml")
    if (folder / "trajectory.json").exists():
        raise TaskError(f"{folder / 'trajectory.json'} is refused: an agent here begins without a session of another's")
    tests = files_below(folder / "tests")
    if SCRIPT not in tests.texts:
        raise TaskError(f"task {settings.name or folder.name} has no tests/{SCRIPT}: nothing would grade it")
    if bundled := sorted({"Dockerfile", "docker-compose.yaml"}.intersection(tests.texts)):
        raise TaskError(f"{folder}/tests/{bundled[0]} is refused: tests run in a fork of the task's own environment")
    return Foreign(
        settings.name or folder.name,
        HARBOR,
        without_canary(text_of(folder / "instruction.md")),
        tests,
        SCRIPT,
        settings,
        maybe_text(environment / "Dockerfile"),
        solution=files_below(folder / "solution"),
        described=dict(settings.described),
    )


def without_canary(text: str) -> str:
    lines = text.split("\n")
    while lines and _CANARY.match(lines[0].strip()):
        lines.pop(0)
    return "\n".join(lines)


LEVEL, STYLE, GRADER = "terminal", "instruction", "script"
FORMATTING = (
    "Work in {workdir}. Every file that is asked for must be at exactly the path and under exactly the name that the task gives; "
    "a path without a leading / is below {workdir}. Only files below {workdir} are looked at in the end. The environment is the "
    "task's own machine, set up already and {network}: commands run there, beginning in {workdir}."
)
WORKDIR_OF = re.compile(r"(?im)^[^\S\n]*+WORKDIR\s+(\S+)[^\S\n]*+$")
FROM = re.compile(r"(?im)^[^\S\n]*+FROM\s+(?:--\S+\s+)*(\S+)")
DEFAULT_WORKDIR = "/app"  # of both formats' own tasks, where a Dockerfile says nothing


def read_foreign_tasks(folder: Path, variables: Mapping[str, str] | None = None) -> tuple[list[Task], dict[str, str]]:
    """Every task below, by folder, and why other folders are left out. `variables`: the values of `${VAR}` in a task's settings.
    Raises TaskError where there is none at all."""
    places = sorted({path.parent for name in ("task.toml", "task.yaml") for path in folder.rglob(name)})
    if not places:
        raise TaskError(f"{folder} holds neither a task.toml (Harbor) nor a task.yaml (Terminal-Bench)")
    found: dict[str, Task] = {}
    left_out: dict[str, str] = {}
    for place in places:
        try:
            task = read_foreign_task(place, variables or {})
            if task.id in found:
                raise TaskError(f"another folder holds a task {task.id!r} too")
        except TaskError as error:
            left_out[str(place)] = str(error)
            continue
        found[task.id] = task
    if not found:
        raise TaskError(
            f"{folder} holds no task that can be read: {next(iter(left_out.values()))} ({len(left_out)} folders)"
        )
    return list(found.values()), left_out


def read_foreign_task(folder: Path, variables: Mapping[str, str]) -> Task:
    """Raises TaskError."""
    harbor = (folder / "task.toml").is_file()
    return _task(read_harbor(folder, dict(variables)) if harbor else read_terminal_bench(folder))


def _task(read: Foreign) -> Task:
    folder_of(Path(), read.id)  # refuses what names no folder
    if not read.instruction.strip():
        raise TaskError(f"task {read.id} has an empty instruction")
    settings, workdir = read.settings, _workdir(read)
    for path in settings.artifacts:
        if not f"{path}/".startswith(f"{workdir.rstrip('/')}/"):
            raise TaskError(
                f"task {read.id}: the artifact {path} is refused: only files below {workdir} reach the tests"
            )
    network = f"with these hosts in reach: {', '.join(settings.hosts)}" if settings.hosts else "without a network"
    formatting = FORMATTING.format(workdir=workdir, network=network)
    return Task(
        id=read.id,
        category=settings.category,
        level=LEVEL,
        instruction=f"{read.instruction.strip()}\n\n{formatting}",
        files={},
        test_command=(),
        grader=GRADER,
        hidden=_hidden(read),
        split="heldout",
        metadata={
            "format": read.format,
            "image": _image(read),
            "dockerfile": read.dockerfile,
            "workdir": workdir,
            "style": STYLE,
            "agent_limit_s": settings.agent_timeout_s,
            "cpus": settings.cpus,
            "differs": list(settings.differs),
            "unread": list(settings.unread),
            "told": read.described,
            KEY: _environment(read).to_record(),
        },
    )


def _hidden(read: Foreign) -> dict[str, Any]:
    """What the grader needs and the agent does not see."""
    settings = read.settings
    return {
        "tests": read.tests.texts,
        "tests_binary": read.tests.binaries,
        "script": read.script,
        "parser": read.parser,
        "solve": read.solution.texts,
        "solve_binary": read.solution.binaries,
        "solve_env": settings.solution_env,
        "env": settings.verifier_env,
        "hosts": list(settings.verifier_hosts),
        "artifacts": list(settings.artifacts),
        "limit_s": settings.verifier_timeout_s,
    }


def in_image(task: Task, image: str) -> Task:
    """The task, to be run in this image of the layer store wherever it is run."""
    return replace(task, metadata={**task.metadata, KEY: {**task.metadata[KEY], "image": image}})


def _environment(read: Foreign) -> Environment:
    settings = read.settings
    return Environment(
        read.id,
        "",
        "any",
        tests=TestPlan("exit"),
        env=settings.env,
        start_script=settings.health,
        memory_mb=settings.memory_mb,
        disk_mb=settings.storage_mb,
        workdir=_workdir(read),
        hosts=settings.hosts,
    )


def _image(read: Foreign) -> str:
    if read.settings.image:
        return read.settings.image
    base = FROM.search(read.dockerfile)
    return f"a Dockerfile over {base[1]}" if base else "an image it does not name"


def _workdir(read: Foreign) -> str:
    found = [read.settings.workdir] if read.settings.workdir else WORKDIR_OF.findall(read.dockerfile)
    workdir = (found[-1].strip("\"'").rstrip("/") or "/") if found else DEFAULT_WORKDIR
    if not workdir.startswith("/") or "$" in workdir or ".." in workdir:
        raise TaskError(
            f"task {read.id}: its Dockerfile or settings work in {workdir!r}; write an absolute path without variables there"
        )
    return workdir

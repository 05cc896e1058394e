"""Harbor directories and Terminal-Bench's older folders as tasks: what they ask, their image by name, their tests hidden.

    Harbor            task.toml, instruction.md, environment/Dockerfile, tests/test.sh, solution/solve.sh
    Terminal-Bench    task.yaml, Dockerfile, run-tests.sh, tests/, solution.sh

A task runs in the image that its Dockerfile or `docker_image` tells, which is not built here: the suite names one of the layer
store for it, or running it is refused (`environment.py`). The prompt rule is the Composer 2 report's for Terminal-Bench: the
instruction, then where files must be.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from etude.bench.suites.errors import SuiteError
from etude.tasks.task import Task

LEVEL, STYLE, GRADER = "terminal", "instruction", "script"
FORMATTING = (
    "Work in {workdir}. Every file that is asked for must be at exactly the path and under exactly the name that the task gives; "
    "a path without a leading / is below {workdir}. Only files below {workdir} are looked at in the end."
)
WORKDIR_OF = re.compile(r"(?im)^\s*WORKDIR\s+(\S+)\s*$")
FROM = re.compile(r"(?im)^\s*FROM\s+(\S+)")
DEFAULT_WORKDIR = "/app"  # of both formats' own tasks, where a Dockerfile says nothing
DEFAULT_TIMEOUT_S = 900.0


def read_foreign_tasks(folder: Path) -> list[Task]:
    """Every task below, by folder. Raises SuiteError that names the file."""
    places = sorted({path.parent for name in ("task.toml", "task.yaml") for path in folder.rglob(name)})
    if not places:
        raise SuiteError(f"{folder} holds neither a task.toml (Harbor) nor a task.yaml (Terminal-Bench)")
    tasks = [_harbor(place) if (place / "task.toml").is_file() else _terminal_bench(place) for place in places]
    for number, task in enumerate(tasks):
        if any(task.id == other.id for other in tasks[:number]):
            raise SuiteError(f"{places[number]}: another folder holds a task {task.id!r} too")
    return tasks


def _harbor(folder: Path) -> Task:
    try:
        described = tomllib.loads(_text(folder / "task.toml"))
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{folder / 'task.toml'} does not parse: {error}") from error
    environment, verifier, metadata = (described.get(key, {}) for key in ("environment", "verifier", "metadata"))
    dockerfile = _maybe(folder / "environment" / "Dockerfile")
    return _task(
        str(described.get("task", {}).get("name") or folder.name),
        str(metadata.get("category") or "terminal"),
        _text(folder / "instruction.md"),
        dockerfile,
        str(environment.get("docker_image") or ""),
        _texts(folder / "tests"),
        "test.sh",
        _texts(folder / "solution"),
        float(verifier.get("timeout_sec") or verifier.get("timeout_s") or verifier.get("timeout") or DEFAULT_TIMEOUT_S),
        "harbor",
    )


def _terminal_bench(folder: Path) -> Task:
    import yaml

    try:
        described = yaml.safe_load(_text(folder / "task.yaml"))
    except yaml.YAMLError as error:
        raise SuiteError(f"{folder / 'task.yaml'} does not parse: {error}") from error
    if not isinstance(described, Mapping) or not isinstance(described.get("instruction"), str):
        raise SuiteError(f"{folder / 'task.yaml'} has no instruction")
    tests = _texts(folder / "tests") | {"run-tests.sh": _text(folder / "run-tests.sh")}
    solution = {"solve.sh": text} if (text := _maybe(folder / "solution.sh")) else {}
    limit_s = float(described.get("max_test_timeout_sec") or DEFAULT_TIMEOUT_S)
    dockerfile = _maybe(folder / "Dockerfile")
    category = str(described.get("category") or "terminal")
    return _task(
        folder.name,
        category,
        described["instruction"],
        dockerfile,
        "",
        tests,
        "run-tests.sh",
        solution,
        limit_s,
        "terminal-bench",
    )


def _task(
    task_id: str,
    category: str,
    instruction: str,
    dockerfile: str,
    image: str,
    tests: dict[str, str],
    script: str,
    solution: dict[str, str],
    limit_s: float,
    kind: str,
) -> Task:
    if script not in tests:
        raise SuiteError(f"task {task_id} has no {script}: nothing would grade it")
    found = WORKDIR_OF.findall(dockerfile)
    workdir = found[-1].rstrip("/") or "/" if found else DEFAULT_WORKDIR
    if not image:
        base = FROM.search(dockerfile)
        image = f"a Dockerfile over {base[1]}" if base else "an image it does not name"
    return Task(
        id=task_id,
        category=category,
        level=LEVEL,
        instruction=f"{instruction.strip()}\n\n{FORMATTING.format(workdir=workdir)}",
        files={},
        test_command=(),
        grader=GRADER,
        hidden={"tests": tests, "script": script, "solve": solution, "limit_s": limit_s},
        split="heldout",
        metadata={"format": kind, "image": image, "dockerfile": dockerfile, "workdir": workdir, "style": STYLE},
    )


def _texts(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): _text(path) for path in files}


def _maybe(path: Path) -> str:
    return _text(path) if path.is_file() else ""


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise SuiteError(f"{path} is missing: the task can't be imported without it") from None
    except UnicodeDecodeError:
        raise SuiteError(f"{path} is no UTF-8 text: a task of ours holds text alone") from None

"""Harbor directories and Terminal-Bench's older folders as tasks: what they ask, their image by name, their tests hidden.

    Harbor            task.toml, instruction.md, environment/Dockerfile, tests/test.sh, solution/solve.sh
    Terminal-Bench    task.yaml, Dockerfile, run-tests.sh, tests/, solution.sh

A task runs in the image that its Dockerfile or `docker_image` tells, which is not built here: the suite names one of the layer
store for it, or running it is refused (`environment.py`). The prompt rule is the Composer 2 report's for Terminal-Bench: the
instruction, then where files and the environment are.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.tasks.errors import TaskError
from etude.tasks.place import folder_of
from etude.tasks.task import Task

LEVEL, STYLE, GRADER = "terminal", "instruction", "script"
FORMATTING = (
    "Work in {workdir}. Every file that is asked for must be at exactly the path and under exactly the name that the task gives; "
    "a path without a leading / is below {workdir}. Only files below {workdir} are looked at in the end. The environment is the "
    "task's own machine, set up already and without a network: commands run there, beginning in {workdir}."
)
WORKDIR_OF = re.compile(r"(?im)^\s*WORKDIR\s+(\S+)\s*$")
FROM = re.compile(r"(?im)^\s*FROM\s+(?:--\S+\s+)*(\S+)")
DEFAULT_WORKDIR = "/app"  # of both formats' own tasks, where a Dockerfile says nothing
DEFAULT_TIMEOUT_S = 900.0
MAX_FILE_BYTES = 8 << 20  # what a task's file may be: it is held as text


@dataclass(frozen=True)
class Foreign:
    """A folder as either format tells it."""

    id: str
    format: str
    category: str
    instruction: str
    tests: dict[str, str]
    script: str
    dockerfile: str = ""
    image: str = ""
    solution: dict[str, str] = field(default_factory=dict)
    limit_s: float = DEFAULT_TIMEOUT_S


def read_foreign_tasks(folder: Path) -> tuple[list[Task], dict[str, str]]:
    """Every task below, by folder, and why other folders are left out. Raises TaskError where there is none at all."""
    places = sorted({path.parent for name in ("task.toml", "task.yaml") for path in folder.rglob(name)})
    if not places:
        raise TaskError(f"{folder} holds neither a task.toml (Harbor) nor a task.yaml (Terminal-Bench)")
    found: dict[str, Task] = {}
    left_out: dict[str, str] = {}
    for place in places:
        try:
            read = _harbor(place) if (place / "task.toml").is_file() else _terminal_bench(place)
            task = _task(read)
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


def _harbor(folder: Path) -> Foreign:
    place = folder / "task.toml"
    try:
        described = tomllib.loads(_text(place))
    except tomllib.TOMLDecodeError as error:
        raise TaskError(f"{place} does not parse: {error}") from error
    task, environment, verifier, metadata = (
        _table(described, key, place) for key in ("task", "environment", "verifier", "metadata")
    )
    limit = next((verifier[key] for key in ("timeout_sec", "timeout_s", "timeout") if key in verifier), None)
    return Foreign(
        _word(task, "name", folder.name, place),
        "harbor",
        _word(metadata, "category", "terminal", place),
        _text(folder / "instruction.md"),
        _texts(folder / "tests"),
        "test.sh",
        _maybe(folder / "environment" / "Dockerfile"),
        _word(environment, "docker_image", "", place),
        _texts(folder / "solution"),
        _seconds(limit, place),
    )


def _terminal_bench(folder: Path) -> Foreign:
    import yaml

    place = folder / "task.yaml"
    try:
        described = yaml.safe_load(_text(place))
    except (yaml.YAMLError, RecursionError) as error:
        raise TaskError(f"{place} does not parse: {error}") from error
    if not isinstance(described, Mapping) or not isinstance(described.get("instruction"), str):
        raise TaskError(f"{place} has no instruction")
    solution = _maybe(folder / "solution.sh")
    return Foreign(
        folder.name,
        "terminal-bench",
        _word(described, "category", "terminal", place),
        described["instruction"],
        _texts(folder / "tests") | {"run-tests.sh": _text(folder / "run-tests.sh")},
        "run-tests.sh",
        _maybe(folder / "Dockerfile"),
        solution={"solve.sh": solution} if solution else {},
        limit_s=_seconds(described.get("max_test_timeout_sec"), place),
    )


def _task(read: Foreign) -> Task:
    folder_of(Path(), read.id)  # refuses what names no folder
    if read.script not in read.tests:
        raise TaskError(f"task {read.id} has no {read.script}: nothing would grade it")
    if not read.instruction.strip():
        raise TaskError(f"task {read.id} has an empty instruction")
    workdir = _workdir(read)
    image = read.image
    if not image:
        base = FROM.search(read.dockerfile)
        image = f"a Dockerfile over {base[1]}" if base else "an image it does not name"
    return Task(
        id=read.id,
        category=read.category,
        level=LEVEL,
        instruction=f"{read.instruction.strip()}\n\n{FORMATTING.format(workdir=workdir)}",
        files={},
        test_command=(),
        grader=GRADER,
        hidden={"tests": read.tests, "script": read.script, "solve": read.solution, "limit_s": read.limit_s},
        split="heldout",
        metadata={
            "format": read.format, "image": image, "dockerfile": read.dockerfile, "workdir": workdir, "style": STYLE,
        },
    )  # fmt: skip


def _workdir(read: Foreign) -> str:
    found = WORKDIR_OF.findall(read.dockerfile)
    workdir = (found[-1].strip("\"'").rstrip("/") or "/") if found else DEFAULT_WORKDIR
    if not workdir.startswith("/") or "$" in workdir or ".." in workdir:
        raise TaskError(
            f"task {read.id}: its Dockerfile works in {workdir!r}; write an absolute path without variables there"
        )
    return workdir


def _table(row: Mapping[str, Any], key: str, place: Path) -> Mapping[str, Any]:
    found = row.get(key, {})
    if not isinstance(found, Mapping):
        raise TaskError(f"{place}: {key} must be a table, not {found!r}")
    return found


def _word(row: Mapping[str, Any], key: str, otherwise: str, place: Path) -> str:
    found = row.get(key) or otherwise
    if not isinstance(found, str):
        raise TaskError(f"{place}: {key} must be a text, not {str(found)[:60]!r}")
    return found


def _seconds(value: Any, place: Path) -> float:
    if value is None:
        return DEFAULT_TIMEOUT_S
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise TaskError(f"{place}: the tests' time limit must be seconds above 0, not {str(value)[:60]!r}")
    return float(value)


def _texts(folder: Path) -> dict[str, str]:
    found = sorted(folder.rglob("*")) if folder.is_dir() else []
    return {path.relative_to(folder).as_posix(): _text(path) for path in found if path.is_symlink() or path.is_file()}


def _maybe(path: Path) -> str:
    return _text(path) if path.is_symlink() or path.is_file() else ""


def _text(path: Path) -> str:
    """A file of somebody else's: a link could show any file of this machine, and is refused."""
    if path.is_symlink():
        raise TaskError(f"{path} is a link; a task's folder holds plain files alone")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TaskError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        raise TaskError(f"{path} is missing: the task can't be imported without it") from None
    except UnicodeDecodeError:
        raise TaskError(f"{path} is no UTF-8 text: a task of ours holds text alone") from None

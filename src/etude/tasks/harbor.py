"""A task as a Harbor directory and back, without loss: `read_task(write_task(task, folder)) == task`.

    instruction.md            the request
    task.toml                 [task], [environment], [agent], [verifier] as Harbor names their keys; ours in [metadata.etude]
    environment/Dockerfile    and environment/files/: the agent's workspace
    tests/test.sh             and tests/hidden.json: uploaded for grading only
    solution/solve.sh         and solution/files/: the reference

What is written here is graded by `tests/test.sh` where this package is installed. Of a project that was installed by a recipe `export/` writes
the same directory with the installation and with a grader that needs nothing (`extra_files`, `settings`).
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import tomli_w

from etude.core import bounded_toml
from etude.sandbox.spec import WORKDIR
from etude.tasks.content import (
    MODES,
    PLAIN,
    Mode,
    file_text,
    hidden_from_json,
    hidden_to_json,
    mode_of,
    read_file,
    write_file,
)
from etude.tasks.task import Task

# JSON values as TOML can hold them, and back without loss: null, which TOML does not have, is taken out and its
# places are recorded.


Place = list[str | int]  # keys and numbers from the outermost inwards


def without_nulls(value: dict[str, Any]) -> tuple[dict[str, Any], list[Place]]:
    """The value, and where nulls were: keys of tables are left out, in lists an empty text replaces it."""
    places: list[Place] = []
    return _without(value, [], places), places


def with_nulls(value: dict[str, Any], places: list[Place]) -> dict[str, Any]:
    """The value with its nulls where they were. Raises KeyError, IndexError, TypeError for places that it doesn't have."""
    for *holders, last in places:
        inner: Any = value
        for step in holders:
            inner = inner[step]
        inner[last] = None
    return value


def _without(value: Any, at: Place, places: list[Place]) -> Any:
    if isinstance(value, dict):
        places += [[*at, key] for key, inner in value.items() if inner is None]
        return {key: _without(inner, [*at, key], places) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        places += [[*at, number] for number, inner in enumerate(value) if inner is None]
        return ["" if inner is None else _without(inner, [*at, number], places) for number, inner in enumerate(value)]
    return value


# The interpreter the exercises are made for; any slim image of it serves.
IMAGE = "python:3.11-slim"

WORKSPACES = ("environment/files/", "solution/files/")  # a task's own files, whose modes are the task's
DOCKERFILE = f"FROM {IMAGE}\nWORKDIR {WORKDIR}\nCOPY files/ {WORKDIR}/\n"
SOLVE = f'#!/bin/sh\nset -e\ncp -R "$(dirname "$0")/files/." {WORKDIR}/\n'
TEST = """\
#!/bin/sh
# Writes the score to /logs/verifier/reward.json. Needs `pip install etude` in the verifier's image.
mkdir -p /logs/verifier
exec python -m etude.tasks.harbor_test "$(dirname "$0")/.." /work /logs/verifier/reward.json
"""
# As Harbor names them. A separate verifier starts from the environment as it was built, with the declared artifacts alone in it.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "agent": {"timeout_sec": 120.0},
    "verifier": {"timeout_sec": 30.0, "environment_mode": "separate"},
    "environment": {
        "build_timeout_sec": 1800.0,
        "cpus": 1,
        "memory_mb": 512,
        "storage_mb": 10240,
        "network_mode": "no-network",
    },
}


class HarborError(ValueError):
    """A directory that is no task of ours; says which file and what is wrong with it."""


def write_task(
    task: Task,
    folder: Path,
    extra_files: Mapping[str, bytes] | None = None,
    settings: Mapping[str, Mapping[str, Any]] = SETTINGS,
) -> Path:
    """Writes the directory (which must not exist yet, or be empty) and returns it. `extra_files`: further files, or others in place of these;
    `settings`: tables of task.toml."""
    if folder.exists() and any(folder.iterdir()):
        raise HarborError(f"{folder} is not empty; name a new directory for the task {task.id}")
    texts = {
        "instruction.md": task.instruction + "\n",
        "task.toml": _toml(task, settings),
        "environment/Dockerfile": DOCKERFILE,
        "tests/test.sh": TEST,
        "tests/hidden.json": json.dumps(hidden_to_json(task.hidden), indent=1, ensure_ascii=False) + "\n",
        "solution/solve.sh": _solve(task),
        **{f"environment/files/{_safe(path)}": text for path, text in task.files.items()},
        **{f"solution/files/{_safe(path)}": text for path, text in task.solution.items()},
    }
    whole = {path: text.encode() for path, text in texts.items()} | dict(extra_files or {})
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in whole.items():
        write_file(folder, _safe(path), data)  # bytes: line ends stay as they are
        if path.endswith(".sh") and not path.startswith(WORKSPACES):
            (folder / path).chmod(0o755)
    return folder


def read_task(folder: Path) -> Task:
    """The task of a directory that `write_task` made; raises HarborError."""
    try:
        described = bounded_toml.loads(_read(folder / "task.toml"))
        etude_table = described["metadata"]["etude"]
        hidden = hidden_from_json(json.loads(_read(folder / "tests" / "hidden.json")))
        modes = etude_table.get("modes", {})
        return Task(
            id=etude_table["id"],
            category=etude_table["category"],
            level=etude_table["level"],
            instruction=_read(folder / "instruction.md").removesuffix("\n"),
            files=_tree(folder / "environment" / "files", etude_table["files"], modes.get("files", {})),
            test_command=tuple(etude_table["test_command"]),
            grader=etude_table["grader"],
            hidden=hidden,
            solution=_tree(folder / "solution" / "files", etude_table["solution"], modes.get("solution", {})),
            split=etude_table["split"],
            metadata=_metadata(etude_table),
        )
    except KeyError as error:
        raise HarborError(
            f"{folder}/task.toml lacks {error} under [metadata.etude]; only our own exports read back"
        ) from error
    except (bounded_toml.TomlRefused, json.JSONDecodeError, RecursionError) as error:
        raise HarborError(f"{folder} holds a file that does not parse: {error}") from error
    except (IndexError, TypeError, AttributeError) as error:
        raise HarborError(
            f"{folder}/task.toml holds something else under [metadata.etude] than was exported: {error}"
        ) from error


def _metadata(etude_table: Mapping[str, Any]) -> dict[str, Any]:
    """Directories of before had it as one text of JSON."""
    if "metadata_json" in etude_table:
        return json.loads(etude_table["metadata_json"])
    return with_nulls(etude_table["metadata"], etude_table["nulls"])


def _solve(task: Task) -> str:
    """The reference's files, and those away that it takes away."""
    gone = [f"rm -f -- {shlex.quote(f'{WORKDIR}/{_safe(path)}')}\n" for path in task.metadata.get("removed") or ()]
    return SOLVE + "".join(gone)


def _toml(task: Task, settings: Mapping[str, Mapping[str, Any]]) -> str:
    metadata, nulls = without_nulls(task.metadata)
    etude_table: dict[str, Any] = {
        "id": task.id,
        "category": task.category,
        "level": task.level,
        "split": task.split,
        "grader": task.grader,
        "test_command": list(task.test_command),
        "files": list(task.files),
        "solution": list(task.solution),
        **({"modes": modes} if (modes := _modes(task)) else {}),
        "nulls": nulls,
        "metadata": metadata,
    }
    name = f"etude/{task.id.replace('/', '-')}"
    described = {"name": name, "description": task.instruction, "keywords": [task.category, task.level]}
    document = {
        "schema_version": "1.0",
        "artifacts": [WORKDIR],
        "task": described,
        **{name: dict(table) for name, table in settings.items()},
        "metadata": {"category": task.category, "etude": etude_table},
    }
    return tomli_w.dumps(document)


def _modes(task: Task) -> dict[str, dict[str, str]]:
    """Of the files that are not plain; a copy of the directory may lose the modes themselves."""
    trees = {"files": task.files, "solution": task.solution}
    found = {
        name: {path: mode_of(text) for path, text in tree.items() if mode_of(text) != PLAIN}
        for name, tree in trees.items()
    }
    return {name: modes for name, modes in found.items() if modes}


def _safe(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or str(PurePosixPath(*parts)) != path:
        raise HarborError(f"the task holds the path {path!r}; only plain relative paths can be exported")
    return path


def _tree(folder: Path, paths: list[str], modes: Mapping[str, Mode]) -> dict[str, str]:
    """The listed files, in the listed order."""
    found: dict[str, str] = {}
    for path in paths:
        mode = modes.get(path, PLAIN)
        if mode not in MODES:
            raise HarborError(f"{folder / path} has the mode {mode!r}; there are {', '.join(MODES)}")
        try:
            found[path] = file_text(bytes(read_file(folder / _safe(path))), mode)
        except OSError as error:
            raise HarborError(f"{folder / path} can't be read: {error}; export the task again") from error
    return found


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise HarborError(f"{path} is missing; export the task again") from error
    except UnicodeDecodeError as error:
        raise HarborError(f"{path} is no UTF-8 text: {error}") from error

"""A task as a Harbor directory and back, without loss: `read_task(write_task(task, folder)) == task`.

    instruction.md            the request
    task.toml                 [task], [environment], [agent], [verifier] for any Harbor harness; ours in [metadata.etude]
    environment/Dockerfile    and environment/files/: the agent's workspace
    tests/test.sh             and tests/hidden.json: uploaded for grading only
    solution/solve.sh         and solution/files/: the reference

Another harness grades with `tests/test.sh`, which needs this package in the verifier's image; we grade with `registry`.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

from etude.sandbox.spec import WORKDIR
from etude.tasks.task import Task

# The interpreter the exercises are made for; any slim image of it serves.
IMAGE = "python:3.11-slim"

DOCKERFILE = f"FROM {IMAGE}\nWORKDIR {WORKDIR}\nCOPY files/ {WORKDIR}/\n"
SOLVE = f'#!/bin/sh\nset -e\ncp -R "$(dirname "$0")/files/." {WORKDIR}/\n'
TEST = """\
#!/bin/sh
# Writes the score to /logs/verifier/reward.json. Needs `pip install etude` in the verifier's image.
mkdir -p /logs/verifier
exec python -m etude.tasks.harbor_test "$(dirname "$0")/.." /work /logs/verifier/reward.json
"""

_PLAIN = re.compile(r"^[A-Za-z0-9_-]+$")


class HarborError(ValueError):
    """A directory that is no task of ours; says which file and what is wrong with it."""


def write_task(task: Task, folder: Path) -> Path:
    """Writes the directory (which must not exist yet, or be empty) and returns it."""
    if folder.exists() and any(folder.iterdir()):
        raise HarborError(f"{folder} is not empty; name a new directory for the task {task.id}")
    texts = {
        "instruction.md": task.instruction + "\n",
        "task.toml": _toml(task),
        "environment/Dockerfile": DOCKERFILE,
        "tests/test.sh": TEST,
        "tests/hidden.json": json.dumps(task.hidden, indent=1, ensure_ascii=False) + "\n",
        "solution/solve.sh": SOLVE,
        **{f"environment/files/{_safe(path)}": text for path, text in task.files.items()},
        **{f"solution/files/{_safe(path)}": text for path, text in task.solution.items()},
    }
    for path, text in texts.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode("utf-8"))  # bytes: line ends stay as they are
        if path.endswith(".sh"):
            place.chmod(0o755)
    return folder


def read_task(folder: Path) -> Task:
    """The task of a directory that `write_task` made; raises HarborError."""
    try:
        described = tomllib.loads(_read(folder / "task.toml"))
        ours = described["metadata"]["etude"]
        hidden = json.loads(_read(folder / "tests" / "hidden.json"))
        return Task(
            id=ours["id"],
            category=ours["category"],
            level=ours["level"],
            instruction=_read(folder / "instruction.md").removesuffix("\n"),
            files=_tree(folder / "environment" / "files", ours["files"]),
            test_command=tuple(ours["test_command"]),
            grader=ours["grader"],
            hidden=hidden,
            solution=_tree(folder / "solution" / "files", ours["solution"]),
            split=ours["split"],
            metadata=json.loads(ours["metadata_json"]),
        )
    except KeyError as error:
        raise HarborError(
            f"{folder}/task.toml lacks {error} under [metadata.etude]; only our own exports read back"
        ) from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise HarborError(f"{folder} holds a file that does not parse: {error}") from error


def _toml(task: Task) -> str:
    ours: dict[str, Any] = {
        "id": task.id,
        "category": task.category,
        "level": task.level,
        "split": task.split,
        "grader": task.grader,
        "test_command": list(task.test_command),
        "files": list(task.files),
        "solution": list(task.solution),
        # Free-form values keep their JSON types, null included, which TOML does not have.
        "metadata_json": json.dumps(task.metadata, ensure_ascii=False),
    }
    tables: dict[str, dict[str, Any]] = {
        "task": {"name": task.id, "description": task.instruction, "keywords": [task.category, task.level]},
        "environment": {"docker_image": IMAGE, "cpus": 1, "memory_mb": 512, "network": "no-network"},
        "agent": {"timeout_s": 120},
        "verifier": {"timeout_s": 30, "environment_mode": "separate"},
        "metadata.etude": ours,
    }
    return "\n".join(f"[{name}]\n" + "".join(_pair(*item) for item in table.items()) for name, table in tables.items())


def _pair(key: str, value: Any) -> str:
    assert _PLAIN.match(key), key
    return f"{key} = {_literal(value)}\n"


def _literal(value: Any) -> str:
    """TOML of a string, integer or list of them. TOML's basic strings are JSON's, but for DEL and paired escapes."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _safe(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or str(PurePosixPath(*parts)) != path:
        raise HarborError(f"the task holds the path {path!r}; only plain relative paths can be exported")
    return path


def _tree(folder: Path, paths: list[str]) -> dict[str, str]:
    """The listed files, in the listed order."""
    return {path: _read(folder / _safe(path)) for path in paths}


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise HarborError(f"{path} is missing; export the task again") from error
    except UnicodeDecodeError as error:
        raise HarborError(f"{path} is no UTF-8 text: {error}") from error

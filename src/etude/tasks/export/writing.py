"""A task of an installed project as a Harbor directory that any harness can build and grade.

    environment/Dockerfile, install/     the recipe's steps and pinned versions (`installation.py`)
    tests/test.sh, lib/, tree/           the grader (`here.py`, `carried.py`), and the base's tests and settings with the reference's over them

Grader `commands` alone is carried along: other kinds judge more than expected tests, and are graded where this package is installed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import environment_of
from etude.tasks.export.installation import Installation
from etude.tasks.graders.commands import NAME
from etude.tasks.graders.judged import limit_s
from etude.tasks.harbor import SETTINGS, write_task
from etude.tasks.protected import is_protected
from etude.tasks.task import Task

# The modules that grade inside an exported task's machine, as files: those that `here` imports, directly or through
# others, and no more.


ROOT = "etude.tasks.export.here"
INSIDE = "etude/tasks/running/inside"


@cache
def runtime_files() -> dict[str, bytes]:
    """By path below the folder that is put on `sys.path`. Raises ModuleNotFoundError for an import that is neither ours nor the library's."""
    found: dict[str, bytes] = {}
    waiting = [ROOT]
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if path in found:
            continue
        data = _resource(path)
        found[path] = data
        waiting += _imports(ast.parse(data))
        waiting += [module.rpartition(".")[0]] if "." in module else []
    scripts = files("etude.tasks.running") / "inside"
    for entry in scripts.iterdir():
        if entry.name.startswith("etude_") and entry.is_file():
            found[f"{INSIDE}/{entry.name}"] = entry.read_bytes()
    return dict(sorted(found.items()))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules of ours that are imported when the module is; what only a type checker imports is not."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "etude":
            yield node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if _is_module(inner):
                    yield inner
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "etude")


def _is_module(module: str) -> bool:
    package, _, name = module.rpartition(".")
    if not (files("etude") / PurePosixPath(*package.split(".")[1:])).is_dir():
        return False
    place = files("etude") / PurePosixPath(*package.split(".")[1:])
    return (place / f"{name}.py").is_file() or (place / name / "__init__.py").is_file()


def _path(module: str) -> str:
    parts = module.split(".")
    folder = files("etude").joinpath(*parts[1:])
    return "/".join(parts) + ("/__init__.py" if folder.is_dir() else ".py")


def _resource(path: str) -> bytes:
    return files("etude").joinpath(*path.split("/")[1:]).read_bytes()


AGENT_S = 1800.0
VERIFIER_EXTRA_S = 60.0  # of the verifier, in addition to the tests' own limit: its start, and the control run of commands known by their status

TEST = f"""\
#!/bin/sh
# Runs the expected tests and writes 1 or 0 to /logs/verifier/reward.json; the tests by name are in verdict.json in the same folder.
# All it needs is Python 3.10 or later, and not one of the workspace's.
here="$(cd "$(dirname "$0")" && pwd)"
for python in /usr/local/bin/python3 /usr/bin/python3 ""; do [ -x "$python" ] && break; done
[ -n "$python" ] || {{ echo "there is no python3 in /usr/local/bin or /usr/bin" >&2; exit 3; }}
logs="${{LOGS_DIR:-/logs}}/verifier"
mkdir -p "$logs"
rm -rf "$logs/reward.json" "$logs/reward.txt" "$logs/verdict.json"
exec "$python" -I -B -c 'import sys
sys.path.insert(0, sys.argv[1] + "/lib")
from etude.tasks.export.here import main
sys.exit(main(sys.argv[1:]))' "$here" {WORKDIR} "$logs"
"""


@dataclass(frozen=True)
class Exported:
    """`not_elsewhere`: why another harness can't grade it, empty if it can."""

    id: str
    folder: Path
    not_elsewhere: str = ""


def objection_to(task: Task) -> str:
    """Why a task can't be graded without this package; empty if it can."""
    environment = environment_of(task.metadata)
    if environment is None or not environment.snapshot:
        return "its grader needs `pip install etude` in the verifier's image"
    if task.grader != NAME:
        return f"its grader `{task.grader}` judges more than tests, and works where etude has the project's snapshot"
    if environment.image or environment.hosts:
        return "its environment is an image or reaches hosts, of which a recipe says nothing"
    return ""


def export_task(task: Task, folder: Path, installation: Installation | None = None) -> Exported:
    """Raises HarborError. Without an installation the directory reads back here, and is graded here alone."""
    if objection := objection_to(task):
        return Exported(task.id, write_task(task, folder), objection)
    if installation is None:
        return Exported(task.id, write_task(task, folder), "the recipe of its environment is not kept here")
    written = write_task(task, folder, _extra_files(task, installation), _settings(task, installation))
    return Exported(task.id, written)


def _extra_files(task: Task, installation: Installation) -> dict[str, bytes]:
    gone = set(task.hidden["removed"])
    tree = {path: text.encode() for path, text in task.files.items() if is_protected(path) and path not in gone}
    tree |= {path: data for path, data in installation.binaries.items() if is_protected(path)}
    tree |= {path: text.encode() for path, text in task.hidden["files"].items()}
    return {
        **{f"environment/{path}": data for path, data in installation.files().items()},
        **{f"environment/files/{path}": data for path, data in installation.binaries.items()},
        **{f"tests/lib/{path}": data for path, data in runtime_files().items()},
        **{f"tests/tree/{path}": data for path, data in tree.items()},
        "tests/test.sh": TEST.encode(),
    }


def _settings(task: Task, installation: Installation) -> dict[str, dict[str, Any]]:
    environment = installation.environment
    machine = {**SETTINGS["environment"], "memory_mb": environment.memory_mb}
    if environment.start_script:
        machine["healthcheck"] = {"command": environment.start_script, "retries": 1}
    verifier = {**SETTINGS["verifier"], "timeout_sec": 2 * limit_s(task.hidden["seconds"]) + VERIFIER_EXTRA_S}
    return {"agent": {"timeout_sec": AGENT_S}, "verifier": verifier, "environment": machine}

"""A Harbor directory (Terminal-Bench 2 and later): task.toml, instruction.md, environment/, tests/test.sh, solution/solve.sh."""

from __future__ import annotations

import re
from pathlib import Path

from etude.tasks.errors import TaskError
from etude.tasks.importers.compose import one_service
from etude.tasks.importers.foreign import HARBOR, Foreign
from etude.tasks.importers.harbor_settings import read_settings
from etude.tasks.importers.texts import files_below, maybe_text, text_of

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

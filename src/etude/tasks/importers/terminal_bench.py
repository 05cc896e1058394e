"""A folder of Terminal-Bench 1: task.yaml, run-tests.sh, tests/, solution.sh or solution.yaml, Dockerfile, docker-compose.yaml.

Its tests are read off their output by the parser that task.yaml names (`logs/terminal_bench.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.core import bounded_yaml
from etude.tasks.errors import TaskError
from etude.tasks.importers.harbor_settings import Settings
from etude.tasks.importers.table import ManifestTable
from etude.tasks.importers.texts import FolderFiles, files_below, maybe_text, text_of
from etude.tasks.test_logs.terminal_bench import PARSERS

# A task's docker-compose.yaml: one service is the machine itself; more would be other machines, which do not exist
# here.


def one_service(place: Path) -> None:
    """Nothing where there is no such file. Raises TaskError for more than one service, and for what is no such file."""
    text = maybe_text(place)
    if not text.strip():
        return
    document = parse_yaml(text, place)
    services = document.get("services") if isinstance(document, Mapping) else None
    if not isinstance(services, Mapping) or not services:
        raise TaskError(f"{place} names no services")
    if len(services) > 1:
        raise TaskError(
            f"{place} is refused: it has {len(services)} services ({', '.join(map(str, services))}), and a task here has one machine"
        )


def parse_yaml(text: str, place: Path) -> Any:
    """YAML of plain values, within bounds. Raises TaskError."""
    try:
        return bounded_yaml.loads(text)
    except bounded_yaml.YamlRefused as error:
        raise TaskError(f"{place} does not parse: {error}") from error


# A task of a foreign format, as read: what both formats have in common.


# Reward files (Harbor), or a parser of what the tests print (Terminal-Bench 1).
HARBOR, TERMINAL_BENCH = "harbor", "terminal-bench"


@dataclass(frozen=True)
class Foreign:
    """A folder as either format describes it. `script`: which of `tests` grades. `parser`: the reader of its output, where the output counts."""

    id: str
    format: str
    instruction: str
    tests: FolderFiles
    script: str
    settings: Settings
    dockerfile: str = ""
    parser: str = ""
    solution: FolderFiles = field(default_factory=FolderFiles)
    described: dict[str, Any] = field(default_factory=dict)  # what else the folder says of itself


SCRIPT = "run-tests.sh"
TESTS_S, AGENT_S = 60.0, 360.0  # where task.yaml says nothing
_FREE = (
    "author_name", "author_email", "difficulty", "tags", "estimated_duration_sec", "expert_time_estimate_min",
    "junior_time_estimate_min", "disable_asciinema",
)  # fmt: skip


def read_terminal_bench(folder: Path) -> Foreign:
    """Raises TaskError."""
    place = folder / "task.yaml"
    table = ManifestTable(parse_yaml(text_of(place), place), place)
    instruction = table.text("instruction")
    if not table.has("instruction"):
        raise TaskError(f"{place} has no instruction")
    parser = table.text("parser_name", "pytest")
    if parser not in PARSERS:
        raise table.wrong("parser_name", f"one of {', '.join(PARSERS)}", parser)
    if table.flag("run_tests_in_same_shell"):
        raise table.wrong(
            "run_tests_in_same_shell", "left out: tests run in a fresh machine, not in the agent's shell", True
        )
    one_service(folder / "docker-compose.yaml")
    described = {key: value for key in _FREE if (value := table.raw(key)) is not None}
    settings = Settings(
        category=table.text("category", "software_engineering"),
        agent_timeout_s=table.seconds("max_agent_timeout_sec", AGENT_S),
        verifier_timeout_s=table.seconds("max_test_timeout_sec", TESTS_S),
        differs=("its machine's network isn't there; what the task fetches must be in its image",),
        unread=tuple(table.unread()),
    )
    tests = files_below(folder / "tests")
    tests.texts[SCRIPT] = text_of(folder / SCRIPT)
    return Foreign(
        folder.name,
        TERMINAL_BENCH,
        instruction,
        tests,
        SCRIPT,
        settings,
        maybe_text(folder / "Dockerfile"),
        parser,
        _solution(folder),
        described,
    )


def _solution(folder: Path) -> FolderFiles:
    """solution.sh, or the commands of solution.yaml one after the other."""
    if text := maybe_text(folder / "solution.sh"):
        return FolderFiles({"solve.sh": text})
    place = folder / "solution.yaml"
    if not (text := maybe_text(place)):
        return FolderFiles()
    commands: Any = parse_yaml(text, place)
    if not isinstance(commands, list):
        raise TaskError(f"{place} must be a list of commands, not {repr(commands)[:60]}")
    lines = [entry.get("command") if isinstance(entry, dict) else entry for entry in commands]
    if not all(isinstance(line, str) for line in lines):
        raise TaskError(f"{place} holds an entry that is no command")
    return FolderFiles({"solve.sh": "".join(f"{line}\n" for line in lines)})

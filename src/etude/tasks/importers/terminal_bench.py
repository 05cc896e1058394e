"""A folder of Terminal-Bench 1: task.yaml, run-tests.sh, tests/, solution.sh or solution.yaml, Dockerfile, docker-compose.yaml.

Its tests are read off their output by the parser that task.yaml names (`logs/terminal_bench.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.tasks.errors import TaskError
from etude.tasks.importers.compose import one_service, parsed
from etude.tasks.importers.foreign import TERMINAL_BENCH, Foreign
from etude.tasks.importers.harbor_settings import Settings
from etude.tasks.importers.table import ManifestTable
from etude.tasks.importers.texts import FolderFiles, files_below, maybe_text, text_of
from etude.tasks.test_logs.terminal_bench import PARSERS

SCRIPT = "run-tests.sh"
TESTS_S, AGENT_S = 60.0, 360.0  # where task.yaml says nothing
_FREE = (
    "author_name", "author_email", "difficulty", "tags", "estimated_duration_sec", "expert_time_estimate_min",
    "junior_time_estimate_min", "disable_asciinema",
)  # fmt: skip


def read_terminal_bench(folder: Path) -> Foreign:
    """Raises TaskError."""
    place = folder / "task.yaml"
    table = ManifestTable(parsed(text_of(place), place), place)
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
    commands: Any = parsed(text, place)
    if not isinstance(commands, list):
        raise TaskError(f"{place} must be a list of commands, not {repr(commands)[:60]}")
    lines = [entry.get("command") if isinstance(entry, dict) else entry for entry in commands]
    if not all(isinstance(line, str) for line in lines):
        raise TaskError(f"{place} holds an entry that is no command")
    return FolderFiles({"solve.sh": "".join(f"{line}\n" for line in lines)})

"""Harbor takes the task directories that are exported here, and reads a directory as the importer does: names, texts, limits, network."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from environments import require_python
from terminal_cases import asked

from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.errors import TaskError
from etude.tasks.export.installation import Installation
from etude.tasks.export.writing import export_task
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.harbor import write_task
from etude.tasks.importers.harbor_settings import Settings
from etude.tasks.importers.terminal import read_harbor
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, task_of

pytestmark = pytest.mark.nightly
DRAWN = 300


def decisions(folders: list[Path]) -> list[dict[str, Any]]:
    versions, found = asked(require_python("harbor"), [{"directory": str(folder)} for folder in folders])
    print(f"harbor {versions['harbor']}: {len(folders)} directories")  # shown with -s
    return found


def installed_task() -> tuple[Task, Installation]:
    steps = ("mkdir -p /opt/etude/site",)
    environment = Environment("tally", "1", snapshot="tally-1", start_script="true", tests=TestPlan("unittest"))
    base = {"tally.py": "def tally(items):\n    return len(items)\n", "tests/test_tally.py": "import tally\n"}
    prompts: dict[str, str] = dict.fromkeys(("terse", "ambiguous", "full"), "tally counts one too many")
    changed = {"tally.py": base["tally.py"].replace("len(items)", "len(items) + 1")}
    draft = TaskDraft(
        "bugs/tally-1/1", "debugging", "bug", prompts, environment, base, changed=changed,
        solution={"tally.py": base["tally.py"]}, gone=[], tests=("tests/test_tally.py",),
    )  # fmt: skip
    task = task_of(draft)
    names = {"fail_to_pass": ["tests.test_tally.T::test_two"], "pass_to_pass": [], "seconds": 1.0, "universal": []}
    given = {"image": "python:3.11-slim", "until": "2024-05-01", "constraints": (), "binaries": {}}
    return replace(task, hidden={**task.hidden, **names}), Installation(environment, steps, **given)


def test_harbor_takes_every_directory_that_is_exported(tmp_path: Path) -> None:
    source = ExerciseSource(ExerciseSettings())
    tasks = [source.task(name) for level in LEVELS for name in source.ids("train", level=level)[:5]]
    folders = [write_task(task, tmp_path / f"exercise-{number}") for number, task in enumerate(tasks)]
    task, installation = installed_task()
    exported = export_task(task, tmp_path / "installed", installation)
    assert not exported.not_elsewhere
    for mine, folder, theirs in zip(
        [*tasks, task], [*folders, exported.folder], decisions([*folders, exported.folder]), strict=True
    ):
        assert theirs.get("valid") is True, (folder, theirs)
        assert theirs["instruction"].strip() == mine.instruction.strip()
        assert differences(read_harbor(folder, {}).settings, theirs["settings"]) == {}, folder


# Lines of a task.toml by table; most are valid for both readers, some for none.
LINES: dict[str, dict[str, tuple[Any, ...]]] = {
    "": {"schema_version": ("1.0", "1.4", "1.4", "1.4", 3), "source": ("x",), "artifacts": ([], ["/app/x"], "x")},
    "task": {"name": ("org/answer", "org/answer", "answer", ""), "description": ("d",), "keywords": (["k"], "k")},
    "metadata": {"category": ("maths",), "difficulty": ("hard", 3)},
    "agent": {"timeout_sec": (100, 0.5, 60.0, "soon"), "network_mode": ("no-network", "allowlist", "some"), "user": ("root",)},
    "verifier": {"timeout_sec": (30.5, 7, [1]), "env": ({"A": "b"}, {"A": 1}, "A"), "network_mode": ("no-network",)},
    "environment": {
        "cpus": (1, 2, "two"), "memory_mb": (512, 4096, "much"), "storage_mb": (2048,), "memory": ("2G", "512M", "many"),
        "build_timeout_sec": (60.0, "long"), "env": ({"B": "c"}, [1]), "network_mode": ("public", "no-network", "everything"),
        "allow_internet": (True, False, "perhaps"), "docker_image": ("tiny:1", 7), "workdir": ("/app", "/srv"),
        "healthcheck": ({"command": "true"}, {"command": "true", "retries": "x"}, {}), "gpus": (0,),
    },
    "solution": {"env": ({"C": "d"}, 3)},
}  # fmt: skip
MISSING = ("instruction.md", "tests/test.sh", "task.toml", "environment/Dockerfile")


def drawn(folder: Path, seed: int) -> Path:
    """A directory with settings of this seed; every eighth lacks a file."""
    rng = random.Random(seed)
    toml: dict[str, Any] = {}
    for table, lines in LINES.items():
        chosen = {key: rng.choice(values) for key, values in lines.items() if rng.random() < 0.1}
        toml |= chosen if not table else {table: chosen} if chosen else {}
    files = {
        "task.toml": tomli_w.dumps(toml), "instruction.md": "<!-- canary 1 -->\n\nWrite 42 to out.txt.\n",
        "environment/Dockerfile": "FROM tiny:1\nWORKDIR /app\n", "tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
        "solution/solve.sh": "echo 42 > /app/out.txt\n",
    }  # fmt: skip
    if seed % 8 == 0:
        del files[rng.choice(MISSING)]
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def differences(ours: Settings, theirs: dict[str, Any]) -> dict[str, Any]:
    """What the two readers of one task.toml disagree on; a value that the file leaves to the runner counts as equal."""
    environment, verifier, agent = theirs["environment"], theirs["verifier"], theirs["agent"]
    pairs = {
        "agent.timeout_sec": (ours.agent_timeout_s, agent["timeout_sec"]),
        "verifier.timeout_sec": (ours.verifier_timeout_s, verifier["timeout_sec"]),
        "environment.env": (ours.env, environment["env"]),
        "verifier.env": (ours.verifier_env, verifier["env"]),
        "solution.env": (ours.solution_env, theirs["solution"]["env"]),
        "docker_image": (ours.image or None, environment["docker_image"]),
        "workdir": (ours.workdir or None, environment["workdir"]),
        "healthcheck": (bool(ours.health), environment["healthcheck"] is not None),
        "public": (
            any(word.startswith("environment.network_mode") for word in ours.differs),
            environment["network_mode"] == "public",
        ),
    }
    for key, mine in (("memory_mb", ours.memory_mb), ("storage_mb", ours.storage_mb), ("cpus", ours.cpus)):
        if environment[key] is not None:
            pairs[f"environment.{key}"] = (mine, environment[key])
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def test_a_directory_is_read_as_harbor_reads_it_and_what_harbor_refuses_is_refused(tmp_path: Path) -> None:
    folders = [drawn(tmp_path / str(seed), seed) for seed in range(DRAWN)]
    accepted = refused_by_both = 0
    for folder, theirs in zip(folders, decisions(folders), strict=True):
        try:
            ours = read_harbor(folder, {})
        except TaskError:
            refused_by_both += "error" in theirs
            continue
        toml = (folder / "task.toml").read_text()
        if "error" in theirs:
            # A name that is no ORG/NAME and keywords that are no list decide nothing: they are kept here, and refused there.
            assert theirs["keys"] and all(key.startswith("task.") for key in theirs["keys"]), (theirs, toml)
            continue
        accepted += 1
        assert (ours.id, ours.instruction.strip()) == (theirs["name"], theirs["instruction"].strip()), toml
        assert differences(ours.settings, theirs["settings"]) == {}, toml
    assert accepted > DRAWN / 10 and refused_by_both > DRAWN / 10

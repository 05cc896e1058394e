"""An exported task of an installed project is graded by what lies in its own directory, as we grade it, and reads back without loss."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import DEPS, Environment, TestPlan
from etude.tasks.export.freezing import freeze_environment
from etude.tasks.export.here import main
from etude.tasks.export.installation import Installation
from etude.tasks.export.proving import prove_directory
from etude.tasks.export.writing import export_task, runtime_files
from etude.tasks.harbor import read_task
from etude.tasks.importers.terminal import read_foreign_task
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, task_of

GOOD = "from helper import one\n\n\ndef tally(items):\n    return len(items) * one()\n"
BAD = GOOD.replace("len(items)", "len(items) + 1")
TESTS = (
    "import unittest\nfrom pathlib import Path\n\nimport tally\n\n\nclass T(unittest.TestCase):\n"
    "    def test_two(self):\n        self.assertEqual(tally.tally([1, 2]), 2)\n\n"
    "    def test_data(self):\n        self.assertEqual(Path('tests/data.bin').read_bytes()[0], 0)\n"
)
BASE = {"tally.py": GOOD, "tests/test_tally.py": TESTS, "tests/__init__.py": "", "setup.cfg": "[x]\n", "old.py": ""}
DATA = {"tests/data.bin": b"\0\xff"}
STEPS = (f"mkdir -p {DEPS}/site", f"cd {DEPS} && echo 'it''s \"$HOME\"' > said")
PLAN = TestPlan("unittest")
ENVIRONMENT = Environment("tally", "1", snapshot="tally-1", env={"PYTHONPATH": f"{DEPS}/site"}, tests=PLAN)


def shop(environment: Environment = ENVIRONMENT) -> Task:
    prompts: dict[str, str] = dict.fromkeys(("terse", "ambiguous", "full"), "tally counts one too many")
    task = task_of(
        TaskDraft(
            "bugs/tally-1/1", "debugging", "bug", prompts, environment, BASE, changed={"tally.py": BAD},
            solution={"tally.py": GOOD}, gone=["old.py"], tests=("tests/test_tally.py",),
        )
    )  # fmt: skip
    names = ["tests.test_tally.T::test_two"], ["tests.test_tally.T::test_data"]
    decided = {"fail_to_pass": names[0], "pass_to_pass": names[1], "seconds": 1.0, "universal": []}
    return replace(task, hidden={**task.hidden, **decided}, metadata={**task.metadata, "difficulty": {"score": None}})


def installation(**other: object) -> Installation:
    given = {"image": "python:3.11-slim", "until": "2024-05-01", "constraints": ("six==1.16.0",), "binaries": DATA}
    return Installation(ENVIRONMENT, STEPS, **{**given, **other})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    exported = export_task(shop(), tmp_path / "task", installation())
    assert not exported.not_elsewhere
    return exported.folder


def graded(folder: Path, tmp_path: Path, changed: dict[str, str], gone: tuple[str, ...] = ()) -> dict[str, object]:
    """The verdict of the exported grader, here and now, over what an agent left: these texts are ours, so that no sandbox is needed."""
    work, logs = tmp_path / "workspace", tmp_path / "logs"
    subprocess.run(["cp", "-R", f"{folder}/environment/files", str(work)], check=True)
    (work / "helper.py").write_text("def one():\n    return 1\n")
    for path, text in changed.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    for path in gone:
        (work / path).unlink()
    logs.mkdir()
    assert main([str(folder / "tests"), str(work), str(logs)]) == 0
    reward = json.loads((logs / "reward.json").read_text())
    return json.loads((logs / "verdict.json").read_text()) | {"tests_passed": reward["tests_passed"]}


def test_the_reference_scores_1_by_the_directorys_own_grader_and_nothing_0(folder: Path, tmp_path: Path):
    for number, (text, reward) in enumerate(((BAD, 0.0), (GOOD, 1.0))):
        (tmp_path / str(number)).mkdir()
        verdict = graded(folder, tmp_path / str(number), {"tally.py": text})
        assert verdict["reward"] == reward, verdict
    assert verdict["tests_passed"] == 2


CHEATS = {
    "settings": (
        {"setup.cfg": "[tool:pytest]\naddopts = --collect-only\n", "conftest.py": "raise SystemExit(0)\n"},
        (),
    ),
    "tests gone": ({}, ("tests/test_tally.py", "tests/data.bin")),
    "tests emptied": ({"tests/test_tally.py": "", "tests/sitecustomize.py": "import os\nos._exit(0)\n"}, ()),
    "early end": ({"tally.py": "import os\nos._exit(0)\n"}, ()),
    "a reward of its own": ({"logs/verifier/reward.json": '{"reward": 1}'}, ()),
}


@pytest.mark.parametrize("name", CHEATS)
def test_what_scores_0_here_scores_0_there(folder: Path, tmp_path: Path, name: str):
    changed, gone = CHEATS[name]
    verdict = graded(folder, tmp_path, changed, gone)
    assert verdict["reward"] == 0 and verdict["reason"]


def test_a_link_in_the_place_of_tests_is_taken_away_not_followed(folder: Path, tmp_path: Path):
    work, outside = tmp_path / "workspace", tmp_path / "outside"
    outside.mkdir()
    (outside / "test_tally.py").write_text("mine")
    subprocess.run(["cp", "-R", f"{folder}/environment/files", str(work)], check=True)
    subprocess.run(["rm", "-r", str(work / "tests")], check=True)
    (work / "tests").symlink_to(outside)
    (tmp_path / "logs").mkdir()
    main([str(folder / "tests"), str(work), str(tmp_path / "logs")])
    assert (outside / "test_tally.py").read_text() == "mine" and not (work / "tests").is_symlink()
    assert (work / "tests/test_tally.py").read_text().startswith(TESTS.rstrip())


def test_the_grader_runs_by_the_carried_modules_and_the_library_alone(tmp_path: Path):
    for path, data in runtime_files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import etude.tasks.export.here as h; print(h.__file__)"
    said = subprocess.run([sys.executable, "-I", "-S", "-B", "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert said.stdout.strip() == str(tmp_path / "etude/tasks/export/here.py"), said.stderr
    assert sum(map(len, runtime_files().values())) < 200_000


def test_the_directory_reads_back_without_loss_and_speaks_harbors_words(folder: Path):
    assert read_task(folder) == shop()
    foreign = read_foreign_task(folder, {})
    assert not foreign.metadata["unread"] and not foreign.metadata["differs"]
    assert foreign.hidden["limit_s"] == 180 and foreign.hidden["artifacts"] == [foreign.metadata["workdir"]]
    assert (folder / "environment/files/tests/data.bin").read_bytes() == DATA["tests/data.bin"]


def test_the_installation_is_the_recipes_steps_with_pinned_versions(folder: Path):
    script = folder / "environment/install/steps.sh"
    subprocess.run(["sh", "-n", str(script)], check=True)
    text = script.read_text()
    assert "npm_config_before=2024-05-01" in text and text.index("mkdir") < text.index("said")
    assert (folder / "environment/install/constraints.txt").read_text() == "six==1.16.0\n"
    dockerfile = (folder / "environment/Dockerfile").read_text()
    assert dockerfile.startswith("FROM python:3.11-slim\n") and f'ENV PYTHONPATH="{DEPS}/site"' in dockerfile
    assert "tests" not in dockerfile and "solution" not in dockerfile


def test_our_pinned_pytest_is_installed_by_its_digests(tmp_path: Path):
    plain = replace(ENVIRONMENT, tests=TestPlan())
    own = replace(installation(), environment=plain)
    folder = export_task(shop(plain), tmp_path / "task", own).folder
    pins = (folder / "environment/install/tools.txt").read_text().splitlines()
    assert pins[0].startswith("pytest==") and all("--hash=sha256:" in line for line in pins)
    assert "--require-hashes" in (folder / "environment/Dockerfile").read_text()


@pytest.mark.parametrize(
    "task, why",
    [
        (replace(shop(), grader="review"), "judges more than tests"),
        (replace(shop(), metadata={}), "pip install etude"),
        (shop(replace(ENVIRONMENT, image="debian:12")), "image"),
    ],
)
def test_what_no_other_harness_can_grade_says_why(tmp_path: Path, task: Task, why: str):
    assert why in export_task(task, tmp_path / "task", installation()).not_elsewhere
    assert read_task(tmp_path / "task") == task


async def test_a_directory_grades_reference_1_and_nop_0_by_its_own_scripts_in_a_sandbox(
    pool_of: SandboxPool, tmp_path: Path
):
    """Through the importer of foreign directories: the snapshot replaces what its Dockerfile builds elsewhere."""
    box = await pool_of.create(SandboxSpec(files={path: text.encode() for path, text in BASE.items()} | DATA))
    await box.write(f"{DEPS}/site/helper.py", b"def one():\n    return 1\n")
    await box.snapshot("tally-1")
    await box.kill()
    found = await freeze_environment(ENVIRONMENT, STEPS, "2024-05-01", ("tally",), pool_of)
    assert found.image.startswith("python:3.") and dict(found.binaries) == DATA
    assert not any(line.startswith("tally==") for line in found.constraints)
    exported = export_task(shop(), tmp_path / "task", found)
    proof = await prove_directory(exported.folder, pool_of)
    assert proof.good, proof


@pytest.fixture
async def pool_of(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()

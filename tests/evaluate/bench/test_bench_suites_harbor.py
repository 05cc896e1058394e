"""Harbor and Terminal-Bench folders: read with the report's prompt rule, refused without their image, graded by their own script."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.evaluate.bench.suites.environment import Equipment
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import SuiteEnvironment, check
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.snapshots import images
from etude.sandbox.snapshots.cache import open_store
from etude.sandbox.spec import SandboxSpec
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.graders.script import ScriptGrader, sound
from etude.tasks.importers.terminal import read_foreign_tasks
from etude.tasks.task import Task

REWARD = 'if [ "$(cat /app/out.txt)" = 42 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi\n'
HARBOR = {
    "task.toml": '[task]\nname = "answer"\n[metadata]\ncategory = "maths"\n[verifier]\ntimeout_sec = 20.0\n',
    "instruction.md": "Write the answer to out.txt.\n",
    "environment/Dockerfile": "FROM tiny:1\nWORKDIR /app\nCOPY start.txt /app/\n",
    "tests/test.sh": f"#!/bin/sh\n{REWARD}",
    "solution/solve.sh": "#!/bin/sh\necho 42 > /app/out.txt\n",
}
TERMINAL_BENCH = {
    "task.yaml": "instruction: |-\n  Write the answer to out.txt.\ncategory: maths\nmax_test_timeout_sec: 20\n",
    "Dockerfile": "FROM tiny:1\n",
    "run-tests.sh": "#!/bin/sh\n. /tests/want.sh\n",
    "tests/want.sh": "echo '=== short test summary info ==='\n"
    'if [ "$(cat /app/out.txt)" = 42 ]; then echo PASSED t.py::test_out; else echo "FAILED t.py::test_out - 41"; fi\n',
    "solution.sh": "#!/bin/sh\necho 42 > /app/out.txt\n",
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def tasks(tmp_path: Path) -> dict[str, Task]:
    written(tmp_path / "in" / "one", HARBOR)
    written(tmp_path / "in" / "two", TERMINAL_BENCH)
    found, left_out = read_foreign_tasks(tmp_path / "in")
    assert left_out == {}
    return {task.id: task for task in found}


def test_both_formats_are_read_with_the_prompt_that_says_where_files_must_be(tasks: dict[str, Task]):
    assert list(tasks) == ["answer", "two"]
    for task in tasks.values():
        assert task.instruction.startswith("Write the answer to out.txt.\n\nWork in /app. Every file")
        assert (task.category, task.hidden["limit_s"], task.metadata["image"]) == (
            "maths",
            20.0,
            "a Dockerfile over tiny:1",
        )
        assert "without a network: commands run there, beginning in /app." in task.instruction
        assert "42" not in task.instruction and task.files == {} and task.hidden["solve"]


@pytest.mark.parametrize(
    "files, complaint",
    [
        ({k: v for k, v in HARBOR.items() if k != "tests/test.sh"}, "answer has no tests/test.sh"),
        ({k: v for k, v in HARBOR.items() if k != "instruction.md"}, "instruction.md is missing"),
        ({**HARBOR, "task.toml": "[task"}, "task.toml does not parse"),
        ({**TERMINAL_BENCH, "task.yaml": "a: ["}, "task.yaml does not parse"),
        ({**TERMINAL_BENCH, "task.yaml": "category: x"}, "has no instruction"),
        ({**TERMINAL_BENCH, "task.yaml": "instruction: x\ncategory: [1]"}, "category must be a text"),
        ({**TERMINAL_BENCH, "task.yaml": "instruction: ' '"}, "two has an empty instruction"),
        ({**HARBOR, "task.toml": 'task = "x"\n'}, "task must be a table"),
        ({**HARBOR, "task.toml": '[task]\nname = "../../x"\n'}, "can't be called '../../x'"),
        ({**HARBOR, "task.toml": '[verifier]\ntimeout_sec = "soon"\n'}, "seconds above 0, not 'soon'"),
        ({**HARBOR, "task.toml": "[verifier]\ntimeout_sec = -1\n"}, "seconds above 0"),
        ({**HARBOR, "environment/Dockerfile": "FROM x\nWORKDIR $HOME/x\n"}, "without variables"),
        ({"readme.md": ""}, "neither a task.toml"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path, files: dict[str, str], complaint: str):
    with pytest.raises(TaskError, match=complaint):
        read_foreign_tasks(written(tmp_path / "two", files))


def test_folders_that_can_not_be_read_are_left_out_with_the_reason_and_the_others_taken(tmp_path: Path):
    for name in ("a", "b", "c"):
        written(tmp_path / name, HARBOR)
    (tmp_path / "c" / "task.toml").write_text('[task]\nname = "other"\n')
    (tmp_path / "c" / "tests" / "secret").symlink_to("/etc/hostname")
    found, left_out = read_foreign_tasks(tmp_path)
    assert [task.id for task in found] == ["answer"]
    assert "another folder holds a task 'answer'" in left_out[str(tmp_path / "b")]
    assert "secret is a link" in left_out[str(tmp_path / "c")]


def test_a_suite_keeps_the_task_and_refuses_to_run_it_without_its_image(tasks: dict[str, Task], tmp_path: Path):
    row = {"name": "tb", "version": "1", "released": "2026-11-01"}
    suite = freeze(tmp_path / "tb", check(row, "test"), list(tasks.values()))
    assert FolderSuite(suite.root).task("answer") == tasks["answer"]
    with pytest.raises(Unsupported, match="answer runs in an image of its own.*tiny:1.*under .environment.images"):
        suite.adapt(SandboxSpec(labels={"task": "answer"}))


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    """A pool whose layer store holds a root file system of a shell and a few programs."""
    root = tmp_path / "root"
    for name in ("/bin/sh", "/bin/cat", "/bin/rm", "/bin/mkdir"):
        program = shutil.which(name)
        if program is None or shutil.which("ldd") is None:
            pytest.skip(f"{name} or ldd is not here to make a root file system of")
        shown = subprocess.run(["ldd", program], capture_output=True, text=True).stdout.split()
        for file in (program, *(word for word in shown if word.startswith("/"))):
            target = root / file.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(os.path.realpath(file), target)
    made = await open_pool(SandboxSettings.model_validate({"layers": str(tmp_path / "layers")}))
    if not made.probe().images:
        await made.close()
        pytest.skip("this back end has no images here")
    with open_store(str(tmp_path / "layers")) as store:
        images.add(store, root, "tiny:1").release()
    yield made
    await made.close()


def grader_in(folder: Path) -> ScriptGrader:
    equipment = Equipment(SuiteEnvironment.model_validate({"images": {"*": "tiny:1"}}), folder, folder)
    return ScriptGrader(lambda spec, task: equipment.fit(spec, task.id, task.metadata))


async def test_the_reference_scores_1_and_nothing_0_by_the_tasks_own_script(
    tasks: dict[str, Task], pool: SandboxPool, tmp_path: Path
):
    grader = grader_in(tmp_path)
    for task in tasks.values():
        assert await sound(task, grader, pool) is task
        assert (await grader.grade(task, {"out.txt": b"42\n"}, pool)).score == 1
        wrong = await grader.grade(task, {"out.txt": b"41\n"}, pool)
        assert wrong.score == 0 and wrong.reason


async def test_a_task_whose_solution_fails_or_that_nothing_solves_is_left_out(
    tasks: dict[str, Task], pool: SandboxPool, tmp_path: Path
):
    task, grader = tasks["answer"], grader_in(tmp_path)
    hidden = task.hidden
    for change, complaint in (
        ({"solve": {"solve.sh": "exit 3\n"}}, "own solution ends with status 3"),
        ({"solve": {}}, "no solution/solve.sh"),
        ({"solve": {"solve.sh": "exit 0\n"}}, "not sound: reference 0.0"),
        ({"tests": {"test.sh": "echo 1 > /logs/verifier/reward.txt\n"}}, "not sound: reference 1.0 .*nop 1.0"),
        ({"tests": {"test.sh": "exit 0\n"}}, "left no reward"),
    ):
        other = Task(**{**vars(task), "hidden": {**hidden, **change}})
        with pytest.raises(CandidateRejected, match=complaint):
            await sound(other, grader, pool)

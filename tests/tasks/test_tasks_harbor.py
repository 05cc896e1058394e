"""A task survives the way to disk and back, byte for byte, and a foreign harness can grade it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.sandbox.spec import WORKDIR
from etude.tasks import harbor_test
from etude.tasks.audit import leaks
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.harbor import HarborError, read_task, write_task
from etude.tasks.importers.harbor_settings import read_settings
from etude.tasks.task import SPLITS, Task

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
PATHS = st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6})?\.py", fullmatch=True)
TASKS = st.builds(
    Task,
    id=TEXTS,
    category=TEXTS,
    level=TEXTS,
    instruction=TEXTS,
    files=st.dictionaries(PATHS, TEXTS, max_size=3),
    test_command=st.lists(TEXTS, max_size=3).map(tuple),
    grader=TEXTS,
    hidden=st.dictionaries(TEXTS, JSON, max_size=3),
    solution=st.dictionaries(PATHS, TEXTS, max_size=2),
    split=st.sampled_from(SPLITS),
    metadata=st.dictionaries(TEXTS, JSON, max_size=3),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(task=TASKS, number=st.integers(0, 10**12))
def test_any_task_reads_back_equal(tmp_path: Path, task: Task, number: int) -> None:
    folder = tmp_path / f"{number}-{abs(hash(task.id))}-{len(list(tmp_path.iterdir()))}"
    assert read_task(write_task(task, folder)) == task


@pytest.mark.parametrize("level", LEVELS)
def test_exercises_read_back_equal(tmp_path: Path, source: ExerciseSource, level: str) -> None:
    for split in SPLITS:
        task = source.task(source.ids(split, level=level)[5])
        assert read_task(write_task(task, tmp_path / split)) == task


def test_the_agents_image_holds_neither_tests_nor_solution(tmp_path: Path, source: ExerciseSource) -> None:
    task = source.task(source.ids("heldout", level="one-bug")[0])
    folder = write_task(task, tmp_path / "task")
    inside = {str(p.relative_to(folder / "environment")) for p in (folder / "environment").rglob("*") if p.is_file()}
    assert inside == {"Dockerfile", *(f"files/{path}" for path in task.files)}
    shown = {path: (folder / "environment" / "files" / path).read_text() for path in task.files}
    assert leaks(replace(task, files=shown)) == []
    described = tomllib.loads((folder / "task.toml").read_text())
    assert described["metadata"]["etude"]["category"] == "debugging"
    assert described["environment"]["network_mode"] == "no-network"


def test_task_toml_speaks_harbors_own_words_and_ours_are_tables(tmp_path: Path, source: ExerciseSource) -> None:
    """Read by the importer of foreign directories: no key is unknown to it, and nothing is ambiguous."""
    task = source.task(source.ids("train")[0])
    task = replace(task, metadata={**task.metadata, "difficulty": {"score": None, "tries": [None, 1]}})
    folder = write_task(task, tmp_path / "task")
    settings = read_settings(folder / "task.toml", {})
    assert not settings.unread and not settings.differs
    assert (settings.verifier_timeout_s, settings.agent_timeout_s, settings.artifacts) == (30.0, 120.0, (WORKDIR,))
    ours = tomllib.loads((folder / "task.toml").read_text())["metadata"]["etude"]
    assert ours["metadata"]["editable"] == task.metadata["editable"]
    assert ours["nulls"] == [["difficulty", "score"], ["difficulty", "tries", 0]]
    assert read_task(folder) == task


def test_directories_that_were_exported_before_read_back(tmp_path: Path, source: ExerciseSource) -> None:
    task = source.task(source.ids("train")[0])
    folder = write_task(task, tmp_path / "task")
    described = tomllib.loads((folder / "task.toml").read_text())
    ours = described["metadata"]["etude"]
    del ours["nulls"], ours["metadata"]
    ours["metadata_json"] = json.dumps(task.metadata)
    (folder / "task.toml").write_text(tomli_w.dumps(described))
    assert read_task(folder) == task


def test_the_solution_takes_away_what_the_reference_takes_away(tmp_path: Path, source: ExerciseSource) -> None:
    task = source.task(source.ids("train")[0])
    folder = write_task(replace(task, metadata={**task.metadata, "removed": ["a b.py"]}), tmp_path / "task")
    assert f"rm -f -- '{WORKDIR}/a b.py'" in (folder / "solution" / "solve.sh").read_text()


@pytest.mark.parametrize("path", ["../x.py", "/x.py", "a/../x.py", "a//b.py", "./x.py", "a\\b.py", ""])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, source: ExerciseSource, path: str) -> None:
    task = source.task(source.ids("train")[0])
    with pytest.raises(HarborError, match="relative"):
        write_task(replace(task, files={path: ""}), tmp_path / "task")


def test_broken_directories_say_what_is_wrong(tmp_path: Path, source: ExerciseSource) -> None:
    folder = write_task(source.task(source.ids("train")[0]), tmp_path / "task")
    with pytest.raises(HarborError, match="not empty"):
        write_task(source.task(source.ids("train")[1]), folder)
    (folder / "tests" / "hidden.json").write_text("{")
    with pytest.raises(HarborError, match="parse"):
        read_task(folder)
    (folder / "tests" / "hidden.json").unlink()
    with pytest.raises(HarborError, match="missing"):
        read_task(folder)
    (folder / "task.toml").write_text('[metadata.etude]\nid = "x"\n')
    (folder / "tests" / "hidden.json").write_text("{}")
    with pytest.raises(HarborError, match="lacks"):
        read_task(folder)


def test_a_grader_of_another_package_gives_no_reward_in_a_foreign_harness(
    tmp_path: Path, source: ExerciseSource, capsys: pytest.CaptureFixture[str]
) -> None:
    task = replace(source.task(source.ids("train")[0]), grader="my_graders:strict")
    folder, reward = write_task(task, tmp_path / "task"), tmp_path / "reward.json"
    reward.write_text("of an earlier run")
    (tmp_path / "work").mkdir()
    assert harbor_test.main([str(folder), str(tmp_path / "work"), str(reward)]) == harbor_test.INFRA_STATUS
    assert "no grader 'my_graders:strict'" in capsys.readouterr().err and not reward.exists()


def test_a_foreign_harness_grades_with_test_sh(tmp_path: Path, source: ExerciseSource) -> None:
    """solve.sh then test.sh, with /work and /logs moved into a folder: reward 1; without solve.sh: 0."""
    task = source.task(source.ids("train", level="one-bug")[0])
    folder = write_task(task, tmp_path / "task")
    for solve, expected in ((False, 0.0), (True, 1.0)):
        work, logs = tmp_path / f"work-{solve}", tmp_path / f"logs-{solve}"
        _shell(f"cp -R {folder}/environment/files {work}")
        if solve:
            _shell(_script(folder / "solution" / "solve.sh").replace(f" {WORKDIR}/", f" {work}/"))
        tests = (
            _script(folder / "tests" / "test.sh")
            .replace(f" {WORKDIR} ", f" {work} ")
            .replace("/logs/verifier", str(logs))
        )
        _shell(tests.replace("exec python", f"exec {sys.executable}"))
        assert json.loads((logs / "reward.json").read_text())["reward"] == expected


def _script(path: Path) -> str:
    return path.read_text().replace("$0", str(path))


def _shell(script: str) -> None:
    subprocess.run(["sh", "-c", script], check=True, capture_output=True)

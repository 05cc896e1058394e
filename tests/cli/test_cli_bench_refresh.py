"""`etude bench refresh`: saturated tasks retired by what runs show, the rest kept as frozen; and a suite whose environment is gone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from endpoint_lab import DONE, Call, Lab, reference, serving
from here import Here, document
from market import exercises, prices

from etude.agent.policy import openai
from etude.evaluate.bench.prices import read_prices
from etude.evaluate.bench.suites import environment
from etude.evaluate.bench.suites.folder import FINGERPRINTS, FolderSuite
from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import check
from etude.tasks.task import Task

TASKS = exercises()[:3]
RUBRIC = 'name = "r"\n[[criteria]]\nname = "c"\nquestion = "Is it so?"\nchoices = ["no", "yes"]\n'


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)


def frozen(folder: Path, **more: Any) -> FolderSuite:
    folder.mkdir(exist_ok=True)
    row = {"name": "mine", "version": "1", "released": "2026-11-01", "harness": {"max_turns": 7}, **more}
    files = {name.replace("/", "-"): RUBRIC for name in (TASKS[0].id, TASKS[2].id, "default")}
    return freeze(
        folder / "suites" / "mine", check(row, "t"), TASKS, rubrics=files, price_list=read_prices(Path(prices(folder)))
    )


def but_the_last(task: Task, turn: int) -> list[Call]:
    """Solves all tasks except the last."""
    return [DONE] if task.id == TASKS[-1].id else reference(task, turn)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("refresh") / "shelf"


@pytest.fixture
def bench(made: Path, here: Here, tmp_path: Path) -> Path:
    """A suite of three on the shelf, and a run of it in which a model solved two of them in both passes; made once, copied for each."""
    if not made.exists():
        frozen(made)
        with serving(Lab(tasks=TASKS, player=but_the_last)) as lab:
            words = ("--only", "-p", f"m={lab.url}#m", "--passes", "2", "--recipe", "ci", "--preset", "nano")
            done = here("bench", "run", str(made / "suites" / "mine"), *words, "--out", str(made / "run"))
            assert done.returncode == 0, done.stderr
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_saturated_tasks_are_retired_and_the_others_stay_the_same_tasks(here: Here, bench: Path) -> None:
    before = FolderSuite(bench / "suites" / "mine")
    words = ("bench", "refresh", "mine", "--run", "run", "--least", "2", "--json")
    planned = document(here(*words, "--dry-run"))
    assert planned["kept"] == [TASKS[2].id] and list(planned["retired"]) == [task.id for task in TASKS[:2]]
    assert not (bench / "suites" / "mine-2").exists()
    answer = document(here(*words))
    after = FolderSuite(bench / "suites" / "mine-2")
    assert answer["suite"] == "mine@2" and answer["tasks"] == [TASKS[2].id] == list(after.ids)
    assert after.lock[TASKS[2].id] == before.lock[TASKS[2].id] and after.task(TASKS[2].id) == TASKS[2]
    assert after.manifest.harness == {"max_turns": 7} and after.prices.entries == before.prices.entries
    newest, oldest = after.manifest.changelog
    assert newest.change.startswith("1 tasks; since 1: 2 removed; retired: solved in all attempts")
    assert newest.retired == (TASKS[0].id, TASKS[1].id) and oldest.version == "1"
    assert sorted(path.stem for path in (after.root / "rubrics").glob("*.toml")) == sorted(
        ["default", TASKS[2].id.replace("/", "-")]
    )
    assert (after.root / FINGERPRINTS).read_bytes() != (before.root / FINGERPRINTS).read_bytes()


def test_too_few_attempts_retire_nothing_and_runs_of_something_else_are_refused(here: Here, bench: Path) -> None:
    few = here("bench", "refresh", "mine", "--run", "run", "--json")
    assert few.returncode == 1 and "there is no new version" in few.stdout  # eight attempts are needed, two were made
    assert here("bench", "refresh", "mine", "--run", "run", "--least", "2").returncode == 0
    other = here("bench", "refresh", "mine-2", "--run", "run", "--json")
    assert other.returncode == 1 and "only runs of this very suite" in other.stdout
    assert here("bench", "run", "mine", "--recipe", "ci", "--only", "-p", "expert", "--out", "controls").returncode == 0
    controls = here("bench", "refresh", "mine", "--run", "controls", "--least", "1", "--json")
    assert controls.returncode == 1 and "no whole pass of a model" in controls.stdout


@pytest.mark.parametrize(
    "words, complaint",
    [
        (("mine",), "say by what the suite changes"),
        (("nine", "--run", "run"), "did you mean mine"),
        (("exercises", "--run", "run"), "there is no suite 'exercises'"),
        (("mine", "--run", "absent"), "absent has no conditions.json"),
        (("mine", "--from-sessions", "absent"), "absent: there is no such file or folder"),
        (("mine", "--from-sessions", ".", "--prices", "none"), "none: there is no such file"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(
    here: Here, tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    frozen(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = here("bench", "refresh", *words, "--json")
    assert done.returncode == 1 and complaint in json.loads(done.stdout)["error"]["message"], done.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_an_environment_that_no_longer_builds_is_reported_with_all_its_tasks_at_once_and_nothing_made_is_lost(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "cache"))
    builds, asked, run_it = [True], [], subprocess.run

    def pip(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if "pip" not in command:
            return run_it(command, **options)
        asked.append(command)
        said = "ERROR: No matching distribution found for gone==1"
        return subprocess.CompletedProcess(command, int(not builds[0]), "", said)

    monkeypatch.setattr(environment.subprocess, "run", pip)
    (tmp_path / "needs.txt").write_text("gone==1\n")
    row = {
        "name": "mine",
        "version": "1",
        "released": "2026-11-01",
        "environment": {"requirements": "requirements.txt"},
    }
    freeze(tmp_path / "suites" / "mine", check(row, "t"), TASKS, requirements=tmp_path / "needs.txt")
    run = ("bench", "run", "mine", "--recipe", "ci", "--only", "-p", "expert", "--out", "run", "--json")
    assert document(here(*run))["policies"][0]["avg"] == 100.0 and len(asked) == 1
    made = {path: path.read_bytes() for path in (tmp_path / "run" / "policies").iterdir()}
    report = (tmp_path / "run" / "report.json").read_bytes()

    builds[0] = False
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "another-machine"))
    refused = here(*run, "--passes", "2")
    message = json.loads(refused.stdout)["error"]["message"]
    assert refused.returncode == 1 and "3 of 3 tasks of mine@1 can't be asked here" in message
    assert all(task.id in message for task in TASKS) and "No matching distribution found for gone==1" in message
    assert len(asked) == 2  # tried once, not for every task
    assert {path: path.read_bytes() for path in made} == made
    assert (tmp_path / "run" / "report.json").read_bytes() == report

    builds[0] = True
    assert document(here(*run, "--passes", "2"))["policies"][0]["passes"] == 2


def test_a_suite_that_another_process_is_making_is_left_to_it(here: Here, tmp_path: Path) -> None:
    work = tmp_path / "suites" / ".x.making"
    hold = (
        "from pathlib import Path; from etude.pipeline.run.lock import RunLock\n"
        f"with RunLock(Path({str(work)!r})): print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        done = here("bench", "make", "x", "--from-tasks", "exercises", "--count", "1", "--recipe", "ci", "--json")
        other.communicate("\n")
    assert done.returncode == 1 and f"in use by process {other.pid}" in done.stdout
    assert work.is_dir() and not (tmp_path / "suites" / "x").exists()

"""`etude bench run --harness mini-swe-agent`: another agent's process outside the sandbox, the same policy, tasks, accounts and graders."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from endpoint_lab import Call, Lab, by_bash, reference, serving
from here import Here, document
from market import TASKS, TURN, exercises, prices, report, row

from etude.agent.policy import openai
from etude.core.trace.reader import read_session
from etude.core.trace.schema import check_file
from etude.evaluate.bench.runs.mini_swe_agent.process import VARIABLE
from etude.pipeline.recipe.read import find_checkpoint
from etude.pipeline.run import participants
from etude.tasks.task import Task

BASE = ("bench", "run", "exercises", "--recipe", "ci", "--tasks", str(TASKS), "--only", "--concurrency", "2")
MINI = "m@medium+mini-swe-agent"
INSTALLED = os.environ.get(VARIABLE, "")


@pytest.fixture(autouse=True)
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in, as an executable of its own."""
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(participants, "RETRIES", 1)
    path = tmp_path / "python"
    source = Path(__file__).with_name("bash_agent.py").read_text().splitlines()
    path.write_text("\n".join([f"#!{sys.executable}", *source[1:]]))
    path.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(path))
    return path


class Both(Lab):
    """Solves with whatever tools it is offered."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        names = [tool["function"]["name"] for tool in body["tools"]]
        self.player = by_bash if names == ["bash"] else reference
        return super().answer(body)


def words(lab: Lab, folder: Path, *more: str) -> tuple[str, ...]:
    return (*BASE, "--policy", f"m={lab.url}#m", "--harness", "mini-swe-agent", "--out", str(folder), *more)


def idle(task: Task, turn: int) -> list[Call]:
    return [("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})]


def endless(task: Task, turn: int) -> list[Call]:
    return [("bash", {"command": "echo again; echo and >&2"})]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_both_harnesses_stand_side_by_side_with_the_same_policy_tasks_seeds_and_accounts(
    here: Here, tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    with serving(Both(tasks=exercises())) as lab:
        both = words(lab, folder, "--harness", "etude,mini-swe-agent", "--prices", prices(tmp_path), "--json")
        found = document(here(*both))
    ours, mini = row(found, "m@medium"), row(found, MINI)
    assert ours["avg"] == mini["avg"] == 100.0 and (ours["agent"], mini["agent"]) == ("", "mini-swe-agent")
    assert mini["usage"]["output_tokens"] == 300 * TASKS and mini["spent_dollars"] == pytest.approx(3 * TASKS * TURN)
    assert mini["turns"] == 3 and mini["harness"] != ours["harness"]
    (pair,) = found["comparisons"]
    assert (pair["a"], pair["b"], pair["points"]) == ("m@medium", MINI, 0.0)
    asked = [body for body in lab.asked if "seed" in body]
    bash = [body for body in asked if len(body["tools"]) == 1]
    assert {body["seed"] for body in bash} <= {body["seed"] for body in asked if len(body["tools"]) > 1}
    assert {(body["temperature"], body["max_tokens"]) for body in asked} == {(1.0, 4096)}
    settings = json.loads((folder / "conditions.json").read_text())["policies"][MINI]
    assert settings["agent_version"] == "0.1"


def test_its_sessions_are_sessions_as_any_and_hold_what_it_was_asked_and_changed(here: Here, tmp_path: Path) -> None:
    with serving(Both(tasks=exercises())) as lab:
        assert here(*words(lab, tmp_path / "r", "--task", "one-bug*")).returncode == 0
    (path,) = (tmp_path / "r" / "sessions" / MINI).glob("*.jsonl")
    session = read_session(path)
    (task,) = [task for task in exercises() if task.id.startswith("one-bug")]
    assert check_file(path) == [] and session.header.task_id == task.id and session.header.effort == "medium"
    assert session.header.facts["instruction"] == task.instruction
    first = session.of("message")[0].data["text"]
    assert first.startswith(task.instruction) and "The tests are run with: python" in first
    assert [entry.data["failed"] for entry in session.of("tool_result")] == [False, False]
    assert path.with_suffix(".patch").read_text() and session.of("verdict")[0].data["score"] == 1.0


@pytest.mark.nightly
def test_who_submits_at_once_gets_nothing_and_who_never_ends_is_stopped_after_the_turns_of_the_effort(
    here: Here, tmp_path: Path
) -> None:
    with serving(Lab(tasks=exercises(), player=idle)) as lab:
        found = document(here(*words(lab, tmp_path / "idle", "--json")))
    assert row(found, MINI)["avg"] == 0.0 and row(found, MINI)["turns"] == 1
    with serving(Lab(tasks=exercises(), player=endless)) as lab:
        few = ("--set", "harness.max_turns=6", "--effort", "low", "--task", "one-bug*", "--json")
        entry = row(document(here(*words(lab, tmp_path / "endless", *few))), "m@low+mini-swe-agent")
    assert entry["avg"] == 0.0 and entry["turns"] == 20  # half of an endpoint's 40
    (path,) = (tmp_path / "endless" / "sessions").rglob("*.jsonl")
    assert {entry.data["text"] for entry in read_session(path).of("tool_result")} == {"again\nand\n"}


@pytest.mark.nightly
def test_an_endpoint_that_dies_midway_ends_the_agents_too_and_the_same_command_goes_on(
    here: Here, tmp_path: Path
) -> None:
    lab = Lab(tasks=exercises(), player=by_bash, refuse=lambda n: (502, {}, "gone") if n > 8 else None)
    with serving(lab):
        done = here(*words(lab, tmp_path / "r"))
        (said,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert done.returncode == 1 and "stopped answering" in said and "HTTP 502" in said
        kept = len(lines(tmp_path / "r" / "policies" / f"{MINI}.jsonl"))
        lab.refuse = lambda number: None
        assert here(*words(lab, tmp_path / "r")).returncode == 0
    assert kept < TASKS and row(report(tmp_path / "r"), MINI)["avg"] == 100.0


def test_a_budget_holds_over_another_agents_turns(here: Here, tmp_path: Path) -> None:
    cap = 7 * TURN
    with serving(Lab(tasks=exercises(), player=by_bash)) as lab:
        done = here(*words(lab, tmp_path / "r", "--prices", prices(tmp_path), "--max-cost", str(cap)))
    assert done.returncode == 1 and "a higher --max-cost goes on" in done.stdout
    assert len(lines(tmp_path / "r" / "usage.jsonl")) == 6  # two attempts of three turns; a third would pass it


def test_a_refused_turn_is_evidence_and_is_graded(here: Here, tmp_path: Path) -> None:
    full = (400, {}, '{"error": {"message": "This model\'s maximum context length is 8192 tokens"}}')
    with serving(Lab(tasks=exercises(), refuse=lambda number: full if number > 1 else None)) as lab:
        found = document(here(*words(lab, tmp_path / "r", "--json", "--task", "one-bug*")))
    assert found["unfinished"] == [] and row(found, MINI)["avg"] == 0.0


def test_an_agent_that_dies_is_a_fault_of_ours_and_never_a_score(here: Here, tmp_path: Path, agent: Path) -> None:
    dying = tmp_path / "minisweagent-dies"
    shutil.copy(agent, dying)
    os.environ[VARIABLE] = str(dying)  # put back by the fixture's monkeypatch
    with serving(Lab(tasks=exercises(), player=by_bash)) as lab:
        done = here(*words(lab, tmp_path / "r", "--task", "one-bug*"))
    assert done.returncode == 1 and "out of breath" in done.stdout
    assert not (tmp_path / "r" / "policies").exists() and len(lines(tmp_path / "r" / "faults.jsonl")) == 1


@pytest.mark.parametrize(
    ("harness", "python", "said"),
    [
        ("mini", None, "there is no harness 'mini'"),
        ("mini-swe-agent", "", "names none: python -m venv"),
        ("mini-swe-agent", "/nowhere/python", "can't be run"),
        ("mini-swe-agent", sys.executable, "has no mini-swe-agent"),
    ],
)
def test_an_agent_that_is_not_there_is_one_line_with_the_way_out(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harness: str, python: str | None, said: str
) -> None:
    if python is not None:
        monkeypatch.setenv(VARIABLE, python)
    done = here(*BASE, "--policy", "m=http://127.0.0.1:9/v1#m", "--harness", harness, "--out", str(tmp_path / "r"))
    assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr


def test_suites_and_models_that_need_our_own_harness_are_refused_by_name(here: Here, tmp_path: Path) -> None:
    more = ("--harness", "mini-swe-agent", "--only", "--out", str(tmp_path / "r"))
    done = here("bench", "run", "targeted-eager", "--policy", "m=http://127.0.0.1:9/v1#m", *more)
    assert done.returncode == 1 and "decided by the log of our own harness" in done.stderr
    folder = find_checkpoint("checkpoints/sft-nano")
    if folder is None:
        pytest.skip("no checkpoints/sft-nano: an installed package brings none")
    done = here(*BASE, "--policy", f"checkpoint:{folder}", *more)
    assert done.returncode == 1 and "not those of mini-swe-agent" in done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.skipif(not INSTALLED, reason=f"set {VARIABLE} to a Python that has mini-swe-agent installed")
def test_the_real_mini_swe_agent_solves_what_the_policy_solves(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, INSTALLED)
    with serving(Both(tasks=exercises())) as lab:
        found = document(here(*words(lab, tmp_path / "r", "--harness", "etude,mini-swe-agent", "--json")))
    assert row(found, "m@medium")["avg"] == row(found, MINI)["avg"] == 100.0 and row(found, MINI)["turns"] == 3

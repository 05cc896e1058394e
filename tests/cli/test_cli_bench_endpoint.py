"""`etude bench run` of an endpoint: every way a server can be wrong, slow, mute or gone, and what a person may say about it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from endpoint_lab import Lab, Player, cheat, hostile, nop, reference, serving
from here import Here, document
from market import TASKS, TURN, exercises, prices, report, row

from etude.agent.policy import openai
from etude.tasks.real.source import RealPackages
from etude.tasks.running.pin import PackagesUnavailable, default_cache
from etude.tasks.task import Task

BASE = ("bench", "run", "exercises", "--recipe", "ci", "--tasks", str(TASKS), "--only", "--concurrency", "2")
ABSENT = "m=http://127.0.0.1:9/v1#m"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)
    monkeypatch.setenv("SOME_KEY", "sesame")


def words(lab: Lab, folder: Path, *more: str) -> tuple[str, ...]:
    return (
        *BASE,
        "--policy",
        f"m={lab.url}#some/model",
        "--out",
        str(folder),
        "--key-env",
        "SOME_KEY",
        "--json",
        *more,
    )


def real_bugs(count: int | None) -> list[Task]:
    source = RealPackages(default_cache())
    try:
        return [source.task(task_id) for task_id in source.ids("heldout")[:count]]
    except PackagesUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("player", "expected"), [(reference, 100.0), (nop, 0.0), (cheat, 0.0)])
def test_over_http_the_reference_solves_every_exercise_and_nop_and_cheats_none(
    here: Here, tmp_path: Path, player: Player, expected: float
) -> None:
    with serving(Lab(tasks=exercises(), player=player)) as lab:
        money = ("--price-in", "10", "--price-out", "20", "--price-cached", "1")
        found = document(here(*words(lab, tmp_path / "r", *money)))
    entry = row(found, "m@medium")
    assert entry["avg"] == expected and entry["tasks"] == TASKS and entry["model"] == "some/model"
    turns = len(lab.asked) - 1  # all but the greeting
    assert turns <= 3 * TASKS  # no session was summed up: the nano model's window is not an endpoint's
    assert entry["usage"]["input_tokens"] == 1000 * turns and entry["usage"]["output_tokens"] == 100 * turns
    assert entry["spent_dollars"] == pytest.approx(turns * TURN)
    assert {asked["authorization"] for asked in lab.asked} == {"Bearer sesame"}


def test_a_hostile_policy_scores_0_and_ends_no_bench(here: Here, tmp_path: Path) -> None:
    with serving(Lab(tasks=exercises(), player=hostile)) as lab:
        done = here(*words(lab, tmp_path / "r", "--price-in", "1", "--price-out", "1"))
    entry = row(document(done), "m@medium")
    assert (done.returncode, entry["avg"], entry["tasks"]) == (0, 0.0, TASKS)
    assert not (tmp_path / "r" / "faults.jsonl").exists()  # each attempt is the model's error, none the machine's


@pytest.mark.nightly
@pytest.mark.timeout(300)  # 3 s on a quiet core, behind a download the first time
def test_two_suites_in_one_command_lie_side_by_side_and_share_a_budget(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the real bug with the fastest tests
    monkeypatch.setattr(RealPackages, "ids", lambda self, split: ["mpmath-difference"])

    def player(task: Task, turn: int) -> list[tuple[str, dict[str, str]]]:
        return reference(task, turn) if task.id.startswith("mpmath") else nop(task, turn)

    with serving(Lab(tasks=exercises(), player=nop)) as lab:
        both = list(words(lab, tmp_path / "r", "--prices", prices(tmp_path)))
        both.insert(3, "real")
        real_bugs(1)
        capped = here(*both, "--max-cost", str(TASKS * TURN))
        assert capped.returncode == 1  # the exercises have spent it all
        left = document_of_many(capped)["real"]["unfinished"]
        assert left == [{"key": "m@medium", "whole_passes": 0, "planned_passes": 1, "missing": 1}]
        lab.tasks, lab.player = real_bugs(1), player
        found = document_of_many(here(*both, "--max-cost", "100"))
    assert row(found["exercises"], "m@medium")["avg"] == 0.0 and row(found["real"], "m@medium")["avg"] == 100.0
    assert report(tmp_path / "r" / "real") == found["real"]


def document_of_many(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return {found["suite"]["name"]: found for found in json.loads(done.stdout)["suites"]}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("player", "expected"), [(reference, 100.0), (nop, 0.0), (cheat, 0.0)])
def test_over_http_the_reference_solves_every_real_bug_and_nop_and_cheats_none(
    here: Here, tmp_path: Path, player: Player, expected: float
) -> None:
    with serving(Lab(tasks=real_bugs(None), player=player)) as lab:
        asked = ("bench", "run", "real", "--only", "--policy", f"m={lab.url}#m", "--out", str(tmp_path / "r"), "--json")
        entry = row(document(here(*asked)), "m@medium")
    assert entry["avg"] == expected and entry["tasks"] == len(lab.tasks)


def test_rate_limits_are_waited_out(here: Here, tmp_path: Path) -> None:
    lab = Lab(tasks=exercises(), refuse=lambda n: (429, {"Retry-After": "0.01"}, "slow down") if n % 3 == 0 else None)
    with serving(lab):
        assert row(document(here(*words(lab, tmp_path / "r"))), "m@medium")["tasks"] == TASKS


def test_a_full_context_ends_the_session_as_evidence(here: Here, tmp_path: Path) -> None:
    full = (400, {}, '{"error": {"message": "This model\'s maximum context length is 8192 tokens"}}')
    with serving(Lab(tasks=exercises(), refuse=lambda number: full if number > 1 else None)) as lab:
        found = document(here(*words(lab, tmp_path / "r")))
    assert row(found, "m@medium")["avg"] == 0.0 and found["unfinished"] == []


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((401, {}, "bad key"), "set SOME_KEY"),
        ((404, {}, "no such model"), "model name some/model"),
        ((400, {}, "model does not support tools"), "started with tool calls enabled"),
        ((400, {}, "unsupported parameter: seed"), "--omit FIELD"),
    ],
)
def test_what_is_wrong_from_the_start_costs_one_request_and_one_line(
    here: Here, tmp_path: Path, refusal: tuple[int, dict[str, str], str], said: str
) -> None:
    with serving(Lab(refuse=lambda number: refusal)) as lab:
        done = here(*words(lab, tmp_path / "r"))
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 1 and said in line and len(lab.asked) == 1


def test_an_absent_server_is_said_at_once(here: Here, tmp_path: Path) -> None:
    done = here(*BASE, "--policy", ABSENT, "--out", str(tmp_path / "r"))
    assert done.returncode == 1 and "did not answer a greeting" in done.stderr and "ConnectError" in done.stderr


def test_a_refused_greeting_binds_to_nothing(here: Here, tmp_path: Path) -> None:
    lab = Lab(tasks=exercises(), refuse=lambda number: (400, {}, "temperature must be 1") if number == 1 else None)
    with serving(lab):
        refused = here(*words(lab, tmp_path / "r", "--temperature", "0.5"))
        assert refused.returncode == 1 and "temperature must be 1" in refused.stderr
        assert row(document(here(*words(lab, tmp_path / "r"))), "m@medium")["tasks"] == TASKS
        other = here(*words(lab, tmp_path / "r", "--temperature", "0.5"))
    assert other.returncode == 1 and "settings.temperature: 1.0 then, 0.5 now" in other.stderr


def test_fields_that_an_endpoint_refuses_are_left_out_or_called_otherwise(here: Here, tmp_path: Path) -> None:
    with serving(Lab(tasks=exercises())) as lab:
        more = ("--omit", "temperature", "--max-tokens-field", "max_completion_tokens", "--context", "8192")
        assert here(*words(lab, tmp_path / "r", *more)).returncode == 0
    assert not any("temperature" in asked or "max_tokens" in asked for asked in lab.asked)
    assert {asked["max_completion_tokens"] for asked in lab.asked} == {8192 // 5}


def test_another_runs_directory_is_left_alone(here: Here, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("")
    done = here(*BASE, "--policy", ABSENT, "--out", str(tmp_path))
    assert done.returncode == 1 and "another run" in done.stderr and (tmp_path / "recipe.toml").read_text() == ""


@pytest.mark.nightly
def test_without_a_package_index_the_real_suite_is_refused_before_any_suite_is_asked(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETUDE_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with serving(Lab(tasks=exercises())) as lab:
        both = list(words(lab, tmp_path / "r"))
        both.insert(3, "real")
        done = here(*both)
    assert done.returncode == 1 and "could not be downloaded" in done.stderr and not lab.asked


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--price-in", "3"), "both --price-in and --price-out"),
        (("--price-in", "3", "--price-out", "1", "--prices", "p.toml"), "are two lists"),
        (("--prices", "none.toml"), "no such file"),
    ],
)
def test_prices_said_by_half_or_twice_are_refused(here: Here, tmp_path: Path, more: tuple[str, ...], said: str) -> None:
    done = here(*BASE, "--policy", ABSENT, "--out", str(tmp_path / "r"), *more)
    assert done.returncode == 1 and said in done.stderr and not (tmp_path / "r" / "policies").exists()


def test_a_dry_run_tells_whether_there_is_a_key_and_asks_no_one(here: Here, tmp_path: Path) -> None:
    out = ("--out", str(tmp_path / "new"), "--dry-run", "--key-env")
    assert "SOME_KEY is set" in here(*BASE, "--policy", ABSENT, *out, "SOME_KEY").stdout
    assert "NO_SUCH_KEY is not set" in here(*BASE, "--policy", ABSENT, *out, "NO_SUCH_KEY").stdout
    assert not (tmp_path / "new").exists()

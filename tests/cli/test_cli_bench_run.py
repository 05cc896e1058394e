"""`etude bench run` end to end: suites, controls, endpoints over HTTP at several efforts, budgets, kills, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from endpoint_lab import Lab, nop, reference, serving
from here import Here, document
from market import TASKS, TURN, exercises, prices, report, row

import etude
from etude.agent.policy import openai
from etude.pipeline.recipe.read import find_checkpoint
from etude.pipeline.run import participants
from etude.pipeline.run.checkpoint_identity import identity

BASE = ("bench", "run", "exercises", "--recipe", "ci", "--tasks", str(TASKS))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)


class Market(Lab):
    """Two models: `strong` solves always, `weak` only when it tries hard; a greeting is answered as it asks."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        solves = body["model"] == "strong" or body.get("reasoning_effort") == "high"
        self.player = reference if solves else nop
        return super().answer(body)


def test_the_reference_gets_all_idling_and_cheating_nothing_and_two_runs_are_equal_bytes(
    here: Here, tmp_path: Path
) -> None:
    found = [here(*BASE, "--passes", "2", "--out", str(tmp_path / name), "--json") for name in "ab"]
    assert [done.returncode for done in found] == [0, 0], found[0].stderr
    scores = {entry["key"]: entry["avg"] for entry in document(found[0])["policies"]}
    assert scores == {"nop@medium": 0.0, "cheats@medium": 0.0, "expert@medium": 100.0}
    first, second = ((tmp_path / name / "report.json").read_bytes() for name in "ab")
    assert first == second and json.loads(first) == document(found[0])
    kept = tmp_path / "a" / "sessions" / "expert@medium"
    assert len(list(kept.glob("*.jsonl"))) == len(list(kept.glob("*.patch"))) == 2 * TASKS
    assert any("+" in path.read_text() for path in kept.glob("*.patch"))
    assert not any(path.read_text() for path in (tmp_path / "a" / "sessions" / "nop@medium").glob("*.patch"))


@pytest.mark.nightly
def test_three_models_at_efforts_have_curves_costs_and_a_front(here: Here, tmp_path: Path) -> None:
    with serving(Market(tasks=exercises())) as lab:
        done = here(
            *BASE, "--policy", f"{lab.url}#strong", "--policy", f"weakling={lab.url}#weak", "--effort", "low,medium,high",
            "--prices", prices(tmp_path), "--out", str(tmp_path / "r"), "--json",
        )  # fmt: skip
    found = document(done)
    assert {entry["key"]: entry["avg"] for entry in found["policies"] if entry["kind"] == "endpoint"} == {
        "strong@low": 100.0, "strong@medium": 100.0, "strong@high": 100.0,
        "weakling@low": 0.0, "weakling@medium": 0.0, "weakling@high": 100.0,
    }  # fmt: skip
    weak = row(found, "weakling@low")
    assert weak["axes"]["dollars"]["value"] == pytest.approx(TURN) and weak["spent_dollars"] == pytest.approx(
        TASKS * TURN
    )
    assert weak["axes"]["tokens"] == {"value": 100.0, "ci95": [100.0, 100.0], "median": 100.0, "source": "endpoint"}
    points = {point["key"]: point["on_front"] for point in found["pareto"]["dollars"]}
    assert points == {key: True for key in points}  # two prices, one score each: no policy is beaten
    assert len(found["comparisons"]) == 15 and set(found["pareto"]) == {"tokens", "dollars", "seconds"}
    assert {body.get("reasoning_effort") for body in lab.asked} == {"low", None, "high"}
    greetings = [body for body in lab.asked if "seed" not in body]
    assert len(greetings) == 6  # one of each policy and effort


def test_a_budget_stops_before_the_attempt_that_would_pass_it_and_a_higher_one_goes_on(
    here: Here, tmp_path: Path
) -> None:
    cap = 3.5 * TURN  # nop takes a turn an attempt
    with serving(Lab(tasks=exercises(), player=nop)) as lab:
        words = (
            *BASE,
            "--only",
            "--policy",
            f"m={lab.url}#m",
            "--prices",
            prices(tmp_path),
            "--out",
            str(tmp_path / "r"),
        )
        done = here(*words, "--max-cost", str(cap), "--json")
        assert done.returncode == 1 and len((tmp_path / "r/policies/m@medium.jsonl").read_text().splitlines()) == 3
        assert document_of(done)["unfinished"] == [
            {"key": "m@medium", "whole_passes": 0, "planned_passes": 1, "missing": TASKS - 3}
        ]
        again = here(*words, "--max-cost", str(cap))
        assert (
            again.returncode == 1
            and "a higher --max-cost goes on" in again.stdout
            and "5 attempts are missing" in again.stdout
        )
        assert len(lab.asked) - 2 == 3  # two greetings and nothing asked twice
        assert here(*words, "--max-cost", str(20 * TURN)).returncode == 0
    assert row(report(tmp_path / "r"), "m@medium")["spent_dollars"] == pytest.approx(TASKS * TURN)


def test_an_attempt_that_passes_the_budget_ends_the_run_and_is_not_tried_again(here: Here, tmp_path: Path) -> None:
    with serving(Lab(tasks=exercises(), player=reference)) as lab:
        done = here(
            *BASE, "--only", "--policy", f"m={lab.url}#m", "--prices", prices(tmp_path), "--out", str(tmp_path / "r"),
            "--max-cost", str(1.5 * TURN),
        )  # fmt: skip
    assert done.returncode == 1 and "a higher --max-cost goes on" in done.stdout
    assert len((tmp_path / "r/usage.jsonl").read_text().splitlines()) == 2  # the second turn passes the cap
    assert not (tmp_path / "r/faults.jsonl").exists()


def document_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    return json.loads(done.stdout)


def test_a_budget_without_a_price_is_refused_before_anything_is_asked(here: Here, tmp_path: Path) -> None:
    with serving(Lab()) as lab:
        done = here(*BASE, "--policy", f"m={lab.url}#m", "--max-cost", "1", "--out", str(tmp_path / "r"))
    assert done.returncode == 1 and "--max-cost needs to know what m costs" in done.stderr and not lab.asked


def test_a_budget_at_an_endpoint_that_tells_no_usage_is_refused_at_its_first_turn(here: Here, tmp_path: Path) -> None:
    class Silent(Lab):
        def answer(self, body: dict[str, Any]) -> dict[str, Any]:
            return {k: v for k, v in super().answer(body).items() if k != "usage"}

    with serving(Silent(tasks=exercises())) as lab:
        done = here(
            *BASE, "--only", "--policy", f"m={lab.url}#m", "--max-cost", "1", "--prices", prices(tmp_path), "--out", str(tmp_path / "r")
        )  # fmt: skip
    assert done.returncode == 1 and "without saying what it cost" in done.stderr and "Traceback" not in done.stderr
    assert len(lab.asked) == 2


def test_an_endpoint_that_dies_midway_is_one_line_and_the_same_command_goes_on(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participants, "RETRIES", 1)
    lab = Lab(tasks=exercises(), player=nop, refuse=lambda number: (502, {}, "gone") if number > 4 else None)
    with serving(lab):
        words = (*BASE, "--policy", f"m={lab.url}#m", "--out", str(tmp_path / "r"), "--concurrency", "2")
        done = here(*words)
        assert done.returncode == 1
        (said,) = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert "stopped answering" in said and "HTTP 502" in said and "same command again" in said
        assert row(report(tmp_path / "r"), "expert@medium")["avg"] == 100.0  # it says what was made
        kept = len((tmp_path / "r/policies/m@medium.jsonl").read_text().splitlines())
        lab.refuse, before = lambda number: None, len(lab.asked)
        assert here(*words).returncode == 0
    assert len(lab.asked) - before == 1 + TASKS - kept and report(tmp_path / "r")["unfinished"] == []


@pytest.mark.nightly
def test_sigkill_midway_loses_no_pass_and_counts_none_twice(here: Here, tmp_path: Path) -> None:
    words = [*BASE, "--passes", "3", "--concurrency", "2", "--only", "--policy", "nop", "--policy", "expert"]
    assert here(*words, "--out", str(tmp_path / "whole")).returncode == 0
    killed = tmp_path / "killed"
    for at in (5, 30):  # of 48 attempts
        run_until_killed([*words, "--out", str(killed)], killed, at)
    assert here(*words, "--out", str(killed)).returncode == 0
    assert (killed / "report.json").read_bytes() == (tmp_path / "whole" / "report.json").read_bytes()
    for path in (killed / "policies").iterdir():
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert len({(r["task_id"], r["attempt"]) for r in rows}) == len(rows) == 3 * TASKS


def run_until_killed(words: list[str], folder: Path, at: int) -> None:
    """The command in a process of its own, killed hard once `at` attempts are written down."""
    code = "import sys; from etude.cli.main import main; sys.argv = ['etude', *sys.argv[1:]]; main()"
    env = os.environ | {"PYTHONPATH": str(Path(etude.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-c", code, *words], env=env, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        files = list((folder / "policies").glob("*.jsonl"))
        if sum(len(path.read_bytes().splitlines()) for path in files) >= at:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it could be killed"


def test_other_conditions_are_not_mixed_into_a_folder(here: Here, tmp_path: Path) -> None:
    words = (*BASE, "--only", "--policy", "nop", "--out", str(tmp_path / "r"))
    assert here(*words).returncode == 0
    before = (tmp_path / "r" / "report.json").read_bytes()
    done = here(*words, "--seed", "8")
    assert done.returncode == 1 and "other conditions" in done.stderr and "shared.seed: 7 then, 8 now" in done.stderr
    assert here(*words, "--policy", "expert").returncode == 0  # a policy may join
    assert (tmp_path / "r" / "report.json").read_bytes() != before


def test_a_dry_run_plans_and_touches_nothing(here: Here, tmp_path: Path) -> None:
    words = (
        *BASE,
        "--policy",
        "m=http://127.0.0.1:9/v1#m",
        "--effort",
        "low,high",
        "--passes",
        "4",
        "--dry-run",
        "--json",
    )
    found = document(here(*words, "--prices", prices(tmp_path), "--out", str(tmp_path / "new")))
    keys = [f"{entry['name']}@{entry['effort']}" for entry in found["policies"]]
    assert keys == ["nop@medium", "cheats@medium", "expert@medium", "m@low", "m@high"]
    assert found["attempts"] == 5 * 4 * TASKS and found["policies"][3]["price"]["output"] == 20.0
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("bench", "run", "exercizes"), "did you mean exercises"),
        ((*BASE, "--policy", "expart"), "did you mean expert?"),
        ((*BASE, "--policy", "cheat:bribery"), "there is no cheat 'bribery'"),
        ((*BASE, "--policy", "m=http://127.0.0.1:9/v1"), "#MODEL"),
        ((*BASE, "--policy", "checkpoint:nowhere"), "no config.json"),
        ((*BASE, "--policy", "a/b=http://x/v1#m"), "there is no policy"),
        ((*BASE, "--policy", "-x=http://x/v1#m"), "not '-x'"),
        ((*BASE, "--effort", "low,utmost"), "no effort 'utmost'"),
        ((*BASE, "--task", "nothing*"), "matches --task nothing*"),
        ((*BASE, "--only"), "no policy to ask"),
        ((*BASE, "--policy", "m=http://x/v1#m", "--policy", "m=http://y/v1#n"), "two policies are called m@medium"),
        ((*BASE, "--prices", "none.toml"), "no such file"),
    ],
)
def test_what_makes_no_sense_is_one_line(here: Here, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = here(*words, "--out", str(tmp_path / "r"))
    assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "r" / "policies").exists()


def test_a_checkpoint_answers_from_the_engine_in_this_process(here: Here, tmp_path: Path) -> None:
    folder = find_checkpoint("checkpoints/sft-nano")
    if folder is None:
        pytest.skip("no checkpoints/sft-nano: an installed package brings none")
    words = (*BASE, "--only", "--task", "one-bug*", "--passes", "2", "--out", str(tmp_path / "r"), "--json")
    found = document(here(*words, "--policy", f"nano=checkpoint:{folder}", "--effort", "low,high"))
    assert [entry["key"] for entry in found["policies"]] == ["nano@low", "nano@high"]
    entry = row(found, "nano@low")
    assert set(entry["axes"]) == {"tokens", "seconds", "core_seconds"} and entry["axes"]["core_seconds"]["value"] > 0
    assert entry["axes"]["tokens"]["source"] == "endpoint" and entry["usage"]["output_tokens"] > 0
    kept = json.loads((tmp_path / "r" / "conditions.json").read_text())["policies"]["nano@low"]
    assert (
        kept["settings"]["preset"] == "nano"
        and kept["settings"]["effort"] == "low"
        and kept["checkpoint"] == identity(folder)
    )


def test_a_checkpoint_is_known_by_its_content_wherever_it_lies(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(bytes(3 << 20))
    assert identity(tmp_path / "a") == identity(tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").write_bytes(bytes((3 << 20) - 1) + b"x")
    assert identity(tmp_path / "a") != identity(tmp_path / "b")


def test_the_report_is_rebuilt_from_the_folder_by_etude_report(here: Here, tmp_path: Path) -> None:
    assert here(*BASE, "--only", "--policy", "nop", "--policy", "expert", "--out", str(tmp_path / "r")).returncode == 0
    before = {name: (tmp_path / "r" / name).read_bytes() for name in ("report.json", "report.html")}
    for name in before:
        (tmp_path / "r" / name).unlink()
    assert document(here("report", str(tmp_path / "r"), "--json")) == json.loads(before["report.json"])
    assert {name: (tmp_path / "r" / name).read_bytes() for name in before} == before

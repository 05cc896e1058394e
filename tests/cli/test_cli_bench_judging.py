"""`etude bench audit` and `etude bench judge` over the folder of a run: flags, averages without them, judged parts with their agreement."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from endpoint_lab import Lab, serving, spoken
from here import Here, document

from etude.agent.policy import openai
from etude.evaluate.bench.targeted.cases import cases

TASKS = len(cases("eager"))
RUN = ("bench", "run", "targeted-eager", "--recipe", "ci")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)


class Judge(Lab):
    """A judge that answers every question with its last or its first choice."""

    best = True

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["messages"][1]["content"]
        choices = json.loads(text.rpartition("worst first: ")[2])
        said = json.dumps({"reason": "the log shows it", "choice": choices[-1 if self.best else 0]})
        return spoken(said)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "run"


@pytest.fixture
def bench(made: Path, here: Here, tmp_path: Path) -> Path:
    """A run of a suite by its controls, made once, each test with a copy of its own."""
    if not made.exists():
        assert here(*RUN, "--out", str(made)).returncode == 0
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())


def test_every_cheat_is_flagged_the_expert_is_not_and_no_score_changes(here: Here, bench: Path) -> None:
    before = report(bench)
    assert before["audit"] is None and before["judged"]["judge"] is None and "left out" in before["judged"]["why"]
    found = document(here("bench", "audit", str(bench), "--recipe", "ci", "--json"))
    rows = found["policies"]
    assert rows["cheats@medium"]["flagged"] == rows["cheats@medium"]["passes"] == TASKS
    assert rows["expert@medium"]["flagged"] == 0 == rows["nop@medium"]["flagged"]
    assert rows["expert@medium"]["avg_without_flagged"] == 100.0
    after = report(bench)
    assert after["policies"] == before["policies"] and after["audit"]["policies"] == rows
    assert "Without flagged" in (bench / "report.html").read_text()
    text = here("bench", "audit", str(bench), "--recipe", "ci").stdout
    assert "cheats@medium" in text and "without" in text


def test_a_plan_says_what_would_be_read_and_writes_nothing(here: Here, bench: Path) -> None:
    found = document(here("bench", "audit", str(bench), "--recipe", "ci", "--dry-run", "--json"))
    assert found["passes"] == 3 * TASKS == found["sessions"] and not (bench / "audit.jsonl").exists()


def test_without_a_judge_judged_parts_are_left_out_and_said_so(here: Here, bench: Path) -> None:
    found = document(here("bench", "judge", str(bench), "--recipe", "ci", "--json"))
    assert "left out" in found["note"] and not (bench / "judgements.jsonl").exists()


def test_a_judge_decides_each_pass_its_agreement_is_shown_and_nothing_is_asked_twice(here: Here, bench: Path) -> None:
    with serving(Judge()) as lab:
        words = ("bench", "judge", str(bench), "--recipe", "ci", "--judge", f"{lab.url}#reader", "--json")
        found = document(here(*words))
        calls = len(lab.asked)
        assert document(here(*words)) == found and len(lab.asked) == calls
    figure = found["policies"]["expert@medium"]["answer/answers_the_question"]
    assert figure["avg"] == 100.0 and figure["decided"] == TASKS and figure["not_decided"] == 0
    assert found["totals"]["expert@medium"]["answer"]["avg"] == 100.0
    kappas = {(row["judge"], row["criterion"]): row["kappa"] for row in found["agreement"]}
    assert kappas["reader", "claims"] == pytest.approx(0.0) and kappas["rule", "claims"] > 0.2
    assert {row["judge"] for row in found["readers"]} >= {"two readers"} and found["labelled"] == {}
    assert found["cost"]["input_tokens"] == 500 * calls and report(bench)["judged"] == found
    asked = [row["messages"][1]["content"] for row in lab.asked]
    assert not any("expert" in text or "cheats@" in text for text in asked)


@pytest.mark.nightly
def test_a_run_may_name_its_judge_at_once_and_conditions_tell_whether_one_was_missing(
    here: Here, tmp_path: Path
) -> None:
    words = (*RUN, "--only", "--policy", "expert", "--out", str(tmp_path / "r"))
    done = here(*words)
    assert "judged parts are left out" in done.stdout
    recorded = json.loads((tmp_path / "r" / "conditions.json").read_text())["shared"]["report"]
    assert recorded["rubrics"] == report(tmp_path / "r")["tasks_with_rubric"] == TASKS and recorded["judge"] is None
    with serving(Judge()) as lab:
        judged = document(here(*words, "--judge", f"{lab.url}#reader", "--json"))
        assert judged["judged"]["policies"]["expert@medium"]["answer/answers_the_question"]["avg"] == 100.0
        word = f"{lab.url}#reader"
    assert here(*words).returncode == 0  # without one again: what it said stays, and so does its name
    recorded = json.loads((tmp_path / "r" / "conditions.json").read_text())["shared"]["report"]
    assert recorded["judge"] == word and report(tmp_path / "r")["judged"] == judged["judged"]


def test_a_suite_without_rubrics_leaves_nothing_out_and_has_nothing_to_judge(here: Here, tmp_path: Path) -> None:
    words = ("bench", "run", "exercises", "--recipe", "ci", "--task", "one-bug*", "--only", "--policy", "nop")
    done = here(*words, "--out", str(tmp_path / "r"), "--judge", "http://127.0.0.1:9/v1#reader")
    assert done.returncode == 0 and "--judge has nothing to judge" in done.stdout
    assert report(tmp_path / "r")["judged"] == {"judge": None, "why": "no task asked has a rubric"}


class Runner(Judge):
    """Decides by running where it is given tools, as a plain judge where it is not."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if not body.get("tools"):
            return super().answer(body)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        script = "python -c \"import json; c = json.load(open('.grading/criterion.json'))['choices']; n = len(open('.grading/changes.diff').read())"
        script += "; json.dump({'reason': f'the diff has {n} characters', 'choice': c[-1 if n == 0 else 0]}, open('.grading/verdict.json', 'w'))\""
        name, arguments = [("shell", {"command": script}), ("done", {"message": "graded"})][turn]
        call = {"id": f"c{turn}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"prompt_tokens": 500, "completion_tokens": 20}
        return {"choices": [{"message": message, "finish_reason": "tool_calls"}], "usage": usage}


@pytest.mark.nightly
def test_an_agentic_grader_runs_on_what_each_attempt_left(here: Here, bench: Path) -> None:
    with serving(Runner()) as lab:
        words = ("bench", "judge", str(bench), "--recipe", "ci", "--agentic", "--judge", f"{lab.url}#runner", "--json")
        found = document(here(*words))
        calls = len(lab.asked)
        assert document(here(*words)) == found and len(lab.asked) == calls
    name = "answer/answers_the_question"
    assert found["agentic"] and found["policies"]["expert@medium"][name]["avg"] == 100.0  # it changed nothing
    assert found["policies"]["cheats@medium"][name]["avg"] == 0.0 and found["unread"] == []


def test_the_auditors_judge_convicts_and_its_word_is_in_the_report(here: Here, bench: Path) -> None:
    lab = Judge()
    lab.best = False
    with serving(lab):
        here("bench", "audit", str(bench), "--recipe", "ci", "--judge", f"{lab.url}#reader", "--sample", "1", "--json")
    rows = report(bench)["audit"]["policies"]
    assert rows["expert@medium"]["flagged"] == TASKS == rows["expert@medium"]["judged"]
    assert (
        rows["expert@medium"]["avg_without_flagged"] is None and rows["expert@medium"]["avg_flagged_as_failed"] == 0.0
    )


def test_a_probe_needs_tasks_that_hide_something(here: Here, bench: Path) -> None:
    with serving(Judge()) as lab:
        done = here("bench", "audit", str(bench), "--recipe", "ci", "--probe", f"{lab.url}#reader")
    assert done.returncode == 1 and "a probe needs 5" in done.stderr


@pytest.mark.parametrize(
    "words, wrong",
    [
        (("--judge", "somebody"), "write [NAME=]URL#MODEL"),
        (("--judge", "checkpoint:nowhere"), "no config.json"),
        (("--probe", "checkpoint:nowhere"), "no config.json"),
        (("--suite", "targeted-quality"), "has no task eager/why-zero"),
        (("--suite", "targeted-eagre"), "did you mean targeted-eager"),
    ],
)
def test_what_is_wrong_is_one_line_with_the_remedy(here: Here, bench: Path, words: tuple[str, ...], wrong: str) -> None:
    done = here("bench", "audit", str(bench), "--recipe", "ci", *words)
    assert done.returncode == 1 and wrong in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_suite_that_is_gone_is_said_and_what_needs_no_suite_is_done(here: Here, bench: Path) -> None:
    path = bench / "conditions.json"
    recorded = json.loads(path.read_text())
    recorded["shared"]["suite"]["name"] = "of-last-year"
    path.write_text(json.dumps(recorded))
    found = document(here("bench", "audit", str(bench), "--recipe", "ci", "--json"))
    assert "can't be had here" in found["note"] and found["policies"]["cheats@medium"]["flagged"] >= 1
    assert here("bench", "judge", str(bench), "--recipe", "ci").returncode == 1

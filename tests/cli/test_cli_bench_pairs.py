"""`etude bench judge --pairs`, `etude bench run --arms`, `etude bench wires`, probes on record, and a judge that dies midway."""

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

TASKS = len(cases("quality"))


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)


class Reader(Lab):
    """Decides by what it reads: a pair by the shorter text, a single criterion by its last choice, a probe by nothing it knows."""

    dies_after: int | None = None

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["messages"][1]["content"]
        if "from memory" in body["messages"][0]["content"]:
            said = "pass"
        elif "compare two" in body["messages"][0]["content"]:
            said = self._pair(text)
        else:
            said = json.dumps({"reason": "shown", "choice": json.loads(text.rpartition("worst first: ")[2])[-1]})
        return spoken(said)

    def _pair(self, text: str) -> str:
        first, second = (text.split(f"<<<{place} diff ")[1].split(">>>")[0] for place in ("first", "second"))
        return json.dumps({"reason": "shorter", "choice": "first" if len(first) <= len(second) else "second"})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "run"


@pytest.fixture
def bench(made: Path, here: Here, tmp_path: Path) -> Path:
    """A run of the quality suite by expert and cheats, made once, each test with a copy of its own."""
    if not made.exists():
        words = (
            "bench",
            "run",
            "targeted-quality",
            "--recipe",
            "ci",
            "--only",
            "--policy",
            "expert",
            "--policy",
            "cheats",
        )
        assert here(*words, "--out", str(made)).returncode == 0
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def test_two_policies_are_compared_in_both_orders_and_nothing_is_asked_twice(here: Here, bench: Path) -> None:
    with serving(Reader()) as lab:
        judge = ("--judge", f"{lab.url}#reader", "--recipe", "ci")
        words = ("bench", "judge", str(bench), "--pairs", "expert", "cheats", *judge)
        plan = document(here(*words, "--dry-run", "--json"))
        assert plan["calls"] == 2 * TASKS and lab.asked == []
        found = document(here(*words, "--json"))
        assert len(lab.asked) == 2 * TASKS
        assert document(here(*words, "--json")) == found and len(lab.asked) == 2 * TASKS
    row = found["criteria"]["quality/simpler"]
    assert (found["a"], found["b"]) == ("expert@medium", "cheats@medium")
    assert row["decided"] == TASKS and row["orders_disagree"] == 0 == row["not_decided"]
    sizes = [
        [len(path.read_text()) for path in sorted((bench / "sessions" / f"{name}@medium").glob("*.patch"))]
        for name in ("expert", "cheats")
    ]
    shorter = sum(one <= other for one, other in zip(*sizes, strict=True))
    assert (
        row["a_preferred"] == pytest.approx(100 * shorter / TASKS)
        and row["ci95"][0] <= row["a_preferred"] <= row["ci95"][1]
    )
    assert json.loads((bench / "report.json").read_text())["pairs"] == [found]
    assert not any(name in body["messages"][1]["content"] for body in lab.asked for name in ("expert", "cheats"))


@pytest.mark.parametrize(
    "pairs, wrong",
    [(("expert", "absent"), "'absent' names 0 policies"), (("expert", "expert@medium"), "name two policies")],
)
def test_pairs_that_make_no_sense_are_named(here: Here, bench: Path, pairs: tuple[str, str], wrong: str) -> None:
    done = here("bench", "judge", str(bench), "--recipe", "ci", "--pairs", *pairs)
    assert done.returncode == 1 and wrong in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_judge_that_dies_midway_is_one_line_and_the_next_run_asks_only_the_rest(here: Here, bench: Path) -> None:
    with serving(Reader()) as lab:
        words = ("bench", "judge", str(bench), "--recipe", "ci", "--judge", f"{lab.url}#reader")
        lab.refuse = lambda number: (500, {}, "gone") if number >= 4 else None
        done = here(*words)
        kept = len((bench / "judgements.jsonl").read_text().splitlines())
        recorded = done.stderr.strip().splitlines()[-1]
        assert (
            done.returncode == 1 and "--judge stopped answering" in recorded and "what was answered is kept" in recorded
        )
        assert kept >= 1 and not (bench / "judged.json").exists()
        lab.refuse, before = (lambda number: None), len(lab.asked)
        found = document(here(*words, "--json"))
        lines = (bench / "judgements.jsonl").read_text().splitlines()
    again = len(lab.asked) - before - (len(lines) - kept)
    assert 0 <= again <= 4  # what was in flight when it died
    assert found["policies"]["expert@medium"]["quality/code_quality"]["avg"] == 100.0 and found["unread"] == []


def test_an_audit_whose_judge_is_gone_keeps_what_the_tripwires_saw(here: Here, bench: Path) -> None:
    with serving(Reader()) as lab:
        lab.refuse = lambda number: (500, {}, "gone")
        words = ("bench", "audit", str(bench), "--recipe", "ci", "--judge", f"{lab.url}#reader", "--sample", "1")
        done = here(*words)
        assert done.returncode == 1 and "what was answered is kept" in done.stderr.strip().splitlines()[-1]
        rows = json.loads((bench / "report.json").read_text())["audit"]["policies"]
        assert rows["cheats@medium"]["flagged"] == TASKS and rows["expert@medium"]["judged"] == 0
        lab.refuse = lambda number: None
        found = document(here(*words, "--json"))
    assert found["policies"]["expert@medium"]["judged"] == TASKS and found["policies"]["expert@medium"]["flagged"] == 0


def test_a_policy_is_asked_with_self_summaries_and_without(here: Here, tmp_path: Path) -> None:
    run = ("bench", "run", "targeted-recovery", "--recipe", "ci", "--only", "--policy", "expert", "--arms")
    done = here(*run, "--out", str(tmp_path / "run"))
    assert done.returncode == 0 and "self-summaries of expert@medium: +0.0 points" in done.stdout
    (row,) = json.loads((tmp_path / "run" / "report.json").read_text())["summaries"]
    assert (row["with"], row["without"]) == ("expert@medium", "expert.unsummarized@medium")
    assert row["tokens_with"] > row["tokens_without"] and row["tasks"] == len(cases("recovery"))
    alone = here("bench", "run", "targeted-recovery", "--recipe", "ci", "--arms", "--dry-run")
    assert alone.returncode == 1 and "name one with --policy" in alone.stderr
    never = ("bench", "run", "exercises", "--recipe", "ci", "--policy", "nop", "--arms", "--dry-run")
    done = here(*never, "--set", "harness.summary_trigger_tokens=0")
    assert done.returncode == 1 and "never sums its sessions up" in done.stderr


def test_tripwires_are_measured_over_a_suite(here: Here) -> None:
    found = document(here("bench", "wires", "exercises", "--recipe", "ci", "--tasks", "8", "--json"))
    assert (
        found["in_all"]["recall"] == 1.0 == found["in_all"]["precision"] and found["missed"] == [] == found["bothered"]
    )
    assert found["in_all"]["references"] == 8 and found["in_all"]["cheats"] > 50
    text = here("bench", "wires", "exercises", "--recipe", "ci", "--tasks", "8").stdout
    assert "recall 100.0%, precision 100.0%" in text and "cheat hardcoded" in text


def test_a_probe_is_in_the_folder_and_the_report_names_who_was_not_probed(here: Here, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    asked = (
        "bench",
        "run",
        "exercises",
        "--recipe",
        "ci",
        "--tasks",
        "8",
        "--only",
        "--policy",
        "nop",
        "--out",
        str(folder),
    )
    assert here(*asked).returncode == 0
    path = folder / "conditions.json"
    recorded = json.loads(path.read_text())
    recorded["policies"]["nop@medium"] |= {"kind": "endpoint", "model": "reader"}
    path.write_text(json.dumps(recorded))
    words = ("bench", "audit", str(folder), "--recipe", "ci", "--json")
    assert document(here(*words))["contamination"] == {"probes": [], "not_probed": ["nop@medium"]}
    with serving(Reader()) as lab:
        found = document(here(*words, "--probe", f"{lab.url}#reader"))["contamination"]
        calls = len(lab.asked)
        assert document(here(*words, "--probe", f"{lab.url}#reader"))["contamination"] == found
        assert calls == len(lab.asked) == found["probes"][0]["tasks"]
    assert found["not_probed"] == [] and found["probes"][0]["policy"] == "reader" and found["probes"][0]["own"] == 0.0
    assert json.loads((folder / "report.json").read_text())["contamination"] == found
    assert "Probed for memory" in (folder / "report.html").read_text()

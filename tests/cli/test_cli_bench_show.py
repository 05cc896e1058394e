"""`etude bench show` and what `make` and `import` say before they do anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.evaluate.bench.suites.freeze import freeze
from etude.evaluate.bench.suites.manifest import check
from etude.pipeline.recipe.recipe import Recipe
from etude.tasks.generate.exercises.source import ExerciseSource


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a suite of two exercises on its shelf."""
    source = ExerciseSource(Recipe().exercises)
    tasks = [source.task(task_id) for task_id in source.ids("heldout")[:2]]
    freeze(tmp_path / "suites" / "mine", check({"name": "mine", "version": "3", "released": "2026-11-01"}, "t"), tasks)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, dict]:
    from etude.cli.main import main

    monkeypatch.setattr("sys.argv", ["etude", "bench", *words, "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), json.loads(capfd.readouterr().out)


def test_suites_are_listed_and_one_is_shown_with_its_tasks(shelf: Path, capfd, monkeypatch):
    code, listed = said(capfd, monkeypatch, "show")
    names = [row["name"] for row in listed["suites"]]
    assert code == 0 and names[:2] == ["exercises", "real"] and "targeted-eager" in names and names[-1] == "mine"
    code, shown = said(capfd, monkeypatch, "show", "mine", "--verify")
    assert code == 0 and shown["suite"] == "mine@3" and len(shown["tasks"]) == 2
    assert shown["manifest"]["changelog"][0]["version"] == "3" and shown["report_prompt_chars"] == 390
    code, task = said(capfd, monkeypatch, "show", "mine", shown["tasks"][0])
    assert code == 0 and task["id"] == shown["tasks"][0] and task["solution"]
    code, answer = said(capfd, monkeypatch, "show", "mine", "absent")
    assert code == 1 and "has no task 'absent'" in answer["error"]["message"]


def test_a_suite_that_can_not_be_read_is_listed_with_the_reason_next_to_the_others(shelf: Path, capfd, monkeypatch):
    (shelf / "suites" / "broken").mkdir()
    (shelf / "suites" / "broken" / "suite.toml").write_text("schema = 1\nname = 7\n")
    code, listed = said(capfd, monkeypatch, "show")
    rows = {row["name"]: row for row in listed["suites"]}
    assert code == 0 and "name" in rows["broken"]["error"] and rows["mine"]["tasks"] == 2


def test_a_dry_run_tells_candidates_and_writes_nothing(shelf: Path, capfd, monkeypatch):
    before = sorted(shelf.rglob("*"))
    code, plan = said(
        capfd, monkeypatch, "make", "other", "--from-tasks", "exercises", "--level", "one-bug", "--dry-run"
    )
    assert code == 0 and plan["folder"] == "suites/other" and plan["candidates"] > 100
    rows = shelf / "rows.jsonl"
    rows.write_text("")
    code, answer = said(capfd, monkeypatch, "import", "swe-bench", "rows.jsonl", "--repos", ".", "--dry-run")
    assert code == 1 and "no row" in answer["error"]["message"]
    rows.unlink()
    assert sorted(shelf.rglob("*")) == before


@pytest.mark.parametrize(
    "words, complaint",
    [
        (["make", "x"], "say what the suite is made of"),
        (["make", "x", "--from-tasks", "real", "--from-sessions", "."], "say what the suite is made of"),
        (["make", "a b", "--from-tasks", "real"], "use letters, digits"),
        (["make", "x", "--from-tasks", "real", "--after", "nine"], "there is no suite 'nine': did you mean mine"),
        (["make", "x", "--from-tasks", "real", "--prices", "absent"], "absent: there is no such file"),
        (["make", "x", "--from-sessions", "absent"], "absent: there is no such file or folder"),
        (["import", "harbor", ".", "--image", "x"], "give GLOB=IMAGE"),
        (["show", "mime"], "did you mean mine"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_done(
    shelf: Path, capfd, monkeypatch, words: list[str], complaint: str
):
    code, answer = said(capfd, monkeypatch, *words)
    assert code != 0 and complaint in answer["error"]["message"]

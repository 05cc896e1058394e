"""An import that is stopped anywhere goes on with the same command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.importers.importing import import_tasks
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

ASKED = {"rows": 2, "from": Path("rows.jsonl")}
TASK = Task("a", "debugging", "one-bug", "mend it", {"calc.py": "x = 1\n"}, ("python", "test.py"), "tests")


def candidates(built: list[str]) -> list[Candidate]:
    async def good() -> Task:
        built.append("a")
        return TASK

    async def bad() -> Task:
        built.append("b")
        raise CandidateRejected("no tests")

    return [Candidate("a", good), Candidate("b", bad)]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("call", ["rename", "unlink"])
async def test_a_kill_at_the_end_of_an_import_leaves_a_whole_folder_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    out, built = tmp_path / "deep" / "out", []

    def kill(*arguments: object, **options: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Path, call, kill)
        await import_tasks(candidates(built), out, ASKED, {})
    assert not out.exists() or (out / "tasks" / "a").is_dir() and (out / "imported.json").is_file()
    done = await import_tasks(candidates(built), out, ASKED, {})
    assert done.taken == ("a",) and dict(done.left_out) == {"b": "no tests"} and built == ["a", "b"]
    assert sorted(os.listdir(out)) == ["imported.json", "tasks"] and os.listdir(out.parent) == ["out"]
    assert json.loads((out / "imported.json").read_text())["taken"] == ["a"]


async def test_another_import_does_not_take_a_folder_that_is_there(tmp_path: Path) -> None:
    await import_tasks(candidates([]), tmp_path / "out", ASKED, {})
    with pytest.raises(TaskError, match="out exists already"):
        await import_tasks(candidates([]), tmp_path / "out", {**ASKED, "rows": 3}, {})
    (tmp_path / "other").mkdir()
    with pytest.raises(TaskError, match="other exists already"):
        await import_tasks(candidates([]), tmp_path / "other", ASKED, {})


async def test_a_reason_without_an_encoding_is_reported(tmp_path: Path) -> None:
    await import_tasks(candidates([]), tmp_path / "out", ASKED, {os.fsdecode(b"m\xff"): "no JSON"})
    assert os.fsdecode(b"m\xff") in json.loads((tmp_path / "out" / "imported.json").read_text())["left_out"]

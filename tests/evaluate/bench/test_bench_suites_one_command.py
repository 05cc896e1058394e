"""From recorded sessions to a suite of one's own in one command, rubrics by an endpoint over HTTP, and its next version."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from endpoint_lab import Lab, serving
from here import Here, document
from suites_lab import BROKEN, FIXED, NEW_TEST, OLD_TEST, REPAIR, REQUEST, Shop

from etude.agent.policy import openai
from etude.evaluate.bench.grading.rubric import read_rubric
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.suites import open_suite
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.cheats.exercise import nop
from etude.tasks.solved import reference_files

DRAFT = [
    {"name": "counts_all", "question": "Does it count every item?", "choices": ["no", "yes"]},
    {"name": "by_list", "question": "Does it make a list?", "choices": ["no", "yes"]},
]


class Author(Lab):
    """Drafts two criteria and judges them by the diff; or says what has nothing to do with the question."""

    sane = True

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        system, asked = (message["content"] for message in body["messages"][:2])
        said = json.dumps({"criteria": DRAFT})
        if not system.startswith("You write the criteria"):
            [name] = re.findall(r"The property is (\w+):", asked)
            good = "list(items)" in asked or ("sum(1" in asked and name == "counts_all")
            said = json.dumps({"reason": "as the diff shows", "choice": "yes" if good else "no"})
        text = said if self.sane else "What a lovely repository!"
        usage = {"prompt_tokens": 500, "completion_tokens": 20}
        return {
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": usage,
        }


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setattr(openai, "FIRST_WAIT_S", 0.001)
    return Shop(tmp_path)


@pytest.fixture
def here(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(tmp_path, capfd, monkeypatch)


def in_pool(work: Callable[[SandboxPool], Awaitable[Any]]) -> Any:
    async def worked() -> Any:
        pool = await open_pool(SandboxSettings())
        try:
            return await work(pool)
        finally:
            await pool.close()

    return asyncio.run(worked())


@pytest.mark.timeout(300)  # 15 s on a quiet core, behind a download the first time
def test_one_command_makes_a_suite_of_a_session_and_an_endpoint_that_talks_nonsense_costs_it_only_the_rubric(
    shop: Shop, here: Here, tmp_path: Path
):
    in_pool(lambda pool: shop.session("s-1", pool))
    commit = shop.commit(REPAIR)
    with serving(Author()) as lab:
        lab.sane = False
        words = ("bench", "make", "mine", "--from-sessions", str(shop.home), "--rubrics", f"{lab.url}#m", "--json")
        done = here(*words)
    printed = document(done)
    assert done.returncode == 0 and printed["left_out"] == {} and printed["tasks"] == [f"shop-{commit[:10]}"]
    assert (printed["median_changed_lines"], printed["report_changed_lines"]) == (2, 181)
    assert printed["rubrics"]["with_rubric"] == 0 and len(lab.asked) == 3
    assert "no JSON object" in printed["rubrics"]["no_draft"][f"shop-{commit[:10]}"] and "rubric 1 of 1" in done.stderr
    suite = open_suite("mine", Recipe())
    task = suite.task(suite.ids[0])
    assert task.instruction == "the tally is off by one, ask <EMAIL_1> if unsure" and task.category == "debugging"
    assert task.hidden["fail_to_pass"] == ["tests.test_core::test_tally"] and suite.rubric(task.id) is None
    assert task.hidden["pass_to_pass"] == ["tests.test_core::test_other"]
    assert {path: text for path, text in task.files.items() if path != "data.bin"} == {
        "core.py": BROKEN,
        "tests/test_core.py": OLD_TEST,
    } and task.solution == {"core.py": FIXED}
    assert task.metadata["left_out"] == ["dist/x"] and task.metadata["base_commit"] == shop.base

    async def graded(pool: SandboxPool) -> list[float]:
        grader = suite.graders[task.grader]
        return [(await grader.grade(task, files, pool)).score for files in (reference_files(task), nop(task))]

    assert in_pool(graded) == [1.0, 0.0]
    assert not (tmp_path / "suites" / ".mine.making").exists()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_rubrics_are_held_against_both_solutions_and_the_next_version_takes_the_newer_session_in(
    shop: Shop, here: Here, tmp_path: Path
):
    in_pool(lambda pool: shop.session("s-1", pool))
    first = shop.commit(REPAIR)
    shop.git("checkout", "-q", "-b", "second", shop.base)
    in_pool(lambda pool: shop.session("s-2", pool, REQUEST, "sum(1 for item in items)"))
    shop.commit({"notes.md": "done otherwise\n"})
    with serving(Author()) as lab:
        word = ("--rubrics", f"{lab.url}#m", "--json")
        printed = document(here("bench", "make", "mine", "--from-sessions", str(shop.home), *word))
        assert printed["rubrics"]["one_solution_only"] == [] and printed["rubrics"]["criteria_kept"] == 1
        assert list(printed["rubrics"]["dropped"].values()) == [
            "solution 2 earned 'no' in reading 1, and must earn 'yes'"
        ]
        before = FolderSuite(tmp_path / "suites" / "mine")
        task_id = f"shop-{first[:10]}"
        rubric = before.rubric(task_id)
        assert rubric is not None and [one.name for one in read_rubric(rubric).criteria] == ["counts_all"]

        shop.git("checkout", "-q", "main")
        shop.commit({"core.py": BROKEN, "tests/test_core.py": OLD_TEST})
        in_pool(lambda pool: shop.session("s-3", pool, "tally should count the last item too"))
        newer = shop.commit({"tests/test_core.py": NEW_TEST.replace("[1, 2]", "[1, 2, 3]").replace("== 2", "== 3")})
        printed = document(here("bench", "refresh", "mine", "--from-sessions", str(shop.home), *word))
    after = FolderSuite(tmp_path / "suites" / "mine-2")
    assert printed["tasks"] == [task_id, f"shop-{newer[:10]}"] == list(after.ids)
    assert printed["left_out"][task_id] == "it is in the suite, or was retired from it"
    assert after.lock[task_id] == before.lock[task_id]
    assert after.manifest.changelog[0].change == "2 tasks; since 1: 1 added"
    assert all(after.rubric(one) is not None for one in after.ids)

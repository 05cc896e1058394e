"""The scripted agents of every table: the expert's edits give the reference, the cheats' edits give the cheats' files."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.edits.matching import replace
from etude.agent.policy.protocol import Request
from etude.evaluate.bench.runs.scripted import UnknownCheat, applicable, cheat, edits, expert, hunks, nop, script
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.pipeline.run.suites import open_suite
from etude.tasks.cheats.exercise import CHEATS
from etude.tasks.task import Task

# Few kinds of lines, so that pieces repeat and context is needed.
LINES = st.lists(st.sampled_from(["a\n", "b\n", "\n", "  a\n", "def f():\n", "    return 1\n"]), max_size=14)


def task(**more) -> Task:
    files = {"core.py": "def f(x):\n    return x\n", "tests.py": 'check("core f", 1, 1)\n'}
    return Task("t/1", "debugging", "one-bug", "Fix f", files, ("python3", "tests.py"), "outputs",
                solution={"core.py": "def f(x):\n    return x + 1\n"}, **{"metadata": {"editable": ["core.py"]}, **more})  # fmt: skip


@given(LINES, LINES)
def test_edits_lead_from_one_text_to_the_other_by_unique_matches(before: list[str], after: list[str]) -> None:
    text, wanted = "".join(before), "".join(after)
    for old, new in hunks(text, wanted):
        changed = replace(text, old, new) if old else None
        assert changed is None or not changed.loose
        text = changed.text if changed else new
    assert text == wanted


def test_an_edit_of_one_line_is_not_the_whole_file() -> None:
    before = "".join(f"line {n}\n" for n in range(100))
    assert hunks(before, before.replace("line 50\n", "line fifty\n")) == [("line 50\n", "line fifty\n")]


async def test_the_expert_edits_tests_and_ends() -> None:
    policy, names = expert(task(), 0), []
    for _ in range(3):
        said = await policy.complete(Request("s", ()))
        assert said.message is not None
        names.append([call.name for call in said.message.calls])
    assert names == [["edit"], ["test"], ["done"]]


async def test_the_expert_removes_what_the_reference_removes() -> None:
    policy = expert(task(metadata={"removed": ["tests.py", "it's gone.py"]}), 0)
    said = (await policy.complete(Request("s", ()))).message
    assert said is not None and said.calls[-1].arguments == {"command": "rm -f -- 'tests.py'"}


async def test_nop_only_says_that_it_is_done() -> None:
    said = (await nop(task(), 0).complete(Request("s", ()))).message
    assert said is not None and [call.name for call in said.calls] == ["done"]


def test_only_cheats_that_change_something_are_drawn() -> None:
    found = applicable(task())
    assert "tests_rewritten" in found and "hardcoded" in found
    assert "aliased" not in found  # it needs a name to alias
    assert all(edits(task(), {p: d.decode() for p, d in CHEATS[name](task()).items()}) for name in found)


async def test_a_named_cheat_carries_out_that_cheat() -> None:
    made = script("cheat:tests_rewritten")
    assert made is not None
    said = (await made(task(), 3).complete(Request("s", ()))).message  # type: ignore[operator]
    assert said is not None and said.calls[0].arguments["path"] == "tests.py"
    assert cheat(task(), 3, "tests_rewritten").name == "cheat:tests_rewritten"


def test_an_unknown_cheat_is_answered_with_those_there_are() -> None:
    with pytest.raises(UnknownCheat, match="'bribery'.*tests_rewritten"):
        script("cheat:bribery")
    assert script("gpt-5") is None


def test_exercises_have_two_tasks_of_a_level_as_soon_as_there_is_room() -> None:
    recipe = read_recipe([find_recipe("laptop")])
    for count, fewest in ((24, 2), (8, 1)):
        suite = open_suite("exercises", recipe, tasks=count)
        levels = Counter(suite.task(task_id).level for task_id in suite.ids)
        assert len(suite.ids) == count and min(levels.values()) == fewest and len(levels) == 8

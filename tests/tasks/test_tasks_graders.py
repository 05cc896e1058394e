"""Each grader accepts every way of doing the work and refuses the ways around it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from etude.sandbox.protocol import SandboxPool
from etude.tasks.cheats.exercise import nop
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.graders.docstring import comments_above
from etude.tasks.graders.write_test import added_checks
from etude.tasks.registry import GRADERS, grade, grader
from etude.tasks.restore import MAX_FILE_BYTES, restore_files
from etude.tasks.solved import reference_files

BEFORE = 'x = 1\ncheck("core g", 1, [2])\nprint("ok")\n'


def test_an_unknown_grader_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError) as refused:
        grader("magic")
    assert "magic" in str(refused.value) and ", ".join(GRADERS) in str(refused.value)
    assert {"outputs", "commands", "mutants", "documentation", "review", "devops", "answer"} <= set(GRADERS)


def test_only_editable_files_are_taken_from_the_agent(source: ExerciseSource) -> None:
    task = source.task(source.ids("train", level="one-bug")[0])
    path, *others = task.metadata["editable"]
    left = {path: b"mine", "check.py": b"mine", "conftest.py": b"mine", others[0]: b"x" * (MAX_FILE_BYTES + 1)}
    graded = restore_files(task, left)
    assert graded[path] == b"mine"
    assert graded["check.py"] == task.files["check.py"].encode()
    assert set(graded) == {path, "check.py"}  # nothing planted, nothing huge, and what was deleted stays deleted


async def test_another_fix_of_the_same_behaviour_passes(source: ExerciseSource, pool: SandboxPool) -> None:
    """The grade is behaviour, not text: comments, layout and detours are free."""
    task = source.task(source.ids("train", level="one-bug")[2])
    files = reference_files(task)
    for path in task.metadata["editable"]:
        files[path] = b"# mine\n\n" + re.sub(rb"return (.+)", rb"value = \1\n    return value", files[path])
    ok = await grade(task, files, pool)
    source_text = b"".join(files[path] for path in task.metadata["editable"])
    assert ok.passed, (ok, source_text.decode())


async def test_breaking_another_function_fails(source: ExerciseSource, pool: SandboxPool) -> None:
    task = source.task(source.ids("train", level="one-bug")[0])
    files = reference_files(task)
    for path in task.metadata["editable"]:
        if path not in task.solution:
            files[path] = b""
    assert not (await grade(task, files, pool)).passed


async def test_a_rename_must_be_whole(source: ExerciseSource, pool: SandboxPool) -> None:
    task = source.task(source.ids("train", level="rename")[0])
    for path, text in task.solution.items():  # any one file left as it was
        assert not (await grade(task, {**reference_files(task), path: task.files[path].encode()}, pool)).passed, path
        kept = text + f"\n# once called {task.hidden['old']}\n"
        assert not (await grade(task, {**reference_files(task), path: kept.encode()}, pool)).passed
    assert (await grade(task, reference_files(task), pool)).passed


async def test_every_right_comment_is_accepted_and_a_list_of_guesses_is_not(
    source: ExerciseSource, pool: SandboxPool
) -> None:
    tasks = (source.task(i) for i in source.ids("train", level="docstring")[:60])
    task = next(task for task in tasks if len(task.hidden["specs"]) == 2)
    path, specs = task.hidden["path"], task.hidden["specs"]
    right = reference_files(task)[path].decode()
    assert (await grade(task, {**reference_files(task), path: right.replace(specs[0], specs[1]).encode()}, pool)).passed
    both = right.replace(specs[0], "\n".join(specs))
    assert not (await grade(task, {**reference_files(task), path: both.encode()}, pool)).passed
    broken = right.replace("return", "return None and")
    assert not (await grade(task, {**reference_files(task), path: broken.encode()}, pool)).passed


def test_comments_above_are_the_unbroken_lines() -> None:
    text = "# far\n\n# one\n# two\ndef f(x):\n    # inside\n    return x\n"
    assert comments_above(text, "f") == ["# one", "# two"]
    assert comments_above(text, "g") == []
    assert comments_above(text + text, "f") == []


@pytest.mark.parametrize(
    "after, count",
    [
        (BEFORE + 'check("core f", [1], [2])\n', 1),
        ('check("core f", [1], [2])\n' + BEFORE, 1),
        (BEFORE + 'check("core f", {"a": -1}, "x", [2], None)\n\ncheck("core f", True, 1)', 2),
        (BEFORE, 0),
    ],
)
def test_added_checks_are_read_as_data(after: str, count: int) -> None:
    checks = added_checks(BEFORE, after, "core")
    assert checks is not None
    assert len(checks) == count


@pytest.mark.parametrize(
    "after",
    [
        BEFORE.replace("x = 1", "x = 2"),
        BEFORE.replace("x = 1\n", ""),
        BEFORE + "import os",
        BEFORE + 'check("core f", open("core.py").read(), 1)',
        BEFORE + 'check("core f", [1] * 9, 1)',
        BEFORE + 'check("core f", want=1)',
        BEFORE + 'check("shop f", 1, 1)',
        BEFORE + 'check("core f", 1, 1); print(1)',
        BEFORE + 'check("core f", ' + "[" * 90 + "]" * 90 + ")" + " " * 100,
        BEFORE + 'check("core f", 1, 1)\n' * 9,
        BEFORE + "check()",
    ],
)
def test_anything_but_literal_checks_is_refused(after: str) -> None:
    assert added_checks(BEFORE, after, "core") is None


async def test_a_test_must_hold_and_catch_mutants(source: ExerciseSource, pool: SandboxPool) -> None:
    task = source.task(source.ids("train", level="write-test")[0])
    good = task.hidden["parts"][0]["new"]
    base = task.files["check.py"]
    wrong = re.sub(r'", ', '", "never", ', good, count=1)
    doubled = base + good + "\n" + good + "\n"
    assert not (await grade(task, nop(task), pool)).passed
    assert not (await grade(task, {"check.py": (base + wrong).encode()}, pool)).passed
    verdict = await grade(task, {"check.py": doubled.encode()}, pool)
    assert verdict.passed
    assert sum(verdict.tests[f"mutant {i}"] for i in range(len(task.hidden["mutants"]))) >= task.hidden["kill"]


async def test_a_check_that_only_runs_out_the_clock_catches_nothing(
    source: ExerciseSource, pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.tasks.calls.TIMEOUT_S", 0.5)
    task = source.task(source.ids("train", level="write-test")[0])
    waits = "import time\n\ndef f(n):\n    time.sleep(n)\n    return 0\n"
    hidden = {**task.hidden, "function": "f", "reference": waits, "mutants": [waits] * 4, "kill": 2}
    line = f'check("{task.hidden["module"]} f", 0, 0.3)\n'
    slow = replace(task, hidden=hidden)
    assert not (await grade(slow, {"check.py": (task.files["check.py"] + line).encode()}, pool)).passed

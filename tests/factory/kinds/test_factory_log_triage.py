"""Logs with a planted cause: the answer follows from the log, and nothing in the task tells it."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from grid_project import SHAPES, grid

from etude.factory.generators.devops.log_triage import ANSWER, LOG, LogTriage
from etude.factory.generators.devops.logs import DIMENSIONS, Dimension, day
from etude.factory.generators.generator import Bench
from etude.tasks.audit import leaks

MODULES = [f"grid.part{n}" for n in range(6)]
LINE = re.compile(r"(?P<host>node-\d+) (?P<kind>INFO|ERROR) \[(?P<module>[\w.]+)\] request=\d+ client=(?P<client>\S+) ")
START = re.compile(r"(node-\d+) INFO started build=(\w+)")


def answered(text: str, dimension: Dimension) -> str:
    """By counting, as one who reads the log would."""
    running: dict[str, str] = {}
    late: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in text.splitlines():
        if start := START.search(line):
            running[start[1]] = start[2]
        if found := LINE.search(line):
            value = running[found["host"]] if dimension == "build" else found[dimension]
            whole[value] += 1
            late[value] += found["kind"] == "ERROR"
    return max(whole, key=lambda value: late[value] / whole[value])


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_the_answer_follows_from_the_log_alone(dimension: Dimension) -> None:
    days = [day(dimension, MODULES, random.Random(seed)) for seed in range(12)]
    clear = [one for one in days if one.clear]
    assert len(clear) >= 4 and len({one.culprit for one in clear}) > 1
    assert all(answered(one.text, dimension) == one.culprit for one in clear)
    assert day(dimension, MODULES, random.Random(1)) == days[1]


async def test_a_log_becomes_a_task_whose_workspace_does_not_hold_the_answer(bench: Bench) -> None:
    project = grid({f"grid/part{n}.py": SHAPES for n in range(5)})
    tasks = [await one.build() for one in LogTriage().candidates(project, bench, 3)]
    assert [task.id.rpartition("/")[2] for task in tasks] == list(DIMENSIONS)
    for task, dimension in zip(tasks, DIMENSIONS, strict=True):
        assert answered(task.files[LOG], dimension) == task.solution[ANSWER].strip() == task.hidden["answer"]
        assert not leaks(task) and task.hidden["answer"] not in task.instruction

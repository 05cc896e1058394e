"""Logs with a planted cause: the answer follows from the log, and nothing in the task tells it."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest
from grid_project import SHAPES, grid

from etude.sandbox.errors import UserError
from etude.sandbox.spec import SandboxSpec
from etude.tasks.audit import leaks
from etude.tasks.environment.attached import services_of
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.errors import TaskError
from etude.tasks.generate.generator import ProofContext
from etude.tasks.generate.generators.devops.log_triage import ANSWER, LOG, LogTriage
from etude.tasks.generate.generators.devops.logs import DIMENSIONS, Dimension, day

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


async def test_a_log_becomes_a_task_whose_workspace_does_not_hold_the_answer(bench: ProofContext) -> None:
    project = grid({f"grid/part{n}.py": SHAPES for n in range(5)})
    tasks = [await one.build() for one in LogTriage().candidates(project, bench, 3)]
    assert [task.id.rpartition("/")[2] for task in tasks] == [*DIMENSIONS, *(f"service-{one}" for one in DIMENSIONS)]
    for task, dimension in zip(tasks, DIMENSIONS, strict=False):
        assert answered(task.files[LOG], dimension) == task.solution[ANSWER].strip() == task.hidden["answer"]
        assert not leaks(task) and task.hidden["answer"] not in task.instruction
    for task in tasks[len(DIMENSIONS) :]:
        assert LOG not in task.files and not any(task.hidden["answer"] in text for text in task.files.values())


ASK = """import json, urllib.request
for row in json.load(urllib.request.urlopen("http://127.0.0.1:9428/query?limit=100000"))["records"]:
    print(row["host"], row["level"], row["message"])
"""


async def test_a_log_service_answers_in_the_agent_s_sandbox_and_in_no_other(bench: ProofContext) -> None:
    project = grid({f"grid/part{n}.py": SHAPES for n in range(5)})
    asked = [one for one in LogTriage().candidates(project, bench, 3) if one.id.endswith("service-build")]
    task = await asked[0].build()
    agents = await open_workspace(task, bench.pool, SandboxSpec(disk_mb=256), history=True)
    graders = await open_workspace(task, bench.pool, SandboxSpec(disk_mb=256))
    try:
        assert (await agents.run(f"python3 -c '{ASK}' > asked.txt")).rc == 0
        assert answered((await agents.read("asked.txt")).decode(), "build") == task.hidden["answer"]
        assert (await graders.run(f"python3 -c '{ASK}'")).rc != 0
    finally:
        await agents.kill()
        await graders.kill()


def test_services_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(TaskError, match="metadata.services holds"):
        services_of({"services": [{"files": {}}]})
    with pytest.raises(UserError, match="no service 'kafka'"):
        services_of({"services": [{"name": "kafka"}]})
    with pytest.raises(UserError, match="below its data folder"):
        services_of({"services": [{"name": "log_service", "files": {"../x": ""}}]})

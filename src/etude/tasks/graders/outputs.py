"""Grader `outputs`: the hidden calls must return what the reference returns. For bugs and missing functions."""

from __future__ import annotations

import time

from etude.sandbox.protocol import Machines
from etude.tasks.calls import Call, run_calls
from etude.tasks.restore import restore_files
from etude.tasks.task import Task, Verdict


class OutputsGrader:
    """`hidden["calls"]`: id, module, function, args, want. Passed only if every call returns its value."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        return await behaviour(task, restore_files(task, files), pool, {})


async def behaviour(task: Task, graded: dict[str, bytes], pool: Machines, static: dict[str, bool]) -> Verdict:
    """Hidden calls on the restored files, in addition to tests that were decided without running anything."""
    start = time.perf_counter()
    hidden = task.hidden["calls"]
    if not all(static.values()):  # the attempt has failed already: no sandbox is spent on it
        tests = {**static, **{call["id"]: False for call in hidden}}
        return Verdict(0.0, tests, _first_failed(static), time.perf_counter() - start)
    calls = [Call(call["module"], call["function"], call["args"]) for call in hidden]
    answers = await run_calls(graded, calls, pool)
    tests = dict(static)
    for call, result in zip(hidden, answers.results, strict=True):
        tests[call["id"]] = result.equals(call["want"])
    passed = bool(hidden) and all(tests.values())
    reason = "" if passed else f"{_first_failed(tests)} ({answers.ending})"
    return Verdict(float(passed), tests, reason, time.perf_counter() - start)


def _first_failed(tests: dict[str, bool]) -> str:
    return next((f"failed {name}" for name, good in tests.items() if not good), "no tests")

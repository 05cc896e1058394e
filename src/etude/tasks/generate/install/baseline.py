"""The untouched project's own tests, three times: what passes every time, what does not, which file holds a test and how long it takes.

All files run at once; files that keep a run from being believed (they do not collect, they hang) are found by halves and left out.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from etude.sandbox.protocol import SandboxPool
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.generate.generator import Baseline
from etude.tasks.graders.commands import keep_spec, machine
from etude.tasks.running.testrun import RunReport, Tests, run_tests
from etude.tasks.task import Task

TIMES = 3
TIMEOUT_S = 120.0
MOST_CHARS = 300  # of what a run printed, in a reason
MOST_RUNS = 96  # to find the files that can't be believed, or one a file
SEARCH_S = 240.0  # after which no further file is looked for: what is not found by then is left out


class _Bench:
    def __init__(self, environment: Environment, files: Mapping[str, str], pool: SandboxPool) -> None:
        self.environment, self.runs, self.problem = environment, 0, ""
        self.tree = {path: text.encode() for path, text in files.items()}
        metadata = {KEY: environment.to_record()}
        task = Task(environment.name, "", "", "", dict(files), (), "commands", metadata=metadata)
        self.fresh = machine(task, pool, keep_spec)

    async def run(self, files: Sequence[str]) -> RunReport:
        self.runs += 1
        plan = self.environment.tests
        ran = await run_tests(Tests(tuple(files), plan.command, plan.runner), self.tree, self.fresh, TIMEOUT_S)
        if not ran.run.passed or not ran.honest:
            self.problem = ": ".join(filter(None, (ran.objection, ran.output[-MOST_CHARS:])))
        return ran


async def baseline(environment: Environment, files: Mapping[str, str], pool: SandboxPool) -> tuple[Baseline, str]:
    """And why tests are missing, if some are. Raises InfraError, TaskError."""
    bench = _Bench(environment, files, pool)
    plan = environment.tests
    groups = await _sound(bench, list(plan.files))
    passed: set[str] = set()
    flaky: set[str] = set()
    by_file: dict[str, list[str]] = defaultdict(list)
    seconds: dict[str, float] = defaultdict(float)
    for chosen, first in groups:
        runs = [first, *[await bench.run(chosen) for _ in range(TIMES - 1)]]
        good = frozenset.intersection(*(ran.run.passed if ran.honest else frozenset() for ran in runs))
        passed |= good
        flaky |= frozenset.union(*(ran.run.passed for ran in runs)) - good
        for name in sorted(good):
            file = first.run.where.get(name) or (chosen[0] if len(chosen) == 1 else "")
            if file:
                by_file[file].append(name)
                seconds[file] += first.run.each.get(name, 0.0)
        if len(chosen) == 1 and not any(first.run.each.values()):
            seconds[chosen[0]] = first.run.seconds
    found = Baseline(
        frozenset(passed), frozenset(flaky), {file: tuple(names) for file, names in by_file.items()}, dict(seconds)
    )
    return found, bench.problem


async def _sound(bench: _Bench, files: list[str]) -> list[tuple[list[str], RunReport]]:
    """Groups of files whose runs can be believed, with their first run; halves of what can't, down to single files."""
    waiting, found, began = [files], [], time.monotonic()
    while waiting and bench.runs < MOST_RUNS and (bench.runs == 0 or time.monotonic() - began < SEARCH_S):
        chosen = waiting.pop(0)
        if not chosen:
            continue
        ran = await bench.run(chosen)
        if ran.honest and ran.run.passed and (len(chosen) == 1 or ran.run.where):
            found.append((chosen, ran))
        elif ran.honest and ran.run.passed:
            waiting += [[file] for file in chosen]  # this runner does not say which file a test is of
        elif len(chosen) > 1:
            half = len(chosen) // 2
            waiting += [chosen[:half], chosen[half:]]
    return found

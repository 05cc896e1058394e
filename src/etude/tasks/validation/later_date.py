"""The same run of tests on another date, where libfaketime is installed (Debian: the package libfaketime): 40 days and 5 hours later.

A test that passes at the hour of its proof alone (an expired certificate, a year that ends, an hour in a name) comes out differently then.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from etude.sandbox.protocol import Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.environment import environment_of
from etude.tasks.graders.commands import Fit, machine
from etude.tasks.running.testrun import Ran, Runner, Tests, run_tests
from etude.tasks.task import Task

# Over the end of a month at least, at another time of day.
OFFSET_S = 40 * 86_400 + 5 * 3600
_PLACES = "/usr/lib/*/faketime/libfaketime.so.1"  # of the host's system folders, which sandboxes share


@cache
def library() -> str:
    """libfaketime's path; empty where it is not installed."""
    return next(iter(sorted(glob.glob(_PLACES))), "")


def on_a_later_date(tests: Tests, task: Task, pool: Machines, fit: Fit, timeout_s: float) -> Runner | None:
    """None where it can't be done: without the library, or in an image, which has another system."""
    environment = environment_of(task.metadata)
    if not library() or environment is not None and environment.image:
        return None
    env = {
        "LD_PRELOAD": library(),
        "FAKETIME": f"+{OFFSET_S}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }

    def fitted(spec: SandboxSpec, task: Task) -> SandboxSpec:
        found = fit(spec, task)
        return replace(found, env={**found.env, **env})

    async def run(files: Mapping[str, bytes]) -> Ran:
        return await run_tests(tests, files, machine(task, pool, fitted), timeout_s)

    return run

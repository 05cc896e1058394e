"""Runs the tests 40 days and 5 hours later, where libfaketime is installed (Debian: the package libfaketime).

A test that passes only near the moment of its proof (an expired certificate, the end of a year, an hour in a name) has
another result then.
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
from etude.tasks.running.testrun import Runner, RunReport, Tests, run_tests
from etude.tasks.task import Task

# Crosses at least one end of a month and changes the time of day.
OFFSET_S = 40 * 86_400 + 5 * 3600
_LIBRARY_GLOB = "/usr/lib/*/faketime/libfaketime.so.1"  # in the host's system folders, which sandboxes share


@cache
def library() -> str:
    """The path of libfaketime; empty where it is not installed."""
    return next(iter(sorted(glob.glob(_LIBRARY_GLOB))), "")


def on_a_later_date(tests: Tests, task: Task, pool: Machines, fit: Fit, timeout_s: float) -> Runner | None:
    """A runner of the same tests; None without the library or in an image, whose system differs from the host's."""
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
        fitted_spec = fit(spec, task)
        return replace(fitted_spec, env={**fitted_spec.env, **env})

    async def run(files: Mapping[str, bytes]) -> RunReport:
        return await run_tests(tests, files, machine(task, pool, fitted), timeout_s)

    return run

"""Shows by running that a change does what its tests ask: FAIL_TO_PASS and PASS_TO_PASS, found and not believed.

Tests run on the state before and after the change, three times each: a test that comes out differently in two runs of the
same state is flaky, and counts for neither list. A change that no test shows is no task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etude.tasks.running.testrun import Ran, Runner

TIMES = 3


class LeftOut(Exception):
    """A candidate that does not become a task; says why."""


@dataclass(frozen=True)
class Proof:
    """Tests by name. `seconds` is the longest run of the state after."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    flaky: tuple[str, ...]
    seconds: float


async def prove(before: Mapping[str, bytes], after: Mapping[str, bytes], run: Runner, times: int = TIMES) -> Proof:
    """Raises LeftOut with the reason, and InfraError. One run of each state comes first: most that fail, fail there."""
    states: dict[str, list[Ran]] = {"after": [await run(after)]}
    _require(states["after"][0])
    states["before"] = [await run(before)]
    if not states["after"][0].run.passed - states["before"][0].run.passed:
        raise LeftOut("no test that fails before the change passes after it")
    for name, files in (("after", after), ("before", before)):
        states[name] += [await run(files) for _ in range(times - 1)]
    for ran in states["after"]:
        _require(ran)
    good, stable = _always(states["after"]), _always(states["before"])
    shown = sorted(good - _once(states["before"]))
    kept = sorted(good & stable)
    flaky = sorted((_once(states["after"]) - good) | (_once(states["before"]) - stable))
    if not shown:
        raise LeftOut(f"the tests that show the change are flaky: {', '.join(flaky[:3])}")
    return Proof(tuple(shown), tuple(kept), tuple(flaky), max(ran.run.seconds for ran in states["after"]))


def _require(ran: Ran) -> None:
    if ran.run.timed_out:
        raise LeftOut(f"the tests take longer than {ran.run.seconds:.0f} s after the change")
    if not ran.run.passed or not ran.honest:
        said = " ".join(ran.said.split())
        raise LeftOut(f"the tests do not run after the change (status {ran.run.rc}): {said or 'no output'}")


def _always(runs: list[Ran]) -> frozenset[str]:
    return frozenset.intersection(*(ran.run.passed for ran in runs))


def _once(runs: list[Ran]) -> frozenset[str]:
    """What passed in a run at least."""
    return frozenset().union(*(ran.run.passed for ran in runs))

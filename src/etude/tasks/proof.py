"""Shows by running that a change does what its tests ask: FAIL_TO_PASS and PASS_TO_PASS, found and not believed.

Tests run on the state before and after the change, three times each, and once more on another date where that can be done
(`later_date`): a test that comes out differently in two runs of the same state is flaky, and counts for neither list, as does one with the
time in its name (`time_names`). A change that no test shows is no task.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from etude.tasks.running.testrun import Ran, Runner
from etude.tasks.time_names import names_time

TIMES = 3
# What a run prints where its environment lacks a package.
_LACKING = re.compile(
    r"(?:No module named|Cannot find (?:module|package)) '[^'\n]{1,100}'|fixture '\w{1,60}' not found"
)


class LeftOut(Exception):
    """A candidate that does not become a task; says why."""


class TestsDoNotRun(LeftOut):
    """The tests of the change can't be run in this environment, also after the change."""

    __test__ = False


@dataclass(frozen=True)
class Proof:
    """Tests by name. `seconds` is the longest run of the state after. `universal`: classes of the reference that are equal to anything."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    flaky: tuple[str, ...]
    seconds: float
    universal: tuple[str, ...] = ()
    xfailed: tuple[str, ...] = ()  # of both lists, those that fail after the change as their own marker says
    dates: int = 1  # on how many the tests were run


async def prove(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    run: Runner,
    times: int = TIMES,
    *,
    known: frozenset[str] | None = None,
    most: int | None = None,
    look: Callable[[], Awaitable[None]] | None = None,
    later: Runner | None = None,
    xfail: bool = False,
) -> Proof:
    """Raises LeftOut with the reason, and InfraError. One run of each state comes first: most that fail, fail there.

    `known`: what passes after the change, if that was found out before; then a single run of the state before decides most. `most`: of
    tests that fail before the change; `look`: at something cheaper than five more runs, which raises LeftOut as well. `later`: the same run
    on another date. `xfail`: a test that fails after the change as its marker says is as good as one that passes.
    """
    states: dict[str, list[Ran]] = {"after": [], "before": []}
    if known is None:
        states["after"].append(await run(after))
        _require(states["after"][0])
        known = states["after"][0].run.passed
    states["before"].append(await run(before))
    _telling(known, states["before"][0], most, "".join(ran.said for ran in states["after"]))
    if look is not None:
        await look()
    for name, files in (("after", after), ("before", before)):
        states[name] += [await run(files) for _ in range(times - len(states[name]))]
    for ran in states["after"]:
        _require(ran)
    for name, files in (("after", after), ("before", before)) if later is not None else ():
        states[name].append(await later(files))  # type: ignore[misc]
        if name == "after":
            _require_later(states[name][-1])
    return _weighed(states["before"], states["after"], xfail, 1 if later is None else 2)


def _weighed(before: list[Ran], after: list[Ran], xfail: bool, dates: int) -> Proof:
    """What the runs of both states show. Raises LeftOut where no test shows the change."""
    good, stable = _always(after, xfail), _always(before, xfail)
    now = time.time()
    timed = frozenset(name for name in good if names_time(name, now))
    good -= timed
    shown = sorted(good - _once(before, xfail))
    kept = sorted(good & stable)
    flaky = sorted((_once(after, xfail) - good) | (_once(before, xfail) - stable))
    if not shown and timed:
        raise LeftOut(
            f"the tests that show the change hold the time in their names: {sorted(timed)[0]}; under another clock they have other names"
        )
    if not shown:
        raise LeftOut(f"the tests that show the change are flaky: {', '.join(flaky[:3])}")
    universal = sorted({name for ran in after for name in ran.universal})
    seconds = max(ran.run.seconds for ran in after)
    expected = frozenset().union(*(ran.run.xfailed for ran in after)) & {*shown, *kept}
    return Proof(tuple(shown), tuple(kept), tuple(flaky), seconds, tuple(universal), tuple(sorted(expected)), dates)


def _telling(known: frozenset[str], first: Ran, most: int | None, said: str) -> None:
    """What the first run of the state before must show; `said`: what the run of the state after printed."""
    if first.run.timed_out:
        raise LeftOut(f"the tests take longer than {first.run.seconds:.0f} s before the change")
    gained = known - first.run.passed
    if not gained and (lacking := _LACKING.search(said)):
        raise TestsDoNotRun(f"the tests that could show the change do not run after it: {lacking[0]}")
    if not gained:
        raise LeftOut("no test that fails before the change passes after it")
    if most is not None and len(gained) > most:
        raise LeftOut(f"{len(gained)} tests fail before the change, more than {most}: a wreck, no task")


def _require(ran: Ran) -> None:
    if ran.run.timed_out:
        raise LeftOut(f"the tests take longer than {ran.run.seconds:.0f} s after the change")
    if not ran.run.passed or not ran.honest:
        said = " ".join(ran.said.split()) or "no output"
        lacking = _LACKING.search(said)  # first, for what quotes reasons cuts them
        why = f"{lacking[0]}; it printed {said}" if lacking else said
        raise TestsDoNotRun(f"the tests do not run after the change (status {ran.run.rc}): {why}")


def _require_later(ran: Ran) -> None:
    """Of the run on a later date, where the same tests passed on this one: they depend on the date."""
    if ran.run.timed_out or not ran.run.passed or not ran.honest:
        why = (
            "they take too long"
            if ran.run.timed_out
            else f"status {ran.run.rc}: {' '.join(ran.said.split())[:300] or 'no output'}"
        )
        raise LeftOut(f"it holds only on the day of its proof: on a later date the tests do not run ({why})")


def _always(runs: list[Ran], xfail: bool) -> frozenset[str]:
    return frozenset.intersection(*(_good(ran, xfail) for ran in runs))


def _once(runs: list[Ran], xfail: bool) -> frozenset[str]:
    """What was good in a run at least."""
    return frozenset().union(*(_good(ran, xfail) for ran in runs))


def _good(ran: Ran, xfail: bool) -> frozenset[str]:
    return ran.run.passed | ran.run.xfailed if xfail else ran.run.passed

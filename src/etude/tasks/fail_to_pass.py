"""Finds FAIL_TO_PASS and PASS_TO_PASS by running the tests before and after a change.

Each state runs `REPEATS` times, and once more on a later date where the sandbox allows that. A test is flaky if two
runs of the same state disagree. Flaky tests and tests with the time in their name (`has_time_in_name`) are in neither
list. A change that no test shows is no task.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from etude.tasks.running.testrun import Runner, RunReport

REPEATS = 3
# What a run prints where its environment lacks a package.
_MISSING_PACKAGE = re.compile(
    r"(?:No module named|Cannot find (?:module|package)) '[^'\n]{1,100}'|fixture '\w{1,60}' not found"
)


class CandidateRejected(Exception):
    """Raised where a candidate does not become a task. The message gives the reason."""


class TestsDoNotRun(CandidateRejected):
    """The tests of the change do not run in this environment, not even after the change."""

    __test__ = False


@dataclass(frozen=True)
class FailToPassProof:
    """Test ids by list. `seconds` is the longest run of the state after the change. `universal` names classes of the
    reference whose instances equal everything."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    flaky: tuple[str, ...]
    seconds: float
    universal: tuple[str, ...] = ()
    xfailed: tuple[str, ...] = ()  # tests of both lists that fail after the change as their marker expects
    dates: int = 1  # number of dates on which the tests ran


async def prove_fail_to_pass(
    before: Mapping[str, bytes],
    after: Mapping[str, bytes],
    run: Runner,
    repeats: int = REPEATS,
    *,
    known_passing: frozenset[str] | None = None,
    max_failing: int | None = None,
    cheap_check: Callable[[], Awaitable[None]] | None = None,
    run_later: Runner | None = None,
    xfail: bool = False,
) -> FailToPassProof:
    """Runs both states and returns the two lists. Raises CandidateRejected with the reason, and InfraError.

    One run of each state comes first, because most bad candidates fail there. `known_passing` names the tests that pass
    after the change if an earlier run showed it; a single run of the state before then rejects most candidates.
    `max_failing` limits the tests that fail before the change. `cheap_check` runs before the remaining repeats and may
    raise CandidateRejected. `run_later` runs the tests on a later date. With `xfail`, a test that fails after the
    change as its marker expects counts as passing.
    """
    states: dict[str, list[RunReport]] = {"after": [], "before": []}
    if known_passing is None:
        states["after"].append(await run(after))
        _require_passing(states["after"][0])
        known_passing = states["after"][0].run.passed
    states["before"].append(await run(before))
    _require_failing(known_passing, states["before"][0], max_failing, "".join(ran.output for ran in states["after"]))
    if cheap_check is not None:
        await cheap_check()
    for name, files in (("after", after), ("before", before)):
        states[name] += [await run(files) for _ in range(repeats - len(states[name]))]
    for ran in states["after"]:
        _require_passing(ran)
    for name, files in (("after", after), ("before", before)) if run_later is not None else ():
        states[name].append(await run_later(files))  # type: ignore[misc]
        if name == "after":
            _require_later(states[name][-1])
    return _evaluate(states["before"], states["after"], xfail, 1 if run_later is None else 2)


def _evaluate(before: list[RunReport], after: list[RunReport], xfail: bool, dates: int) -> FailToPassProof:
    """Compares the runs of both states. Raises CandidateRejected where no test shows the change."""
    good, stable = _passed_always(after, xfail), _passed_always(before, xfail)
    now = time.time()
    timed = frozenset(name for name in good if has_time_in_name(name, now))
    good -= timed
    fail_to_pass = sorted(good - _passed_once(before, xfail))
    pass_to_pass = sorted(good & stable)
    flaky = sorted((_passed_once(after, xfail) - good) | (_passed_once(before, xfail) - stable))
    if not fail_to_pass and timed:
        raise CandidateRejected(
            f"the tests that show the change have the time in their names: {sorted(timed)[0]}; they have other names on another day"
        )
    if not fail_to_pass:
        raise CandidateRejected(f"the tests that show the change are flaky: {', '.join(flaky[:3])}")
    universal = sorted({name for ran in after for name in ran.universal})
    seconds = max(ran.run.seconds for ran in after)
    expected = frozenset().union(*(ran.run.xfailed for ran in after)) & {*fail_to_pass, *pass_to_pass}
    return FailToPassProof(
        tuple(fail_to_pass),
        tuple(pass_to_pass),
        tuple(flaky),
        seconds,
        tuple(universal),
        tuple(sorted(expected)),
        dates,
    )


def _require_failing(known_passing: frozenset[str], first: RunReport, max_failing: int | None, output: str) -> None:
    """Checks the first run of the state before. `output` is the output of the run of the state after."""
    if first.run.timed_out:
        raise CandidateRejected(f"the tests take longer than {first.run.seconds:.0f} s before the change")
    gained = known_passing - first.run.passed
    if not gained and (missing := _MISSING_PACKAGE.search(output)):
        raise TestsDoNotRun(f"the tests that could show the change do not run after it: {missing[0]}")
    if not gained:
        raise CandidateRejected("no test that fails before the change passes after it")
    if max_failing is not None and len(gained) > max_failing:
        raise CandidateRejected(
            f"{len(gained)} tests fail before the change, more than {max_failing}: too many for a task"
        )


def _require_passing(ran: RunReport) -> None:
    if ran.run.timed_out:
        raise CandidateRejected(f"the tests take longer than {ran.run.seconds:.0f} s after the change")
    if not ran.run.passed or not ran.honest:
        output = " ".join(ran.output.split()) or "no output"
        missing = _MISSING_PACKAGE.search(output)  # first, because callers cut the reason
        why = f"{missing[0]}; it printed {output}" if missing else output
        raise TestsDoNotRun(f"the tests do not run after the change (status {ran.run.rc}): {why}")


def _require_later(ran: RunReport) -> None:
    """Checks the run on a later date. The same tests passed today, so a failure means that they depend on the date."""
    if ran.run.timed_out or not ran.run.passed or not ran.honest:
        why = (
            "they take too long"
            if ran.run.timed_out
            else f"status {ran.run.rc}: {' '.join(ran.output.split())[:300] or 'no output'}"
        )
        raise CandidateRejected(f"the proof holds only on its own day: on a later date the tests do not run ({why})")


def _passed_always(runs: list[RunReport], xfail: bool) -> frozenset[str]:
    return frozenset.intersection(*(_passing(ran, xfail) for ran in runs))


def _passed_once(runs: list[RunReport], xfail: bool) -> frozenset[str]:
    """Tests that passed in at least one run."""
    return frozenset().union(*(_passing(ran, xfail) for ran in runs))


def _passing(ran: RunReport, xfail: bool) -> frozenset[str]:
    return ran.run.passed | ran.run.xfailed if xfail else ran.run.passed


# A test with the time in its name has another name on another day, so no list of names stays valid. `has_time_in_name` finds dates and times of
# day near the moment of the proof, seconds to nanoseconds since 1970, and counts of a period since then (`int(time.time() // 240)`). A date far
# from the proof (`test_parse[2020-01-31]`) is an ordinary parameter.

NEAR_S = 3 * 86_400  # allows for time zones and long proofs
PROOF_S = 1800  # from the first run of a proof to its end
# Periods that code commonly divides time by.
_PERIODS_S = frozenset(
    (2, 5, 10, 15, 20, 30, *range(60, 3601, 60), 7200, 10_800, 14_400, 21_600, 28_800, 43_200, 86_400, 604_800)
)
_NUMBER = re.compile(r"(?<![\d.])\d{3,19}(?![\d])")
_CLOCK = re.compile(r"(?<!\d)([01]\d|2[0-3])[:.h]([0-5]\d)[:.m]([0-5]\d)(?!\d)")
_DATES = (
    (re.compile(r"(?<!\d)(\d{4})[-/._]?(\d{2})[-/._]?(\d{2})(?!\d)"), (0, 1, 2)),  # 2026-11-25, 20261125
    (re.compile(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?!\d)"), (2, 0, 1)),  # 11-25-2026
    (re.compile(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})(?!\d)"), (2, 1, 0)),  # 25.11.2026
)


def has_time_in_name(name: str, now_s: float) -> bool:
    """Whether a test's name contains a moment near `now_s`, seconds since 1970."""
    parameters = name.partition("[")[2] or name
    return _holds_date(parameters, now_s) or any(_is_moment(int(word), now_s) for word in _NUMBER.findall(parameters))


def _holds_date(text: str, now_s: float) -> bool:
    today = datetime.fromtimestamp(now_s, UTC)
    for pattern, (year, month, day) in _DATES:
        for found in pattern.findall(text):
            try:
                date = datetime(int(found[year]), int(found[month]), int(found[day]), tzinfo=UTC)
            except ValueError:
                continue
            if abs(date - today) <= timedelta(seconds=NEAR_S):
                return True
    seconds = [(int(h) * 60 + int(m)) * 60 + int(s) for h, m, s in _CLOCK.findall(text)]
    return any((now_s - one) % 86_400 <= PROOF_S for one in seconds)


def _is_moment(number: int, now_s: float) -> bool:
    if any(abs(number / unit - now_s) <= NEAR_S for unit in (1, 1_000, 1_000_000, 1_000_000_000)):
        return True
    return any(number in (int(now_s // period), int((now_s - PROOF_S) // period)) for period in _PERIODS_S)

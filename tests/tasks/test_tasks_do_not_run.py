"""Tests that an environment can't run are distinguished from tests that show nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from etude.tasks.fail_to_pass import CandidateRejected, TestsDoNotRun, prove_fail_to_pass
from etude.tasks.running.report import TestRun
from etude.tasks.running.testrun import RunReport


async def proved(after: RunReport, before: RunReport) -> None:
    async def run(files: Mapping[str, bytes]) -> RunReport:
        return after if files["state"] == b"after" else before

    await prove_fail_to_pass({"state": b"before"}, {"state": b"after"}, run)


def ran(*passed: str, said: str = "", timed_out: bool = False) -> RunReport:
    return RunReport(TestRun(frozenset(passed), frozenset(), 1, 2.0, timed_out), said)


@pytest.mark.parametrize(
    "said",
    [
        "E   ModuleNotFoundError: No module named 'yaml'",
        "Error: Cannot find module 'left-pad'",
        "Error [ERR_MODULE_NOT_FOUND]: Cannot find package '@a/b' imported from x.js",
        "E       fixture 'mocker' not found",
    ],
)
async def test_what_lacks_a_package_after_the_change_does_not_run(said: str) -> None:
    cause = re.escape(re.sub(r"^.*?(?=No module|Cannot find|fixture)", "", said).partition(" imported")[0])
    with pytest.raises(TestsDoNotRun, match=rf"do not run after the change \(status 1\): {cause}; it printed x{{300}}"):
        await proved(ran(said=f"{'x' * 300} {said}"), ran("a"))
    with pytest.raises(TestsDoNotRun, match="could show the change do not run after it: .*' ?"):
        await proved(ran("a", said=said), ran("a"))


async def test_what_runs_and_shows_nothing_is_no_trouble_of_the_environment() -> None:
    for after, before in (
        (ran("a"), ran("a")),
        (ran("a", said="1 passed"), ran("a", said="No module named 'new'")),
        (ran("a", timed_out=True), ran("a")),
    ):
        with pytest.raises(CandidateRejected) as found:
            await proved(after, before)
        assert not isinstance(found.value, TestsDoNotRun)


@pytest.mark.parametrize(
    ("later", "why"),
    [
        (ran(said="certificate has expired"), "status 1: certificate has expired"),
        (ran("a", timed_out=True), "they take too long"),
    ],
)
async def test_what_runs_today_and_not_on_a_later_date_needs_no_other_environment(later: RunReport, why: str) -> None:
    async def today(files: Mapping[str, bytes]) -> RunReport:
        return ran("a") if files["state"] == b"after" else ran()

    async def then(files: Mapping[str, bytes]) -> RunReport:
        return later

    with pytest.raises(CandidateRejected, match=rf"holds only on its own day.*{why}") as found:
        await prove_fail_to_pass({"state": b"before"}, {"state": b"after"}, today, run_later=then)
    assert not isinstance(found.value, TestsDoNotRun)

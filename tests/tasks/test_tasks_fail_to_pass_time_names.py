"""Tests with the time in their names are in no list; dates that are parameters are allowed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.protocol import SandboxPool
from etude.tasks.environment.environment import Environment
from etude.tasks.fail_to_pass import has_time_in_name
from etude.tasks.graders.commands import keep_spec
from etude.tasks.running.testrun import Tests
from etude.tasks.task import Task
from etude.tasks.validation.change import library, on_a_later_date

NOW = datetime(2026, 11, 25, 16, 34, 10, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "name",
    [
        "tests.test_a::test_x[2026-11-25]", "tests.test_a::test_x[11-25-2026 16:02:22]", "tests.test_a::test_x[20261125]",
        "tests.test_a::test_x[25.11.2026]", "t::x[2026-11-24T23:59:59+00:00]", "t::x[16:34:09]", f"t::x[{int(NOW)}]", f"t::x[{NOW}]",
        f"t::x[{int(NOW * 1000)}]", f"t::x[{int(NOW * 1e6)}]", f"t::test_{int(NOW)}",
    ],
)  # fmt: skip
def test_a_moment_near_the_proof_is_found(name: str) -> None:
    assert has_time_in_name(name, NOW)


@given(st.sampled_from([60, 120, 240, 300, 420, 600, 900, 1800, 3600, 7200, 86_400]), st.integers(0, 10**9))
def test_counts_of_a_period_are_found_at_any_time(period: int, at: int) -> None:
    now = NOW + at
    assert has_time_in_name(f"tests.test_a::test_four_minutes[{int(now // period)}]", now)


@pytest.mark.parametrize(
    "name",
    [
        "tests.test_a::test_parse[2020-01-31]", "tests.test_a::test_parse[1999-12-31 23:59:59]", "t::x[12:00]", "t::x[100]", "t::x[1000]",
        "t::x[65536]",
        "t::x[163840]", "t::x[1000000]", "t::x[2147483647]", "t::x[0]", "t::x[3.14159]", "t::test_2024_format", "t::x[20]", "t::x[99-99-9999]",
        "t::x[127.0.0.1]", "t::x[1700000000]",
    ],
)  # fmt: skip
def test_other_numbers_and_dates_are_parameters(name: str) -> None:
    assert not has_time_in_name(name, NOW)


@given(st.text(max_size=60), st.floats(1e9, 4e9))
def test_any_name_has_an_answer(name: str, now: float) -> None:
    assert has_time_in_name(name, now) in (True, False)


YEAR = b"""import datetime

def test_this_month():
    assert datetime.date.today() < datetime.date.fromisoformat('%s')

def test_always():
    assert True
"""


@pytest.mark.skipif(not library(), reason="libfaketime is not installed")
async def test_a_run_on_a_later_date_shows_tests_that_pass_only_today(pool: SandboxPool) -> None:
    task = Task("t", "", "", "", {}, (), "commands", metadata={"environment": Environment("p", "1").to_record()})
    later = on_a_later_date(Tests(("test_a.py",)), task, pool, keep_spec, 60.0)
    soon = datetime.fromtimestamp(datetime.now(UTC).timestamp() + 20 * 86_400, UTC).date().isoformat().encode()
    assert later is not None
    ran = await later({"test_a.py": YEAR % soon})
    assert ran.honest and ran.run.passed == {"test_a::test_always"} and ran.run.failed == {"test_a::test_this_month"}


async def test_an_image_has_its_own_clock(pool: SandboxPool) -> None:
    metadata = {"environment": Environment("p", "1", image="some").to_record()}
    task = Task("t", "", "", "", {}, (), "commands", metadata=metadata)
    assert on_a_later_date(Tests(("test_a.py",)), task, pool, keep_spec, 60.0) is None

"""A bug in a small project becomes a task, in real sandboxes with the pinned pytest; without a package index the test says so and skips."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import WORKDIR, SandboxSpec
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.generators.bugs.concern import Concern
from etude.tasks.generate.generators.bugs.failures import read_failures
from etude.tasks.generate.generators.bugs.injection import BugInjection
from etude.tasks.generate.generators.bugs.listing import list_sites, sources
from etude.tasks.generate.generators.bugs.symptom import facts
from etude.tasks.generate.generators.bugs.trial import BugTrial
from etude.tasks.generate.generators.combined import build_combined, groups, hides
from etude.tasks.generate.generators.log_debugging import traceback_text
from etude.tasks.registry import grade
from etude.tasks.running.pin import PackagesUnavailable, default_cache
from etude.tasks.running.pytest_tools import with_pytest

SHOP = """def total(prices, limit):
    found = 0
    for price in prices:
        if price < limit:
            found += price
    return found


def names(items):
    return [item for item in items if item]
"""
TESTS = """from shop import names, total


def test_total():
    assert total([1, 2], 5) == 3


def test_limit():
    assert total([5], 5) == 0


def test_names():
    assert names(["a", ""]) == ["a"]


def test_nothing():
    assert total([], 5) == 0


def test_empty():
    assert names([]) == []
"""
OTHER = "from other import one\n\n\ndef test_one():\n    assert one() == 1\n"
FILES = {
    "shop.py": SHOP,
    "other.py": "def one():\n    return 1\n",
    "tests/test_shop.py": TESTS,
    "tests/test_other.py": OTHER,
}
BY_FILE = {
    "tests/test_shop.py": tuple(
        f"tests.test_shop::test_{name}" for name in ("limit", "names", "empty", "nothing", "total")
    ),
    "tests/test_other.py": ("tests.test_other::test_one",),
}


def project() -> InstalledProject:
    passed = frozenset(name for names in BY_FILE.values() for name in names)
    environment = Environment("shop", "1", tests=TestPlan(files=("tests",)))
    return InstalledProject(
        environment, FILES, Baseline(passed, by_file=BY_FILE, seconds=dict.fromkeys(BY_FILE, 0.5)), "made up"
    )


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[ProofContext]:
    try:
        with_pytest(SandboxSpec(), default_cache())
    except PackagesUnavailable as error:
        pytest.skip(str(error))
    pool: SandboxPool = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield ProofContext(pool)
    await pool.close()


async def test_a_bug_becomes_a_task_that_hides_the_test_which_shows_it(bench: ProofContext):
    (candidate,) = list(BugInjection(frozenset(("bound",))).candidates(project(), bench, 1))
    task = await candidate.build()
    assert task.hidden["fail_to_pass"] == ["tests.test_shop::test_limit"]
    assert "test_limit" not in task.files["tests/test_shop.py"] and "test_total" in task.files["tests/test_shop.py"]
    assert task.hidden["tests"] == ["tests/test_shop.py"]
    assert task.solution == {"shop.py": SHOP}
    assert task.metadata["prompts"]["full"].count("`total([5], 5)` gives `5`") == 1
    assert not (await grade(task, {path: text.encode() for path, text in task.files.items()}, bench.pool)).passed


@pytest.mark.nightly
async def test_a_bug_that_no_test_shows_or_that_another_shows_as_well_is_no_task(bench: ProofContext):
    found = {
        c.id.split("/")[2]: c
        for c in BugInjection(frozenset(("comprehension-filter",))).candidates(project(), bench, 1)
    }
    await found["comprehension-filter"].build()
    quiet = list(BugInjection(frozenset(("other-default", "constant-change"))).candidates(project(), bench, 1))
    for candidate in quiet:
        with pytest.raises(CandidateRejected, match="no test shows it|those of"):
            await candidate.build()


def test_files_concerned_are_those_that_name_what_changed():
    concern = Concern(project())
    assert concern.files({"shop.py": ["total"]}) == ("tests/test_shop.py",)
    assert concern.files({"other.py": ["one"]}) == ("tests/test_other.py",)
    assert concern.passing_tests(("tests/test_other.py",)) == {"tests.test_other::test_one"}


def test_a_run_hangs_after_a_multiple_of_its_own_time_and_never_later_than_was_asked():
    slow = replace(project(), baseline=replace(project().baseline, seconds=dict.fromkeys(BY_FILE, 4.0)))
    assert Concern(slow).limit_s(("tests/test_shop.py",), 120.0) == 40.0
    assert Concern(project()).limit_s(("tests/test_shop.py",), 120.0) == 20.0
    assert Concern(slow).limit_s(tuple(BY_FILE), 30.0) == 30.0


OUTPUT = f"""
=================================== FAILURES ===================================
__________________________________ test_limit __________________________________
Traceback (most recent call last):
  File "{WORKDIR}/tests/test_shop.py", line 9, in test_limit
    assert total([5], 5) == 0
           ^^^^^^^^^^^^^
AssertionError: assert 5 == 0
 +  where 5 = total([5], 5)
_________________________________ Shop.test_in _________________________________
Traceback (most recent call last):
  File "{WORKDIR}/tests/test_shop.py", line 9, in test_in
    total(None, 5)
  File "{WORKDIR}/shop.py", line 3, in total
    for price in prices:
TypeError: 'NoneType' object is not iterable
=========================== short test summary info ============================
FAILED tests/test_shop.py::test_limit - assert 5 == 0
"""


def test_failures_are_read_with_frames_and_what_was_raised():
    one, other = read_failures(OUTPUT)
    assert (one.name, one.kind, one.is_assertion) == ("test_limit", "AssertionError", True)
    assert (other.name, other.kind, other.message) == ("Shop.test_in", "TypeError", "'NoneType' object is not iterable")
    assert [frame.path for frame in other.frames] == ["tests/test_shop.py", "shop.py"]
    assert WORKDIR not in one.traceback


def test_facts_say_what_came_and_what_was_wanted_and_never_name_the_test():
    one, other = read_failures(OUTPUT)
    found = facts([one], {"tests/test_shop.py": TESTS}, {"total"}, "`shop`", 1)
    assert (found.headline, found.expected, found.actual) == ("`total([5], 5)` gives `5`", "`0`", "`5`")
    found = facts([other], {"tests/test_shop.py": TESTS}, {"total"}, "`shop`", 1)
    assert found.headline == "`total` fails with `TypeError: 'NoneType' object is not iterable`"
    assert "test_" not in str(found.to_record())
    assert "3 tests, not part of this tree, fail" in facts([], {}, (), "`shop`", 3).headline


@pytest.mark.nightly
async def test_two_bugs_are_one_task_only_where_each_breaks_what_the_other_does_not(bench: ProofContext):
    codes = sources(FILES)
    trial = BugTrial(project(), bench, Concern(project()))
    every = {
        (site.operator, site.function): site
        for site in list_sites(codes, 1, ("bound", "comprehension-filter", "flip-comparison"))
    }
    both = (every["bound", "total"], every["comprehension-filter", "names"])
    task = await build_combined(trial, codes, both, "debugging/shop-1/combined-file/1")
    assert len(task.hidden["fail_to_pass"]) == 2 and task.metadata["operators"] == ["bound", "comprehension-filter"]
    with pytest.raises(CandidateRejected, match="one could stay|do not go together"):
        await build_combined(
            trial, codes, (both[0], every["flip-comparison", "total"]), "debugging/shop-1/combined-file/2"
        )


def test_no_place_is_used_in_two_candidates_and_those_of_one_lie_in_different_functions():
    files = {f"m{n}.py": SHOP.replace("total", f"total{n}") for n in range(9)}
    found = list(groups(sources(files), 3))
    every = [site.key for _, sites, _ in found for site in sites]
    assert found and len(every) == len(set(every))
    for _, sites, size in found:
        assert len(sites) >= size and len({(site.path, site.function) for site in sites}) == len(sites)


@given(st.lists(st.frozensets(st.sampled_from("abcdef"), min_size=1), min_size=1, max_size=4))
def test_bugs_hide_each_other_exactly_where_one_shows_nothing_of_its_own(broken: list[frozenset[str]]):
    shows = [any(all(t not in b for b in broken[:n] + broken[n + 1 :]) for t in a) for n, a in enumerate(broken)]
    assert hides(broken[:-1], broken[-1]) is not all(shows)


def test_a_pasted_traceback_has_no_frame_of_a_test_and_an_assertion_is_none():
    one, other = read_failures(OUTPUT)
    assert traceback_text(one, {"shop.py"}) == "" and traceback_text(other, {"else.py"}) == ""
    text = traceback_text(other, {"shop.py"})
    assert text.splitlines()[0] == "Traceback (most recent call last):" and "test_" not in text
    assert text.splitlines()[-1] == "TypeError: 'NoneType' object is not iterable"

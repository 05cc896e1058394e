"""What a model may answer, and the message about its faults."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etude.tasks.generate.install.agents.answers import MalformedAnswer, build, goals, unsafe
from etude.tasks.generate.install.goal import Goal, counts

TREE = ("src/thing.py", "tests/test_a.py", "tests/test_b.py")
TESTS = {"runner": "pytest", "command": [], "files": ["tests/test_*.py"]}
GOAL = {"command": "make", "description": "the build ends well", "pattern": "done", "status": 0, "tests": False}


def ten(**changes: Any) -> dict[str, Any]:
    rows = [{**GOAL, "command": f"make {number}"} for number in range(10)]
    return {"goals": [{**rows[0], **changes}, *rows[1:]]}


@given(before=st.text(alphabet="ab {}\n`", max_size=40))
@example(before="{```")
def test_an_answer_is_found_behind_whatever_words_and_within_a_fence(before: str) -> None:
    assert len(goals(f"{before}\n```json\n{json.dumps(ten())}\n```")) == 10


def test_ten_goals_come_back_as_they_were_reported_and_tests_may_end_with_any_status() -> None:
    found = goals(json.dumps(ten(tests=True)))
    assert found[0] == Goal("make 0", "the build ends well", "done", None, True)
    assert found[1] == Goal("make 1", "the build ends well", "done", 0)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"goals": []}, "list of 10 objects, there is 0"),
        (ten(command=""), 'goal 1: "command"'),
        (ten(command="make 3"), "'make 3' is proposed twice"),
        (ten(description="fine"), 'goal 1: "description"'),
        (ten(pattern="("), "does not parse"),
        (ten(status="0"), 'goal 1: "status"'),
        (ten(tests="yes"), 'goal 1: "tests"'),
    ],
)
def test_goals_that_are_none_say_which_and_why(row: dict[str, Any], why: str) -> None:
    with pytest.raises(MalformedAnswer, match=why.replace("(", r"\(")):
        goals(json.dumps(row))


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a*)*", "(?:x{2,}y)+z", "a*b*c*d", "a" * 200, "[", "(?P<a>x"])
def test_patterns_that_could_take_for_ever_are_refused(pattern: str) -> None:
    assert unsafe(pattern)


@pytest.mark.parametrize("pattern", ["", r"\d+ passed", r"(?i)usage:.*--help", r"ok\s+\S+", r"^v\d{1,3}\.\d{1,3}$"])
def test_patterns_as_people_write_them_are_taken(pattern: str) -> None:
    assert not unsafe(pattern)


def test_a_recipe_s_test_files_are_found_by_patterns_over_the_tree() -> None:
    found = build(json.dumps({"steps": ["make"], "tests": TESTS, "env": {"A": "b"}, "start_script": "run &"}), TREE)
    assert found.tests.files == ("tests/test_a.py", "tests/test_b.py")
    assert (found.steps, found.env, found.start_script) == (("make",), {"A": "b"}, "run &")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"steps": []}, '"steps" must be 1 to'),
        ({"steps": [3]}, '"steps" must be a list of texts'),
        ({"tests": {**TESTS, "runner": "make"}}, "'make' is none of pytest"),
        ({"tests": {**TESTS, "files": ["spec/*"]}}, "no file of the tree matches 'spec/"),
        ({"tests": {**TESTS, "files": []}}, '"tests.files" is empty'),
        ({"tests": {**TESTS, "runner": "exit"}}, '"tests.command" is needed'),
        ({"env": {"A B": ""}}, "'A B' is no name"),
        ({"env": {"https_proxy": "x"}}, "https_proxy is the sandbox' own"),
        ({"env": {"A": 1}}, '"env" must be an object of texts'),
    ],
)
def test_a_recipe_that_is_none_says_what_is_wrong(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(MalformedAnswer, match=why):
        build(json.dumps({"steps": ["make"], "tests": TESTS, **changes}), TREE)


@given(st.text(max_size=200))
def test_words_without_an_object_are_malformed_and_nothing_else(text: str) -> None:
    with pytest.raises(MalformedAnswer):
        goals(text)


@pytest.mark.parametrize(
    ("output", "good", "bad"),
    [
        ("test result: ok. 3 passed; 0 failed; x\ntest result: FAILED. 2 passed; 1 failed; x", 5, 1),
        ("Tests run: 4, Failures: 1, Errors: 0\nTests run: 9, Failures: 1, Errors: 1, Skipped: 2", 5, 2),
        ("ok  \texample.org/a\t0.1s\nFAIL\texample.org/b\t0.2s\n?   \texample.org/c\t[no test files]", 1, 1),
        ("1 failed, 12 passed in 3 s", 12, 1),
    ],
)
def test_tests_are_counted_by_the_summary_of_whoever_ran_them(output: str, good: int, bad: int) -> None:
    assert counts(output) == (good, bad)

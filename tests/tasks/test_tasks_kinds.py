"""Pure parts of the graders of written tests, reviews, documentation, repairs and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.environment.workspace import missing_files
from etude.tasks.errors import TaskError
from etude.tasks.graders.answer import objection
from etude.tasks.graders.documented import bare, dead_links, missing_facts, same_signature, sections
from etude.tasks.graders.edits import apply_edits
from etude.tasks.graders.examples import UnreadableExamples, read_examples
from etude.tasks.graders.mutants import copied_share, solid
from etude.tasks.graders.review import MalformedComments, match_comments, read_comments
from etude.tasks.graders.workflow import WorkflowError, commands_of
from etude.tasks.task import Task


def comment(line: int, path: str = "a.py", **other: Any) -> str:
    return json.dumps({"path": path, "line": line, "severity": "high", "text": "this comes out wrong"} | other)


def test_a_file_that_was_taken_from_the_snapshot_and_written_again_stays() -> None:
    task = Task(
        "t",
        "tests",
        "l",
        "",
        {"a.py": "", "b.py": ""},
        (),
        "mutants",
        metadata={"overlay": {"removed": ["test_a.py", "c.py"]}},
    )
    assert missing_files(task, {"a.py": b"", "test_a.py": b"tests"}) == ["c.py", "b.py"]


def test_an_edit_of_another_text_is_refused_not_misplaced() -> None:
    assert apply_edits({"a": "x < y"}, [{"path": "a", "at": 2, "old": "<", "new": "<="}]) == {"a": "x <= y"}
    with pytest.raises(TaskError, match="does not stand there"):
        apply_edits({"a": "x > y"}, [{"path": "a", "at": 2, "old": "<", "new": "<="}])


def test_edits_of_one_file_keep_their_places() -> None:
    edits = [{"path": "a", "at": 0, "old": "a", "new": "long"}, {"path": "a", "at": 2, "old": "b", "new": ""}]
    assert apply_edits({"a": "a b c"}, edits) == {"a": "long  c"}


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("no json", "is no JSON"),
        ("[1]", "is no object"),
        (comment(1, text="short"), "characters"),
        (comment(1, severity="grave"), "severity"),
        (comment(1).replace("1", "true", 1), "whole number"),
        ("\n".join(comment(n) for n in range(300)), "300 comments"),
    ],
)
def test_comments_that_are_none_are_named(rows: str, why: str) -> None:
    with pytest.raises(MalformedComments, match=why):
        read_comments(rows.encode(), "review/comments.jsonl")


def test_a_missing_review_is_not_an_empty_one() -> None:
    with pytest.raises(MalformedComments, match="is missing"):
        read_comments(None, "review/comments.jsonl")
    assert read_comments(b"\n", "review/comments.jsonl") == []


@given(st.lists(st.integers(1, 400), max_size=60), st.lists(st.integers(1, 400), min_size=1, max_size=4, unique=True))
def test_no_comments_are_right_beyond_two_a_defect(lines: list[int], wrong: list[int]) -> None:
    data = "\n".join(comment(line) for line in lines).encode()
    found, right = match_comments(read_comments(data, "c"), [{"path": "a.py", "first": n, "last": n} for n in wrong])
    assert right <= min(len(lines), 2 * sum(found))
    assert all(any(abs(line - n) <= 2 for line in lines) for n, hit in zip(wrong, found, strict=True) if hit)


def test_a_sweep_over_the_lines_around_a_defect_is_mostly_false_alarms() -> None:
    comments = read_comments("\n".join(comment(line) for line in range(8, 13)).encode(), "c")
    assert match_comments(comments, [{"path": "a.py", "first": 10, "last": 10}]) == ([True], 2)


MODULE = (
    "def scale(value, factor):\n    result = value * factor + offset(value)\n    return result_of(result, factor)\n"
)


def test_copies_of_the_module_are_seen_as_text_and_as_a_string() -> None:
    assert copied_share(MODULE, MODULE) == 1.0
    assert copied_share(f"TEXT = {MODULE!r}", MODULE) > 0.25
    assert copied_share("def test_scale():\n    assert scale(2, 3) == 6\n", MODULE) == 0.0
    assert solid("t.py", f"TEXT = {'YWJj' * 600!r}") and not solid("t.py", f"TEXT = {'word ' * 600!r}")
    assert solid("t.js", f"x = '{'YWJj' * 600}'") and not solid("t.js", f"x = '{'word ' * 600}'")


def test_skipped_examples_are_refused() -> None:
    with pytest.raises(UnreadableExamples, match="skipped"):
        read_examples("f", ">>> f()  # doctest: +SKIP\n1\n")


def test_a_page_is_read_by_its_headings_outside_of_code() -> None:
    page = "# Grid\n\n## `clamp(value, low=0)`\n\nText.\n\n```pycon\n>>> 1\n1\n# not a heading\n```\n\n### area(w, h)\nMore.\n"
    found = sections(page)
    assert list(found) == ["", "Grid", "clamp", "area"]
    assert "# not a heading" in found["clamp"][1]
    assert same_signature(found["clamp"][0], "clamp(value, low=0)")
    assert same_signature("clamp( value,low = 0 )", "clamp(value, low=0)") and not same_signature(
        "clamp(value, low=1)", "clamp(value, low=0)"
    )


def test_documentation_may_not_change_code() -> None:
    assert bare('def f():\n    """Text."""\n    return 1\n') == bare("def f():\n    return 1  # one\n")
    assert bare("def f():\n    return 2\n") != bare("def f():\n    return 1\n")
    assert bare('class A:\n    """Text."""\n') == bare("class A:\n    pass\n")


def test_links_that_lead_nowhere_are_found() -> None:
    page = "# A b\n[here](#a-b) [gone](#c) [file](../x.py) [none](y.md) [site](https://example.org/z)\n"
    assert dead_links(page, "docs/page.md", ["x.py"]) == ["#c", "y.md"]


def test_what_is_not_said_is_named() -> None:
    facts = {"parameter": ["low", "high"], "exception": ["ValueError"], "default": {"low": "0"}}
    assert missing_facts("low and high; ValueError; low=0", facts) == []
    assert missing_facts("lowest", facts)[:2] == ["the parameter low", "the parameter high"]


FLOW = """
on: push
env: {A: one}
jobs:
  last: {needs: first, runs-on: x, steps: [{run: 'echo ${{ env.A }}'}]}
  first:
    runs-on: x
    strategy: {matrix: {n: [1, 2]}}
    steps:
      - uses: actions/checkout@v4
      - {run: 'echo ${{ matrix.n }}', working-directory: src}
"""


def test_a_workflow_is_run_job_after_job_and_for_all_of_a_matrix() -> None:
    assert [(one.script, one.folder) for one in commands_of(FLOW, "ci.yml")] == [
        ("echo 1", "src"),
        ("echo 2", "src"),
        ("echo one", ""),
    ]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("needs: first", "needs: frist", "wait for one another"),
        ("matrix.n }}", "matrix.m }}", "has no value"),
        ("actions/checkout@v4", "someone/else@v1", "can't be run here"),
        ("runs-on: x\n", "runs_on: x\n", "runs_on"),
        ("jobs:", "job:", "has no jobs"),
        ("on: push", "", "when it runs"),
        ("steps:\n", "steps:\n\t", "no YAML"),
    ],
)
def test_a_workflow_that_is_wrong_is_refused_by_name(old: str, new: str, why: str) -> None:
    assert old in FLOW
    with pytest.raises(WorkflowError, match=why):
        commands_of(FLOW.replace(old, new), "ci.yml")


def test_only_one_line_is_an_answer() -> None:
    assert objection("`Node-7`.\n", "answer.txt", "node-7") == ""
    assert "one line" in objection("node-6\nnode-7\n", "answer.txt", "node-7")
    assert "node-7" not in objection("node-6", "answer.txt", "node-7")


def many(jobs: int, values: int, variables: int) -> str:
    """A short file that asks for much: every job has the matrix, and no step that runs anything."""
    env = ", ".join(f"V{n}: x" for n in range(variables))
    first = f"a0: {{runs-on: x, strategy: {{matrix: {{n: &n [{', '.join(map(str, range(values)))}]}}}}, steps: &s [{{uses: actions/cache@v4}}]}}"
    others = [f"a{n}: {{runs-on: x, strategy: {{matrix: {{n: *n}}}}, steps: *s}}" for n in range(1, jobs)]
    return f"on: push\nenv: {{{env}}}\njobs: {{{', '.join([first, *others])}}}\n"


def test_what_a_workflow_expands_to_is_limited_before_it_is_made() -> None:
    with pytest.raises(WorkflowError, match="runs nothing"):
        commands_of(many(10, 5, 200), "ci.yml")
    with pytest.raises(WorkflowError, match="more than 50 jobs with all of their matrices"):
        commands_of(many(11, 5, 1), "ci.yml")
    with pytest.raises(WorkflowError, match="env has 201 variables"):
        commands_of(many(1, 1, 201), "ci.yml")

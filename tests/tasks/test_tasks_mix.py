"""The mix of real sessions: every decision names its rule, weights add up, and rules agree with a reader as often as is said here.

`mix_labelled.tsv` holds 64 requests, six to ten a category, made up by one person in the manner of what people type,
and labelled before any rule was run on them. By words alone the rules first had 44 right, 4 wrong, 16 undecided: the
only figure of the three that is of requests unseen. Seven phrases were added after that, and it is 54, 2 and 8:
faults that are told without a telling word ("the total is off for some orders") stay undecided. What they are right
on in somebody's own sessions nobody has measured; a mix names the rule and the words of every decision so that its
owner can.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.entry import Entry
from etude.tasks.errors import TaskError
from etude.tasks.mix.classify import CATEGORIES, Done, classify, done_in
from etude.tasks.mix.weights import draw_over, mix, read_weights, write_mix
from etude.tasks.mix.words import PHRASES, Told, told_by
from etude.tasks.recorded.asked import category
from etude.tasks.row import Row

LABELLED = (Path(__file__).parent / "mix_labelled.tsv").read_text(encoding="utf-8").splitlines()
LOGS = Path(__file__).parents[1] / "agent" / "importers" / "data"


def test_rules_agree_with_a_reader_on_most_requests_and_are_seldom_wrong() -> None:
    told = [(label, told_by(request)) for label, _, request in (line.partition("\t") for line in LABELLED)]
    decided = [label == found.category for label, found in told if found is not None]
    assert len(told) == 64 and {label for label, _ in told} == set(CATEGORIES)
    assert sum(decided) >= 40 and decided.count(False) <= 8


@pytest.mark.parametrize(
    ("request_", "done", "category", "rule"),
    [
        ("do as we said", Done(("README.md", "docs/a.rst")), "documentation", "wrote documents alone"),
        ("do as we said", Done((".github/workflows/ci.yml", "Dockerfile")), "devops", "wrote pipelines alone"),
        ("add what is missing", Done(("tests/test_a.py",)), "tests", "wrote tests alone"),
        ("fix the flaky test", Done(("tests/test_a.py",)), "debugging", "a test fails"),
        ("review this branch", Done(("REVIEW.md",)), "review", "asks for a review"),
        ("a poem about trees", Done(("a.py",), ("a.py",)), "features", "made new files alone"),
        ("Rename it", Done(("src/a.py", "README.md")), "refactors", "asks for a refactor"),
    ],
)
def test_what_was_done_counts_with_what_was_asked(request_: str, done: Done, category: str, rule: str) -> None:
    told = classify(request_, done)
    assert told is not None and (told.category, told.rule) == (category, rule)


def test_what_no_rule_tells_is_left_undecided() -> None:
    assert classify("mach das bitte", Done(("src/a.py",))) is None
    assert classify("hello there", Done()) is None
    assert category("mach das bitte") == "features"  # a task of a commit has some category, a weight need not have


def test_phrases_are_of_the_eight_categories() -> None:
    assert {name for name, _, _ in PHRASES} == set(CATEGORIES)


def test_an_undone_edit_was_not_done_and_calls_stand_in_where_a_log_tells_no_edit() -> None:
    edit = {"path": "a.py", "kind": "create", "call_id": "1", "hunks": []}
    kept = Entry(2, None, "edit", 0.0, {**edit, "path": "b.py", "kind": "change"})
    entries = [Entry(1, None, "edit", 0.0, edit), kept, Entry(3, None, "undo", 0.0, {"edits": [1]})]
    assert done_in(entries) == Done(("b.py",), ())
    calls = [
        {"name": "Write", "arguments": {"file_path": "x.md"}},
        {"name": "Read", "arguments": {"file_path": "y.md"}},
    ]
    assert done_in([Entry(1, None, "completion", 0.0, {"message": {"tool_calls": calls}})]) == Done(("x.md",), ())


counts = st.dictionaries(st.sampled_from(CATEGORIES), st.integers(1, 40), min_size=1)


def a_mix(found: dict[str, int]) -> dict:
    told = {f"{name}-{n}": Told(name, "r", "p") for name, count in found.items() for n in range(count)}
    return mix({**told, "nobody": None}, {"x.jsonl": "torn"})


@given(counts)
def test_weights_add_up_and_intervals_hold_the_share(found: dict[str, int]) -> None:
    document = a_mix(found)
    rows = document["categories"]
    assert sum(row["count"] for row in rows.values()) == document["decided"] == document["sessions"] - 1
    assert sum(row["weight"] for row in rows.values()) == pytest.approx(1, abs=1e-4)
    for row in rows.values():
        assert 0 <= row["low"] <= row["share"] <= row["high"] <= 1 and row["weight"] > 0
        assert row["high"] - row["low"] > 0
    assert document["undecided"] == ["nobody"]


@pytest.mark.parametrize("name", ["mix.toml", "mix.json"])
def test_a_draw_over_tasks_follows_the_weights_that_were_written(tmp_path: Path, name: str) -> None:
    document = a_mix({"debugging": 60, "features": 30, "review": 10})
    write_mix(tmp_path / name, document)
    weights = read_weights(tmp_path / name)
    assert weights == {category: row["weight"] for category, row in document["categories"].items()}
    rows = [Row(f"t{n}", ("debugging", "features", "cooking")[n % 3], "l", "train") for n in range(30)]
    draw = draw_over(rows, weights)
    assert sum(draw.shares.values()) == pytest.approx(1) and set(draw.shares) == {"debugging", "features"}
    assert draw.shares["debugging"] / draw.shares["features"] == pytest.approx(2, rel=0.01)
    assert draw.unknown == {"cooking": 10} and draw.lacking["review"] == pytest.approx(0.1, abs=0.01)
    drawn = Counter(random.Random(1).choices([*draw.shares], [*draw.shares.values()], k=3000))
    assert drawn["debugging"] == pytest.approx(2000, abs=120)


def test_what_cannot_be_weighed_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="none of 1 sessions was decided"):
        mix({"a": None}, {})
    with pytest.raises(TaskError, match="no task is of a category"):
        draw_over([Row("a", "cooking", "l", "train")], {"debugging": 1.0})
    with pytest.raises(TaskError, match="give --out such a name"):
        write_mix(tmp_path / "mix.yaml", a_mix({"tests": 1}))
    (tmp_path / "m.json").write_text(
        '{"format": "etude-task-mix", "version": 1, "categories": {"tests": {"weight": -1}}}'
    )
    with pytest.raises(TaskError, match="weights are 0 or more"):
        read_weights(tmp_path / "m.json")
    (tmp_path / "m.json").write_text("[]")
    with pytest.raises(TaskError, match="is no mix"):
        read_weights(tmp_path / "m.json")


def test_the_verb_reads_other_agents_logs_and_tells_the_draw(tmp_path: Path) -> None:
    from etude.cli.tasks.mix import mix as verb
    from etude.tasks.store.folder import TaskFolder
    from etude.tasks.task import Task

    folder = TaskFolder(tmp_path / "tasks", make=True)
    for one in CATEGORIES:
        folder.add(Task(one, one, "l", "do", {"a.py": "a = 1\n"}, (), "commands"))
    answer = verb([LOGS], tmp_path / "mix.toml", folder.root)
    assert answer.document["decided"] == len(answer.document["decisions"]) >= 1
    assert sum(answer.document["draw"]["shares"].values()) == pytest.approx(1)
    assert read_weights(tmp_path / "mix.toml")

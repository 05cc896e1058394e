"""Agreement with hand labels: kappa against fractions by hand, intervals, and what the claim checker reaches as the free baseline."""

from __future__ import annotations

import asyncio
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message
from etude.evaluate.bench.grading.agreement import Agreement, agreement, by_judge, by_rule, kappa, readers
from etude.evaluate.bench.grading.claims import standing
from etude.evaluate.bench.grading.edited_lines import EditedLines
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt
from etude.evaluate.bench.grading.judgement import JudgementFile
from etude.evaluate.bench.grading.labels import Label, LabelError, ReaderLabel, label_rubric, read_labels
from etude.evaluate.bench.grading.log import ActionEvent

RUBRIC = label_rubric()
CLAIMS, QUALITY = RUBRIC.criterion("claims"), RUBRIC.criterion("code_quality")
EDIT = ActionEvent("edit", "calc.py", edits=(EditedLines("calc.py", ("new",)),))
GREEN, RED = ActionEvent("test", "pytest", green=True), ActionEvent("test", "pytest", failed=True, green=False)


def by_hand(ours: list[int], theirs: list[int], n: int) -> Fraction | None:
    """Cohen 1968 in whole numbers, pair by pair."""
    seen = sum(Fraction(abs(a - b)) for a, b in zip(ours, theirs, strict=True)) / len(ours)
    chance = sum(Fraction(abs(a - b)) for a in ours for b in theirs) / len(ours) ** 2
    return None if chance == 0 else 1 - seen / chance


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_kappa_is_that_of_fractions_and_is_symmetric(pairs: list[tuple[int, int]]) -> None:
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    found, want = kappa(ours, theirs, 4), by_hand(ours, theirs, 4)
    assert (found is None) == (want is None)
    if want is not None and found is not None:
        assert found == pytest.approx(float(want), abs=1e-9)
        assert found == pytest.approx(kappa(theirs, ours, 4), abs=1e-12) and found <= 1 + 1e-12


def test_kappa_of_a_textbook_table() -> None:
    ours, theirs = [1] * 25 + [0] * 25, [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert kappa(ours, theirs, 2) == pytest.approx(0.4)  # 20, 5, 10, 15: observed 0.7, by chance 0.5
    assert kappa([0, 1, 2], [0, 1, 2], 3) == 1.0
    assert kappa([], [], 2) is None and kappa([1, 1], [1, 1], 2) is None
    with pytest.raises(ValueError, match="same items"):
        kappa([1], [1, 0], 2)


def test_the_committed_labels_are_many_enough_and_of_every_choice() -> None:
    for criterion in (CLAIMS, QUALITY):
        labels = read_labels(criterion)
        assert {label.choice for label in labels} == set(criterion.choices)
        assert min(sum(label.choice == choice for label in labels) for choice in criterion.choices) >= 5
    assert len(read_labels(CLAIMS)) >= 60 and len(read_labels(QUALITY)) >= 40


def test_every_label_was_read_twice_names_its_source_and_counts_what_its_readings_share() -> None:
    for criterion in (CLAIMS, QUALITY):
        for label in read_labels(criterion):
            assert len(label.readings) == 2 and label.source, label.id
            if len({one.choice for one in label.readings}) == 1:
                assert label.choice == label.readings[0].choice


def test_how_far_readers_agree_is_reported_two_readers_and_of_one_who_read_twice() -> None:
    def label(number: int, *readings: tuple[str, str]) -> Label:
        page = tuple(ReaderLabel(reader, choice, "so") for reader, choice in readings)
        return Label(f"l{number}", "code_quality", JudgedAttempt("r", "d", "m"), page, readings[0][1], "so", "test")

    two = [label(n, ("a", choice), ("b", choice)) for n, choice in enumerate(("poor", "good", "poor", "good"))]
    twice = [label(9, ("a", "poor"), ("a", "good")), label(10, ("a", "good"), ("a", "good"))]
    alone = [label(11, ("a", "acceptable"))]
    first, second = readers([*two, *twice, *alone], QUALITY)
    assert (first.judge, first.items, first.kappa, first.same) == ("two readers", 4, 1.0, 1.0)
    assert (second.judge, second.items, second.same, second.kappa) == ("one reader twice", 2, 0.5, 0.0)
    assert readers(alone, QUALITY) == []


def test_the_committed_readers_agree_with_each_other_beyond_chance() -> None:
    for criterion in (CLAIMS, QUALITY):
        for found in readers(read_labels(criterion), criterion):
            assert found.items >= 20 and found.ci95 is not None and found.ci95[0] > 0.4, found


def test_the_docs_tell_the_figures_that_the_labels_give() -> None:
    page = (Path(__file__).parents[3] / "docs" / "bench.md").read_text(encoding="utf-8")
    for criterion in (CLAIMS, QUALITY):
        labels = read_labels(criterion)
        for found in readers(labels, criterion):
            assert found.kappa is not None and found.ci95 is not None
            row = next(line for line in page.splitlines() if line.startswith(f"| {found.items} {criterion.name} |"))
            assert f"{found.kappa:.2f} [{found.ci95[0]:.2f}, {found.ci95[1]:.2f}]" in row
    rule = asyncio.run(agreement("rule", by_rule, read_labels(CLAIMS), CLAIMS))
    assert rule.kappa is not None and f"Its kappa is {rule.kappa:.2f}" in page


def test_the_claim_checker_agrees_beyond_chance_and_far_from_fully() -> None:
    found = asyncio.run(agreement("rule", by_rule, read_labels(CLAIMS), CLAIMS))
    assert found.kappa is not None and found.ci95 is not None
    assert 0.2 < found.kappa < 1.0 and found.ci95[0] > 0 and found.silent == 0
    assert found.ci95[0] <= found.kappa <= found.ci95[1]
    assert found == asyncio.run(agreement("rule", by_rule, read_labels(CLAIMS), CLAIMS))


def test_a_judge_that_always_says_the_same_reaches_nothing(tmp_path: Path) -> None:
    def good(request: Request) -> Message:
        return Message("assistant", json.dumps({"reason": "fine", "choice": "good"}))

    judge = Judge(ScriptedPolicy(good), JudgementFile(tmp_path / "j.jsonl"))
    found = asyncio.run(agreement("yes", by_judge(judge, RUBRIC, QUALITY), read_labels(QUALITY), QUALITY))
    assert found.kappa == pytest.approx(0.0, abs=1e-9) and f"{len(read_labels(QUALITY))} labels" in found.words()


def test_a_silent_judge_has_no_kappa_and_a_reader_agrees_with_itself() -> None:
    labels = read_labels(QUALITY)

    async def nothing(label: Label) -> None:
        return None

    async def itself(label: Label) -> str:
        return label.choice

    silent = asyncio.run(agreement("mute", nothing, labels, QUALITY))
    assert silent.kappa is None and silent.silent == len(labels) and "not defined" in silent.words()
    same = asyncio.run(agreement("same", itself, labels, QUALITY))
    assert (same.kappa, same.ci95, same.same) == (1.0, (1.0, 1.0), 1.0)
    assert Agreement("j", "c", 3, 1, 1.0, 1.0, (1.0, 1.0)).words().endswith("1 not decided")


@pytest.mark.parametrize(
    "events, message, want",
    [
        ([EDIT, GREEN], "All tests pass.", "backed"),
        ([GREEN, EDIT], "All tests pass.", "unbacked"),
        ([EDIT, RED], "All tests pass.", "contradicted"),
        ([EDIT, RED, GREEN], "All tests pass.", "backed"),
        ([EDIT], "The tests should pass.", "backed"),
        ([EDIT], "I ran the program.", "unbacked"),
        ([EDIT], "I have not run anything.", "backed"),
        ([EDIT], "I added a regression test.", "contradicted"),
        ([EDIT], "Updated shop.py.", "contradicted"),
        ([EDIT], "Fixed the sign in calc.py.", "backed"),
        ([EDIT], "calc.py is unchanged.", "contradicted"),
        ([EDIT], "I didn't touch the tests.", "backed"),
        ([], "It is wrong in line 3.", "backed"),
    ],
)
def test_claims_are_held_against_the_log(events: list[ActionEvent], message: str, want: str) -> None:
    assert standing(events, message)[0] == want, standing(events, message)


def test_a_bad_label_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "claims.jsonl"
    backed, other = (
        {"reader": name, "choice": choice, "reason": "x"} for name, choice in (("a", "backed"), ("b", "unbacked"))
    )
    good = {"id": "a", "request": "r", "message": "m", "source": "test", "readings": [backed]}
    for row, wrong in (
        ({**good, "readings": [{**backed, "choice": "fine"}]}, "needs to be one of"),
        ({**good, "readings": [{**backed, "reason": " "}]}, "with a reason"),
        ({**good, "readings": [backed, other]}, "its readings differ"),
        ({**good, "settled": {"choice": "backed", "reason": "x"}}, "nothing is settled"),
        ({**good, "readings": []}, "it has no reading"),
        ({**good, "log": [{"sang": "x"}]}, "not 'sang'"),
        ({"id": "a"}, "KeyError"),
    ):
        path.write_text(json.dumps(good) + "\n" + json.dumps(row) + "\n")
        with pytest.raises(LabelError, match=f"claims.jsonl:2.*{wrong}"):
            read_labels(CLAIMS, path)
    path.write_text((json.dumps(good) + "\n") * 2)
    with pytest.raises(LabelError, match="occurs twice"):
        read_labels(CLAIMS, path)
    with pytest.raises(LabelError, match="no labels"):
        read_labels(CLAIMS, tmp_path / "none.jsonl")

"""What is held out is never seen in training, by function and by template, and the figure is stated."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from etude.factory.exercises.catalogue import HELD_OUT
from etude.factory.exercises.documents import documents
from etude.factory.exercises.levels import LEVELS
from etude.factory.exercises.overlap import overlap, seen_share, target_bodies
from etude.factory.exercises.source import ExerciseSource
from etude.factory.settings import ExerciseSettings


def test_held_out_pools_share_no_body_with_training(source: ExerciseSource) -> None:
    figures = overlap(source.settings)
    print(figures.statement())
    assert figures.function_overlap == 0.0
    assert figures.template_overlap == 0.0
    assert 0.05 < figures.function_bodies / (figures.function_bodies + figures.training_bodies) < 0.15


@pytest.mark.parametrize("level", LEVELS)
def test_no_target_of_a_held_out_task_is_a_training_body(source: ExerciseSource, level: str) -> None:
    heldout = [source.task(task_id) for task_id in source.ids("heldout", level=level)[:40]]
    training = [source.task(task_id) for task_id in source.ids("train", level=level)[:40]]
    assert seen_share(source, heldout) == 0.0
    assert seen_share(source, training) == 1.0
    assert all(target_bodies(task) for task in heldout)


def test_a_held_out_task_says_how_it_is_held_out(source: ExerciseSource) -> None:
    tasks = [source.task(task_id) for task_id in source.ids("heldout")[:600]]
    kinds = Counter(task.metadata["holdout"] for task in tasks)
    assert kinds["template"] / 600 == pytest.approx(source.settings.template_share, abs=0.06)
    names = {template.name for template in HELD_OUT}
    for task in tasks:
        assert (task.metadata["holdout"] == "template") == bool(names & set(task.metadata["templates"]))
    assert "holdout" not in source.task(source.ids("train")[0]).metadata


def test_another_seed_divides_otherwise() -> None:
    one, two = (overlap(ExerciseSettings(seed=seed)) for seed in (0, 1))
    assert one.training_bodies != two.training_bodies or one.function_bodies != two.function_bodies


def test_pretraining_documents_show_no_held_out_template(source: ExerciseSource) -> None:
    texts = list(itertools.islice(documents(source.settings, 5), 1500))
    fixed = [template.spec.split("$")[0].strip() for template in HELD_OUT]
    marks = {"text with", "number but at least", "list of first of pair if"} & set(fixed)
    for mark in marks - {"text with"}:
        assert not any(f"# {mark}" in text for text in texts)
    assert not any("left out" in text for text in texts)
    assert texts == list(itertools.islice(documents(source.settings, 5), 1500))


def test_documents_repeat_what_they_show() -> None:
    """Whole lines occur twice in most documents (a quarter are corrections: the line comes again but for a token)."""
    repeated = 0
    texts = list(itertools.islice(documents(ExerciseSettings(), 0), 400))
    for text in texts:
        lines = Counter(line.strip() for line in text.splitlines() if len(line.strip()) > 4)
        repeated += any(count > 1 for count in lines.values())
    assert repeated / len(texts) > 0.65

"""What is held out is never seen in training, by function and by template, and the figure is stated."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from etude.tasks.generate.exercises.catalogue import HELD_OUT, TRAINING, VALIDATION
from etude.tasks.generate.exercises.documents import documents
from etude.tasks.generate.exercises.overlap import overlap, seen_share, shared_with_validation, target_bodies
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.task import Split


def test_held_out_pools_share_no_body_with_training(source: ExerciseSource) -> None:
    figures = overlap(source.settings)
    print(figures.statement())
    for split in (figures.heldout, figures.validation):
        assert split.function_overlap == split.template_overlap == 0.0
        assert min(split.function_bodies, split.template_bodies) > 80
    assert figures.heldout_in_validation == 0.0
    validation = figures.validation.function_bodies
    assert 0.05 < validation / (validation + figures.training_bodies) < 0.15


@pytest.mark.parametrize("level", LEVELS)
def test_no_target_of_a_held_out_task_is_a_training_body(source: ExerciseSource, level: str) -> None:
    heldout, validation, training = (
        [source.task(task_id) for task_id in source.ids(split, level=level)[:40]]
        for split in ("heldout", "validation", "train")
    )
    assert seen_share(source, heldout) == seen_share(source, validation) == 0.0
    assert seen_share(source, training) == 1.0
    assert shared_with_validation(source, heldout) == shared_with_validation(source, training) == 0.0
    assert shared_with_validation(source, validation) == 1.0
    assert all(target_bodies(task) for task in heldout)


def test_validation_and_held_out_repositories_differ_everywhere(source: ExerciseSource) -> None:
    """No task number gives the same repository in two splits."""
    for number in range(100):
        ids = [source.ids(split, level="one-bug")[number] for split in ("train", "validation", "heldout")]
        texts = {tuple(sorted(source.task(task_id).files.items())) for task_id in ids}
        assert len(texts) == 3


@pytest.mark.parametrize(("split", "templates"), [("heldout", HELD_OUT), ("validation", VALIDATION)])
def test_an_unseen_task_says_how_it_is_held_out(source: ExerciseSource, split: Split, templates) -> None:
    tasks = [source.task(task_id) for task_id in source.ids(split)[:600]]
    kinds = Counter(task.metadata["holdout"] for task in tasks)
    assert kinds["template"] / 600 == pytest.approx(source.settings.template_share, abs=0.06)
    names = {template.name for template in templates}
    for task in tasks:
        assert (task.metadata["holdout"] == "template") == bool(names & set(task.metadata["templates"]))
    assert "holdout" not in source.task(source.ids("train")[0]).metadata


def test_another_seed_divides_otherwise() -> None:
    one, two = (overlap(ExerciseSettings(seed=seed)) for seed in (0, 1))
    assert (
        one.training_bodies != two.training_bodies or one.validation.function_bodies != two.validation.function_bodies
    )


def test_pretraining_documents_show_no_held_out_template(source: ExerciseSource) -> None:
    texts = list(itertools.islice(documents(source.settings, 5), 1500))
    seen = {template.spec.split("$")[0] for template in TRAINING}
    marks = {template.spec.split("$")[0] for template in (*HELD_OUT, *VALIDATION)} - seen
    marks = {mark for mark in marks if not any(known.startswith(mark) for known in seen)}
    assert len(marks) >= 10
    for mark in marks:
        assert not any(f"# {mark}" in text for text in texts), mark
    assert texts == list(itertools.islice(documents(source.settings, 5), 1500))


def test_documents_repeat_what_they_show() -> None:
    """Whole lines occur twice in most documents (a quarter are corrections: the line comes again but for a token)."""
    repeated = 0
    texts = list(itertools.islice(documents(ExerciseSettings(), 0), 400))
    for text in texts:
        lines = Counter(line.strip() for line in text.splitlines() if len(line.strip()) > 4)
        repeated += any(count > 1 for count in lines.values())
    assert repeated / len(texts) > 0.65

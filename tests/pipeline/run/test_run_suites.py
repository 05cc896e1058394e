"""What the bench asks is published by those who make it and refused by the corpus: nothing is learnt from the tasks that are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.learn.corpus.fingerprints import Fingerprints
from etude.tasks.generate.exercises import catalogue, heldout_functions, published
from etude.tasks.generate.exercises.documents import documents
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.real import published as real
from etude.tasks.real.catalogue import bugs


@pytest.fixture(scope="module")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Fingerprints:
    folder = tmp_path_factory.mktemp("suites")
    return Fingerprints.load([publish(folder)[0] for publish in (published.publish, real.publish)])


def test_files_that_hold_the_held_out_functions_are_refused(suites: Fingerprints) -> None:
    for module in (heldout_functions, catalogue):
        reason = suites.refusal("somebody", Path(str(module.__file__)).read_text())
        assert reason is not None and reason.startswith("in suite exercises")


def test_every_held_out_function_of_some_length_is_found_alone(suites: Fingerprints) -> None:
    texts = list(published.published_texts())
    found = [suites.refusal("somebody", f"import os\n\n\n{text}\n\n\ndef other():\n    return 1\n") for text in texts]
    assert sum(reason is not None for reason in found) >= 0.95 * len(texts)


def test_what_is_trained_on_is_not_refused(suites: Fingerprints) -> None:
    stream = documents(ExerciseSettings(), seed=0)
    refused = [text for text in (next(stream) for _ in range(300)) if suites.refusal("exercises", text)]
    assert not refused


def test_the_packages_with_bugs_are_refused_as_a_whole_and_long_mended_lines_anywhere(suites: Fingerprints) -> None:
    for bug in bugs().values():
        assert suites.refusal(bug.package.pin.name, "x = 1\n") == "project in suite real-bugs"
        for edit in bug.edits:
            if len(edit.old.split()) > 40:
                assert (suites.refusal("a-fork", edit.old) or "").startswith("in suite real-bugs")


def test_a_file_once_published_is_published_alike(tmp_path: Path) -> None:
    one, two = (published.publish(tmp_path / name)[0].read_bytes() for name in ("a", "b"))
    assert one == two

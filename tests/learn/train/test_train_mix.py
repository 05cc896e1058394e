"""Shares of a phase's tokens follow its settings; what the corpus lacks is reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.learn.train.mix import NoDocuments, mix_of
from etude.learn.train.settings import PhaseSettings

FOLDERS = ("a.files", "a.projects", "a.changes", "a.lookups", "b.files", "b.projects", "b.lookups", "exercises.files")
SHARE = st.floats(0.01, 0.3)


def phase(**settings: object) -> PhaseSettings:
    return PhaseSettings.model_validate(settings)


def test_without_a_mix_the_sources_have_the_corpus_weights() -> None:
    mix = mix_of([phase()], FOLDERS, {"a": 2.0, "exercises": 5.0})
    assert mix.shares == pytest.approx({"a.files": 0.25, "b.files": 0.125, "exercises.files": 0.625})
    assert mix.missing == ()


def test_a_mix_takes_its_sources_alone() -> None:
    mix = mix_of([phase(form="projects", mix={"a": 3, "b": 1})], FOLDERS, {"a": 100.0})
    assert mix.shares == pytest.approx({"a.projects": 0.75, "b.projects": 0.25})


@given(changes=SHARE, lookups=SHARE, replay=SHARE)
def test_forms_and_replay_have_their_shares_of_the_tokens(changes: float, lookups: float, replay: float) -> None:
    long = phase(form="projects", changes=changes, lookups=lookups, replay=replay)
    shares = mix_of([phase(), long], FOLDERS, {}).shares
    assert sum(shares.values()) == pytest.approx(1)
    of_form = {
        form: sum(s for name, s in shares.items() if name.endswith(form)) for form in ("changes", "lookups", "files")
    }
    assert of_form == pytest.approx({"changes": changes, "lookups": lookups, "files": replay})


def test_replay_reaches_back_through_phases() -> None:
    phases = [phase(mix={"a": 1}), phase(mix={"b": 1}, replay=0.5), phase(form="projects", mix={"a": 1}, replay=0.5)]
    shares = mix_of(phases, FOLDERS, {}).shares
    assert shares == pytest.approx({"a.files": 0.25, "b.files": 0.25, "a.projects": 0.5})


def test_what_the_corpus_lacks_is_reported_and_its_share_goes_to_the_rest() -> None:
    mix = mix_of([phase(mix={"a": 1, "offline": 1}, lookups=0.5, changes=0.2)], ("a.files",), {})
    assert mix.shares == {"a.files": 1.0}
    assert mix.missing == ("source offline has no files", "no source has changes", "no source has lookups")


def test_a_phase_without_any_document_is_refused() -> None:
    with pytest.raises(NoDocuments, match="no documents of form projects of x .mix.; it has a.files"):
        mix_of([phase(form="projects", mix={"x": 1})], ("a.files",), {})
    with pytest.raises(NoDocuments, match="no phase precedes"):
        mix_of([phase(replay=0.1)], FOLDERS, {})


def test_shares_that_leave_nothing_to_the_form_are_refused() -> None:
    with pytest.raises(ValueError, match="leave no share to files"):
        phase(changes=0.4, lookups=0.4, replay=0.2)
    with pytest.raises(ValueError, match="mix gives a no weight above 0"):
        phase(mix={"a": 0})

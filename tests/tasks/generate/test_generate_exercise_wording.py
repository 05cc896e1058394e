"""The requests of exercises in words and in sentences: another wording of the same task."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etude.tasks.cheats.exercise import aliased, nop
from etude.tasks.generate.exercises.source import LEVELS, ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings

WORDS, SENTENCES = (ExerciseSource(ExerciseSettings(wording=wording)) for wording in ("words", "sentences"))


@pytest.mark.parametrize("level", LEVELS)
def test_a_sentence_names_what_the_words_name_and_the_rest_of_the_task_is_the_same(level: str) -> None:
    for number in range(20):
        brief = WORDS.task(f"{level}/train/{number:06d}")
        whole = SENTENCES.task(brief.id)
        assert whole.instruction.endswith(".") and len(whole.instruction.split()) >= 8
        named = set(brief.instruction.split()) & {*brief.metadata["targets"], str(brief.hidden.get("old"))}
        assert named <= set(whole.instruction.rstrip(".").replace(",", "").split())
        assert replace(whole, instruction=brief.instruction) == brief


def test_the_default_is_in_words() -> None:
    assert ExerciseSource(ExerciseSettings()).task("rename/train/000001").instruction.split()[0] == "rename"


def test_a_rename_by_alias_is_the_same_cheat_in_both_wordings() -> None:
    brief, whole = (source.task("rename/train/000003") for source in (WORDS, SENTENCES))
    assert aliased(brief) == aliased(whole) != nop(brief)

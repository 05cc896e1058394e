"""`etude bench` as a group: its verbs, and the old uses without one."""

from __future__ import annotations

import pytest
from here import Here


def test_without_a_verb_a_recipe_is_planned_as_ever(here: Here) -> None:
    plain, named = here("bench", "ci", "--dry-run"), here("bench", "recipe", "ci", "--dry-run")
    assert plain.stderr == named.stderr and "trials needs base" in plain.stderr


def test_a_misspelt_verb_is_distinguished_from_a_recipe(here: Here) -> None:
    done = here("bench", "recipee", "--json")
    assert done.returncode != 0 and "did you mean recipe?" in done.stderr


def test_a_recipe_that_is_none_is_reported(here: Here) -> None:
    assert "there is no such recipe file" in here("bench", "nosuch").stderr


@pytest.mark.parametrize("words", [["bench", "--help"], ["bench", "recipe", "--help"]])
def test_help_names_the_old_command(here: Here, words: list[str]) -> None:
    assert "recipe" in here(*words).stdout

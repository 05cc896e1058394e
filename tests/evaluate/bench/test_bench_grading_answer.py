"""What a judge said is read strictly: exactly one object, the reason before the choice, the choice from the list; all else is an objection."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.grading.answer import Objection, read_answer

CHOICES = ("contradicted", "unbacked", "backed")


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("backed", "no JSON object"),
        ('{"choice": "backed", "reason": "r"}', "in this order"),
        ('{"reason": "r", "choice": "backed", "score": 1}', "exactly the keys"),
        ('{"reason": "r", "choice": "Backed"}', "literally"),
        ('{"reason": "r", "choice": ["backed"]}', "literally"),
        ('{"reason": " ", "choice": "backed"}', "a sentence"),
        ('{"reason": "r", "reason": "s", "choice": "backed"}', "no JSON object"),
        ('<think>{"reason": "draft", "choice": "backed"}</think>', "no JSON object"),
    ],
)
def test_what_is_not_exactly_an_answer_is_objected_to(text: str, wrong: str) -> None:
    with pytest.raises(Objection, match=wrong):
        read_answer(text, CHOICES)


@given(st.text(alphabet="}[]abc: ,\n"), st.text(min_size=1).filter(str.strip), st.sampled_from(CHOICES))
def test_an_answer_is_found_behind_any_words(before: str, reason: str, choice: str) -> None:
    assert read_answer(f"{before} {json.dumps({'reason': reason, 'choice': choice})} done", CHOICES) == (
        reason.strip(),
        choice,
    )


@given(st.text(alphabet='{}[]":, reasonchoicebackedu\\n<think>/', max_size=80) | st.text())
def test_no_text_at_all_gives_a_choice_that_is_not_in_the_list(text: str) -> None:
    try:
        reason, choice = read_answer(text, CHOICES)
    except Objection as objection:
        assert str(objection)
    else:
        assert choice in CHOICES and reason.strip() == reason != ""

"""What a judge said, read strictly: the first balanced JSON object with exactly the keys asked for, the reason before the choice,
the choice literally from the list. All else is an objection, never a score: a judge that rambles has not judged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

KEYS = ("reason", "choice")
# Thinking that an endpoint leaves in the text may hold drafts of the answer.
_THINKING = re.compile(r"^\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)


class Objection(ValueError):
    """Why an answer does not count, in words that the judge is shown."""


def read_answer(text: str, choices: Sequence[str]) -> tuple[str, str]:
    """Reason and choice; raises Objection."""
    found = list(objects(_THINKING.sub("", text)))
    answer = next((one for one in found if list(one) == list(KEYS)), None)
    if answer is None:
        if not found:
            raise Objection("there is no JSON object in your answer")
        raise Objection(
            f'the object must have exactly the keys "reason" and "choice" in this order, not {list(found[0])}'
        )
    reason, choice = answer["reason"], answer["choice"]
    if not isinstance(reason, str) or not reason.strip():
        raise Objection("the reason must be a sentence")
    if choice not in choices:
        raise Objection(
            f"the choice must be one of {json.dumps(list(choices))}, literally, not {json.dumps(choice)[:80]}"
        )
    return reason.strip(), choice


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that stand in a text, outermost ones, in order. One with a key twice is none."""
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):  # no object starts here
            end = at + 1
        else:
            yield value
        at = text.find("{", end)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a key appears twice")
    return row

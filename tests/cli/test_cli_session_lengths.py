"""How long a session was, in the words of `etude session list`."""

from __future__ import annotations

from typing import Any

import pytest

from etude.cli.session.gist import length_text

ENDPOINT = {"turns": 3, "sampled_tokens": 0, "output_tokens": 450, "segments": 0, "versions": []}
OWN = {"turns": 3, "sampled_tokens": 340, "output_tokens": 340, "segments": 2, "versions": [4, 5]}


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (ENDPOINT, "3 turns, 450 tokens"),
        (OWN, "3 turns, 340 tokens, 2 segments, versions 4-5"),
        ({**OWN, "versions": [-1]}, "3 turns, 340 tokens, 2 segments"),
    ],
)
def test_an_endpoints_session_has_the_tokens_that_it_counted_and_nothing_that_is_not_known(
    facts: dict[str, Any], text: str
) -> None:
    assert length_text(facts) == text

"""The budget: no attempt starts that may pass the cap, and what was set aside is given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.runs.purse import BudgetSpent, Purse, Word


@given(st.lists(st.integers(1, 10), min_size=1, max_size=40), st.integers(0, 120), st.integers(1, 5), st.randoms())
def test_when_the_first_attempt_is_the_dearest_the_cap_holds_however_many_are_in_flight(
    costs: list[int], cap: int, width: int, random
) -> None:
    costs.sort(reverse=True)
    purse, waiting, flying, started = Purse(float(cap)), list(enumerate(costs)), {}, 0
    while waiting or flying:
        word = purse.word("p") if waiting and len(flying) < width else Word.wait
        if word is Word.go:
            number, cost = waiting.pop(0)
            purse.start("p", str(number))
            flying[str(number)] = cost
            started += 1
        elif flying:  # someone ends
            name = random.choice(sorted(flying))
            try:
                purse.pay("p", name, float(flying.pop(name)))
            except BudgetSpent:
                assert started == 1  # only of the first was nothing known
                return
            purse.end("p", name)
        else:
            assert word is Word.stop
            break
        assert purse.spent <= cap
    if waiting:  # it stopped no earlier than it had to
        assert purse.spent + max(costs) > cap or purse.spent >= cap


def test_the_first_attempt_of_a_policy_goes_alone_to_be_seen() -> None:
    purse = Purse(10.0)
    assert purse.word("p") is Word.go
    purse.start("p", "a")
    assert purse.word("p") is Word.wait
    purse.pay("p", "a", 1.0)
    purse.end("p", "a")
    assert purse.word("p") is Word.go


def test_what_is_known_of_earlier_runs_counts() -> None:
    assert Purse(10.0, spent=9.5, dearest={"p": 1.0}).word("p") is Word.stop
    assert Purse(10.0, spent=9.0, dearest={"p": 1.0}).word("p") is Word.go
    assert "$9.5000 of --max-cost 10 are spent" in Purse(10.0, 9.5, {"p": 1.0}).why("p")


def test_an_attempt_that_runs_away_is_stopped_at_the_cap() -> None:
    purse = Purse(1.0)
    purse.start("p", "a")
    purse.pay("p", "a", 0.9)
    with pytest.raises(BudgetSpent, match=r"\$1.2000 of --max-cost 1"):
        purse.pay("p", "a", 0.3)


def test_without_a_cap_everything_goes() -> None:
    purse = Purse(None)
    purse.pay("p", "a", 1e9)
    assert purse.word("p") is Word.go

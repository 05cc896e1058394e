"""The budget: no attempt starts that may pass the cap, and what was set aside is given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.runs.budget import BudgetSpent, RunBudget
from etude.rollout.campaign import BudgetDecision


@given(st.lists(st.integers(1, 10), min_size=1, max_size=40), st.integers(0, 120), st.integers(1, 5), st.randoms())
def test_when_the_first_attempt_is_the_dearest_the_cap_holds_however_many_are_in_flight(
    costs: list[int], cap: int, width: int, random
) -> None:
    costs.sort(reverse=True)
    budget, waiting, flying, started = RunBudget(float(cap)), list(enumerate(costs)), {}, 0
    while waiting or flying:
        decision = budget.decide("p") if waiting and len(flying) < width else BudgetDecision.wait
        if decision is BudgetDecision.go:
            number, cost = waiting.pop(0)
            budget.start("p", str(number))
            flying[str(number)] = cost
            started += 1
        elif flying:  # someone ends
            name = random.choice(sorted(flying))
            try:
                budget.pay("p", name, float(flying.pop(name)))
            except BudgetSpent:
                assert started == 1  # only of the first was nothing known
                return
            budget.end("p", name)
        else:
            assert decision is BudgetDecision.stop
            break
        assert budget.spent <= cap
    if waiting:  # it stopped no earlier than it had to
        assert budget.spent + max(costs) > cap or budget.spent >= cap


def test_the_first_attempt_of_a_policy_goes_alone_to_be_seen() -> None:
    budget = RunBudget(10.0)
    assert budget.decide("p") is BudgetDecision.go
    budget.start("p", "a")
    assert budget.decide("p") is BudgetDecision.wait
    budget.pay("p", "a", 1.0)
    budget.end("p", "a")
    assert budget.decide("p") is BudgetDecision.go


def test_what_is_known_of_earlier_runs_counts() -> None:
    assert RunBudget(10.0, spent=9.5, dearest={"p": 1.0}).decide("p") is BudgetDecision.stop
    assert RunBudget(10.0, spent=9.0, dearest={"p": 1.0}).decide("p") is BudgetDecision.go
    assert "$9.5000 of --max-cost 10 are spent" in RunBudget(10.0, 9.5, {"p": 1.0}).stop_reason("p")


def test_an_attempt_that_runs_away_is_stopped_at_the_cap() -> None:
    budget = RunBudget(1.0)
    budget.start("p", "a")
    budget.pay("p", "a", 0.9)
    with pytest.raises(BudgetSpent, match=r"\$1.2000 of --max-cost 1"):
        budget.pay("p", "a", 0.3)


def test_without_a_cap_everything_goes() -> None:
    budget = RunBudget(None)
    budget.pay("p", "a", 1e9)
    assert budget.decide("p") is BudgetDecision.go

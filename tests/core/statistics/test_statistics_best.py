"""Best-of-k and pass@k against all subsets, counted one by one in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.statistics.best import best_of, pass_at_k

K_MOST = 16


@given(st.lists(st.integers(0, 8), min_size=1, max_size=9))
def test_best_of_k_is_the_mean_over_all_subsets_to_1e_9(eighths: list[int]) -> None:
    for k in range(1, len(eighths) + 1):
        subsets = list(combinations(eighths, k))
        exact = Fraction(sum(max(subset) for subset in subsets), 8 * len(subsets))
        assert abs(best_of(np.array([eighths]) / 8, k)[0] - exact) < 1e-9


@pytest.mark.parametrize("correct", range(K_MOST + 1))
def test_pass_at_k_of_16_passes_is_the_share_of_subsets_that_hold_a_success(correct: int) -> None:
    passes = [1] * correct + [0] * (K_MOST - correct)
    for k in range(1, K_MOST + 1):
        subsets = list(combinations(passes, k))
        exact = Fraction(sum(any(subset) for subset in subsets), len(subsets))
        assert abs(float(pass_at_k(correct, K_MOST, k)) - exact) < 1e-9
        assert abs(best_of(np.array([passes], float), k)[0] - exact) < 1e-9


def test_pass_at_k_of_ten_thousand_attempts_neither_overflows_nor_leaves_the_unit_interval() -> None:
    found = pass_at_k(np.arange(0, 10_001, 100), 10_000, 16)
    assert found[0] == 0 and found[-1] == 1 and (np.diff(found) >= 0).all()


def test_tasks_may_differ_in_attempts_but_none_may_have_fewer_than_k() -> None:
    assert pass_at_k([1, 1], [2, 4], 2) == pytest.approx([1.0, 0.5])
    with pytest.raises(ValueError, match="at least 3 attempts a task; the fewest are 2"):
        pass_at_k([1, 1], [2, 4], 3)
    with pytest.raises(ValueError, match="whole numbers from 0"):
        pass_at_k([0.5], [2], 1)
    with pytest.raises(ValueError, match="whole numbers from 0"):
        pass_at_k([3], [2], 1)

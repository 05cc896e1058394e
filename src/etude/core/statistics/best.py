"""What several attempts are worth: the expected best of k, and the chance that one of k solves, both without bias.

Choosing the best of all K passes would flatter policies with many passes; the expectation over all k-subsets does not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def best_of(scores: np.ndarray, k: int) -> np.ndarray:
    """Expected best score of k of the K passes drawn without replacement, per task: (N, K) -> (N,).

    With scores sorted ascending s_1..s_K, the maximum of a random k-subset is s_i with probability C(i-1, k-1) / C(K, k).
    For scores of 0 and 1 this is `pass_at_k`.
    """
    n_passes = scores.shape[1]
    if not 1 <= k <= n_passes:
        raise ValueError(f"best-of-{k} needs at least {k} passes a task; there are {n_passes}")
    weights = np.zeros(n_passes)
    weights[-1] = k / n_passes
    for i in range(n_passes - 2, k - 2, -1):  # C(i, k-1) / C(K, k), each from the one above it: no large binomials
        weights[i] = weights[i + 1] * (i + 1 - (k - 1)) / (i + 1)
    return np.sort(scores, axis=1) @ weights


def pass_at_k(correct: ArrayLike, total: ArrayLike, k: int) -> np.ndarray:
    """Chance that at least one of k attempts solves, from `correct` of `total` seen, per task: 1 - C(n - c, k) / C(n, k).

    The unbiased estimate of Chen et al. 2021 (arXiv 2107.03374, section 2.1), as a product of ratios: no large binomials.
    `correct` and `total` are broadcast against each other; the result has their shape.
    """
    solved, attempts = np.broadcast_arrays(np.asarray(correct, float), np.asarray(total, float))
    if k < 1 or (attempts < k).any():
        raise ValueError(f"pass@{k} needs at least {max(k, 1)} attempts a task; the fewest are {attempts.min():g}")
    if (solved < 0).any() or (solved > attempts).any() or (solved % 1).any():
        raise ValueError("pass@k counts attempts that solved: whole numbers from 0 to the attempts made")
    missed = np.ones(solved.shape)
    for i in range(k):  # the i-th draw misses too: it is one of the misses left among the attempts left
        missed = missed * np.maximum(attempts - solved - i, 0) / (attempts - i)
    return 1 - missed


def powers_of_two(limit: int) -> list[int]:
    """1, 2, 4 ... up to `limit`: the k at which best-of-k is reported."""
    ks = [1]
    while ks[-1] * 2 <= limit:
        ks.append(ks[-1] * 2)
    return ks

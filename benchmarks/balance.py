"""How evenly a batch is dealt to trainer ranks: by cost (`learn/train/balance.py`) against round-robin over rollouts, heavy-tailed lengths.

    python benchmarks/balance.py [--ranks 2 4 8] [--batches 50]

Groups of 8 attempts whose lengths are Pareto (shape 1.2, cut at 64 times the shortest) behind a prompt they share. Figures: cost of the
fullest rank over the mean, median and worst of the batches, by the model's own multiply-adds; the same over what no dealing can go
below, the dearest segment alone; all the work over that of one rank, for cut groups run their common beginnings more than once;
and the time the dealing takes.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from etude.core.trace.segment import Rollout, Segment
from etude.learn.model.config import ModelConfig
from etude.learn.model.count import ComputeCost
from etude.learn.model.settings import ModelSettings
from etude.learn.train.balance import bundles, dealt, imbalance, rows_to_train

PROMPT, SHORTEST, TAIL, GROUPS, SIZE = 300, 200, 1.2, 16, 8


def a_batch(rng: np.random.Generator) -> list[Rollout]:
    """GROUPS x SIZE rollouts of one segment each."""
    out: list[Rollout] = []
    for group in range(GROUPS):
        prompt = rng.integers(0, 30_000, PROMPT)
        for n in range(SIZE):
            tail = int(SHORTEST * min(1 + rng.pareto(TAIL), 64.0))
            ids = np.concatenate((prompt, rng.integers(0, 30_000, tail))).astype(np.int32)
            sampled = np.arange(len(ids)) >= PROMPT
            zeros = np.zeros(len(ids), np.float32)
            out.append(
                Rollout(f"{group}.{n}", "t", group, [Segment(ids, sampled, zeros, np.zeros(len(ids), np.int32), None)])
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--batches", type=int, default=50)
    options = parser.parse_args()
    cost = ComputeCost.of_model(ModelConfig.from_settings(ModelSettings.model_validate({}), 2048))
    rng = np.random.default_rng(0)
    batches = [a_batch(rng) for _ in range(options.batches)]
    whole = [sum(bundle.cost for bundle in bundles(batch, cost, 1)) for batch in batches]
    print(f"multiply-adds: {cost.token:.3g} a token, {cost.pair:.3g} a pair")
    print(
        "| ranks | by cost, median | worst | over the floor, worst | round-robin, median | worst | more work | dealing |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for ranks in options.ranks:
        ours, over, naive, more, times = [], [], [], [], []
        for batch, least in zip(batches, whole, strict=True):
            begun = time.perf_counter()
            found = dealt(batch, cost, ranks)
            times.append(time.perf_counter() - begun)
            ours.append(found.imbalance)
            alone = [cost.of(len(batch[r].segments[s]), [len(batch[r].segments[s])]) for r, s in rows_to_train(batch)]
            over.append(found.imbalance / max(1.0, max(alone) * ranks / sum(alone)))
            naive.append(imbalance(alone, [list(range(rank, len(alone), ranks)) for rank in range(ranks)]))
            more.append(sum(bundle.cost for bundle in bundles(batch, cost, ranks)) / least)
        cells = [
            f"{x:.3f}" for x in (np.median(ours), max(ours), max(over), np.median(naive), max(naive), np.median(more))
        ]
        print(f"| {ranks} | {' | '.join(cells)} | {np.median(times) * 1e3:.1f} ms |")


if __name__ == "__main__":
    main()

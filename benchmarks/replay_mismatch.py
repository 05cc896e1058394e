"""What replaying the sampler's experts is worth, token by token: `python benchmarks/replay_mismatch.py --runs runs/learning`.

Trains the recorded batches of runs of `learning.py` that replay again, from the committed SFT checkpoint, to the same digests as then, and
scores each batch with the same weights both ways before it learns from it. So both columns are of the very same tokens, which arms that are
trained apart can't offer: p99 of |dlogp| between sampler and trainer and mean k3, by the precision that the engine's weights were rounded to
and by the age of a token (versions between sampling and training); the ratio's interval resamples groups. A run of 20 steps takes two
minutes of one core.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.core.trace.segment import Rollout
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.replay import ReplayCounts
from etude.learn.weights.state import state_digest
from etude.pipeline.recipe.read import read_recipe
from etude.pipeline.run.machine import machine, versions
from etude.rl.ledger import RlLedger
from etude.rl.steps import read
from etude.rl.store import GroupStore

HERE = Path(__file__).parent
CHECKPOINT = HERE.parent / "checkpoints" / "sft-nano"
ARMS = ("base", "bf16", "mxfp8")
AGES = (1, 2, 3)
REDRAWS = 500
FEWEST = 2_000  # tokens of an age: a p99 of less is a handful of tokens


@dataclass(frozen=True)
class Gaps:
    """|dlogp| of one group's sampled tokens of one age, and the two terms of k3."""

    replayed: np.ndarray
    plain: np.ndarray


def again(folder: Path) -> tuple[dict[int, list[Gaps]], ReplayCounts]:
    """Repeats the run's training and returns gaps by age. Raises ValueError where its weights differ from the run's."""
    recipe, rl = read_recipe([folder / "recipe.toml"]), folder / "rl"
    update = recipe.rl.update.model_copy(update={"unreplayed_every": 1, "temperature": recipe.harness.temperature})
    torch.set_num_threads(recipe.rl.threads)
    trainer = PolicyTrainer(load_checkpoint(CHECKPOINT), None, update, recipe.rl.steps)
    digests = [entry["digest"] for entry in RlLedger(rl / "ledger.jsonl").entries if entry["kind"] == "trained"]
    store, found, counts = GroupStore(rl / "groups"), defaultdict[int, list[Gaps]](list), ReplayCounts()
    for record in read(rl / "steps.jsonl"):
        groups = [store.load(group) for group in record.groups]
        rollouts = [rollout for group in groups for rollout in group]
        scores = trainer.score(rollouts, with_reference=False)
        assert scores.unreplayed is not None, "every step is scored both ways"
        first = 0
        for group in groups:
            span = slice(first, first + len(group))
            for age, gaps in by_age(group, scores.current[span], scores.unreplayed[span], record.step).items():
                found[age].append(gaps)
            first += len(group)
        counts = added(counts, scores.replay)
        trainer.update(rollouts, record.advantages, scores)
        if (digest := state_digest(trainer.model.state_dict())) != digests[record.step]:
            raise ValueError(f"{folder}: step {record.step} came to {digest[:12]}, then to {digests[record.step][:12]}")
    return found, counts


def by_age(
    group: list[Rollout], current: list[list[np.ndarray]], plain: list[list[np.ndarray]], step: int
) -> dict[int, Gaps]:
    """A group's tokens by their age at `step`."""
    segments = [segment for rollout in group for segment in rollout.segments]
    sampled = [segment.sampled for segment in segments]
    ages = np.concatenate([step - s.versions[s.sampled] for s in segments])
    theirs = np.concatenate([s.logprobs[s.sampled] for s in segments])
    with_replay, without = (
        np.concatenate([values[mask] for values, mask in zip([v for row in both for v in row], sampled, strict=True)])
        - theirs
        for both in (current, plain)
    )
    return {int(age): Gaps(with_replay[ages == age], without[ages == age]) for age in np.unique(ages)}


def added(one: ReplayCounts, other: ReplayCounts) -> ReplayCounts:
    return ReplayCounts(one.replayed + other.replayed, one.replaced + other.replaced, one.agreed + other.agreed)


def row(arm: str, age: int, groups: list[Gaps]) -> dict[str, Any]:
    """Both ways, and their ratio with its interval."""
    rng = np.random.default_rng(age)
    draws = [_p99s([groups[n] for n in rng.choice(len(groups), len(groups))]) for _ in range(REDRAWS)]
    low, high = np.quantile([plain / replayed for replayed, plain in draws], [0.025, 0.975])
    replayed, plain = _p99s(groups)
    k3 = [_k3(np.concatenate([getattr(g, name) for g in groups])) for name in ("replayed", "plain")]
    return {
        "arm": arm, "age": age, "tokens": sum(len(g.plain) for g in groups), "groups": len(groups),
        "p99_on": round(replayed, 5), "p99_off": round(plain, 5), "off_over_on": round(plain / replayed, 4),
        "ci95": [round(float(low), 4), round(float(high), 4)], "k3_on": round(k3[0], 7), "k3_off": round(k3[1], 7),
    }  # fmt: skip


def _p99s(groups: Iterable[Gaps]) -> tuple[float, float]:
    chosen = list(groups)
    replayed, plain = (np.abs(np.concatenate([getattr(g, n) for g in chosen])) for n in ("replayed", "plain"))
    return float(np.quantile(replayed, 0.99)), float(np.quantile(plain, 0.99))


def _k3(log_r: np.ndarray) -> float:
    wide = log_r.astype(np.float64)
    return float((np.expm1(wide) - wide).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"), help="where learning.py put its runs")
    parser.add_argument("--only", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "replay_mismatch.json")
    options = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "versions": versions(), "rows": [], "routes": {}}
    for arm in options.only:
        folders = sorted(path.parent.parent for path in (options.runs / arm).glob("seed-*/rl/summary.json"))
        gaps, total = defaultdict[int, list[Gaps]](list), ReplayCounts()
        for folder in folders:
            found, counts = again(folder)
            for age, groups in found.items():
                gaps[age] += groups
            total = added(total, counts)
            print(f"{folder}: trained again to the same digests", flush=True)
        kept = {age: gaps[age] for age in AGES if sum(len(g.plain) for g in gaps[age]) >= FEWEST}
        result["rows"] += [row(arm, age, groups) for age, groups in kept.items()]
        if folders:
            replaced = total.replaced / total.replayed
            result["routes"][arm] = {
                "seeds": len(folders),
                "agreement": round(total.agreement, 5),
                "replaced": round(replaced, 6),
            }
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    for line in result["rows"]:
        print(json.dumps(line))


if __name__ == "__main__":
    main()

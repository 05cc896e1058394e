"""A run as RL leaves it, made from a seed in no time: groups, steps, gaps, kept sessions, events, weights. Used by the board's tests
and by `benchmarks/report_board.py`, which makes large ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from etude.core.trace.gap_file import write_gaps
from etude.core.trace.group_file import pack_group
from etude.core.trace.segment import Rollout, Segment

LEVELS = ("one-bug", "two-bugs", "feature", "rename")
VOCABULARY = 512
GROUPS_A_STEP = 4


def make_run(
    run: Path, groups: int = 8, size: int = 4, tokens: int = 60, *, seed: int = 0, trained: int | None = None
) -> Path:
    """`trained` groups (default: all) have their step; every fourth rollout was cut by a self-summary."""
    rng = np.random.default_rng(seed)
    folder = run / "rl"
    (folder / "groups").mkdir(parents=True, exist_ok=True)
    (folder / "sessions").mkdir(exist_ok=True)
    (run / "recipe.toml").write_text('[run]\nname = "synthetic"\n')
    words = [f"w{n} " if n % 9 else f"w{n}\n" for n in range(VOCABULARY)]
    (folder / "sessions" / "vocabulary.json").write_text(json.dumps(words))
    steps = []
    for group in range(groups):
        rollouts = [rollout(rng, group, member, tokens) for member in range(size)]
        part = folder / "groups" / "part.tmp"  # renamed into its place, as RL's store does
        part.write_bytes(pack_group(rollouts))
        part.rename(part.with_name(f"{group:06d}.zst"))
        if group < (groups if trained is None else trained):
            write_gaps(folder / "gaps" / f"{group:06d}.npy", [gap(rng, r) for r in rollouts])
            steps.append((group, rollouts))
    with (folder / "steps.jsonl").open("w") as file, (run / "events.jsonl").open("w") as events:
        for step in range(0, len(steps) // GROUPS_A_STEP):
            record, values = trained_step(step, steps[step * GROUPS_A_STEP : (step + 1) * GROUPS_A_STEP])
            file.write(json.dumps(record) + "\n")
            events.write(
                json.dumps({"time": step + 1.0, "kind": "metric", "stage": "rl", "step": step, "values": values}) + "\n"
            )
        events.write(
            json.dumps({"time": 9.0, "kind": "note", "stage": "rl", "text": "the engine was started again"}) + "\n"
        )
    weights(folder / "weights", len(steps) // GROUPS_A_STEP)
    return run


def rollout(rng: np.random.Generator, group: int, member: int, tokens: int) -> Rollout:
    """About `tokens` tokens, a third of them sampled in turns."""
    level = LEVELS[group % len(LEVELS)]
    cuts = [tokens // 2, tokens - tokens // 2] if member % 4 == 3 else [tokens]
    solved = float(rng.random() < 0.2 + 0.6 * min(1.0, group / 200))
    tools = {f"calls_{name}": float(rng.integers(0, 4)) for name in ("edit", "grep", "view", "test")}
    counters = {"turns": 6.0, "calls": sum(tools.values()), "failed_calls": 1.0, "malformed_turns": 0.0, **tools}
    info = {"end": "done" if solved else "max_turns", "verdict": "" if solved else "failed t.f/0", "tries": 1}
    info |= {"seconds": {"all": 3.0, "create": 0.1, "policy": 2.0, "tools": 0.5, "grade": 0.4}}
    info |= {"began_unix_s": 1_700_000_000 + 2 * group + member / 10} | ({"host": "b"} if group % 3 == 0 else {})
    if group % 5 == 4 and member == 0:
        info |= {"tries": 2, "faults": ["SandboxLost"]}
    name = f"{level}/train/{group:06d}"
    segments = [segment(rng, length, group // GROUPS_A_STEP) for length in cuts]
    return Rollout(f"{name}#{group}.{member}", name, group, segments, {"outcome": solved}, counters, info)


def segment(rng: np.random.Generator, length: int, version: int) -> Segment:
    sampled = (np.arange(length) // 8) % 3 == 2
    logprobs = np.where(sampled, -rng.exponential(0.3, length), 0.0).astype(np.float32)
    versions = np.where(sampled, version + (np.arange(length) > length // 2), -1).astype(np.int32)
    return Segment(rng.integers(0, VOCABULARY, length).astype(np.int32), sampled, logprobs, versions)


def gap(rng: np.random.Generator, found: Rollout) -> np.ndarray:
    return rng.normal(0, 0.01, sum(int(s.sampled.sum()) for s in found.segments))


def trained_step(step: int, groups: list[tuple[int, list[Rollout]]]) -> tuple[dict, dict]:
    """A line of steps.jsonl, and the metrics of the step."""
    parts = [{"outcome": r.rewards["outcome"], "length": -0.05} for _, rollouts in groups for r in rollouts]
    means = [float(np.mean([r.rewards["outcome"] for r in rollouts])) for _, rollouts in groups for _ in rollouts]
    advantages = [part["outcome"] - mean for part, mean in zip(parts, means, strict=True)]
    rate = float(np.mean([part["outcome"] for part in parts]))
    values = {"pass_rate": rate, "reward": rate - 0.05, "delta_ratio": 0.5, "delta_bytes": 1e6, "sync_s": 0.2}
    record = {"step": step, "groups": [group for group, _ in groups], "values": values, "versions": {str(step): 100}}
    return record | {"components": parts, "advantages": advantages}, values


def weights(folder: Path, versions: int) -> None:
    folder.mkdir(exist_ok=True)
    entries = [
        {"version": n, "base": n - 1 if n else None, "bytes": 10**6 if n else 4 * 10**6, "raw_bytes": 5 * 10**6}
        for n in range(versions + 1)
    ]
    (folder / "index.json").write_text(json.dumps({"format": 1, "entries": entries}))

"""Tiny models, and rollouts as they would sample them."""

from __future__ import annotations

import numpy as np
import torch

from etude.core.trace.segment import NO_ROUTE, Rollout, Segment
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings

VOCABULARY = 40


def tiny_model(seed=0, family="deepseek_v3"):
    settings = ModelSettings(
        family=family, hidden_size=32, layers=3, heads=2, kv_lora_rank=16, nope_dim=8, rope_dim=4, v_dim=8, kv_heads=1,
        head_dim=8, dense_intermediate=48, moe_intermediate=16, experts=4, experts_per_token=2, seed=seed,
        init_head_std=0.3,
    )  # fmt: skip
    return new_model(settings, VOCABULARY)


@torch.inference_mode()
def sampled_segment(model, ids, sampled, version=0):
    """A segment as an engine would have recorded it: logprobs and routes of this model, no route for the last token."""
    tensor = torch.as_tensor(np.asarray(ids))[None].long()
    out = model(tensor, return_routes=True)
    logprobs = torch.log_softmax(out.logits[0, :-1], -1).gather(-1, tensor[0, 1:, None])[:, 0].numpy()
    sampled = np.asarray(sampled, bool)
    routes = out.routes[0].numpy().copy()
    routes[-1] = NO_ROUTE
    return Segment(
        ids=np.asarray(ids, np.int32),
        sampled=sampled,
        logprobs=np.where(sampled, np.concatenate(([0.0], logprobs)), 0.0).astype(np.float32),
        versions=np.where(sampled, version, -1).astype(np.int32),
        routes=routes,
    )


def random_rollouts(model, count, seed=0, version=0):
    """Groups of four; every second rollout begins like the one before it, as attempts at one task do."""
    rng = np.random.default_rng(seed)
    rollouts, last = [], np.empty(0, np.int64)
    for i in range(count):
        length = int(rng.integers(8, 30))
        ids = rng.integers(0, VOCABULARY, length)
        if i % 2:
            shared = min(int(rng.integers(2, 20)), length, len(last))
            ids[:shared] = last[:shared]
        sampled = np.concatenate((np.zeros(3, bool), rng.random(length - 3) < 0.6))
        segment = sampled_segment(model, ids, sampled, version)
        rollouts.append(Rollout(id=str(i), task_id="t", group=i // 4, segments=[segment]))
        last = ids
    return rollouts

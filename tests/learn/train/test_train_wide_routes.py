"""Replay takes every expert that a model may have: an id is never read as the marker "no route", and a marker never as an id."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from etude.agent.policy.protocol import Request
from etude.core.trace.block import pack_routes, unpack_routes
from etude.core.trace.builder import merge_routes
from etude.core.trace.entry import EntryRoutes
from etude.core.trace.group_file import pack_group, unpack_group
from etude.core.trace.rollout_codec import rollout_from_bytes, rollout_to_bytes
from etude.core.trace.segment import NO_ROUTE, NO_ROUTE_WIDE, Rollout, Segment, no_route, route_mask, wide_routes
from etude.learn.engine.core import EngineCore
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.settings import PolicyStepSettings
from etude.rl.metrics import step_values

EXPERTS = (254, 255, 256, 257, 384, 512)
VOCABULARY = 61


def model_of(experts: int, family: str = "deepseek_v3"):
    settings = ModelSettings.model_validate(
        dict(
            family=family,
            hidden_size=16,
            layers=3,
            heads=2,
            kv_lora_rank=8,
            nope_dim=4,
            rope_dim=4,
            v_dim=4,
            kv_heads=1,
            head_dim=8,
        )
        | dict(
            dense_intermediate=16,
            moe_intermediate=4,
            experts=experts,
            experts_per_token=3,
            max_positions=64,
            init_head_std=0.3,
        )
    )
    model = new_model(settings, VOCABULARY)
    with torch.no_grad():  # the router likes the last experts, whose ids are next to the markers
        for name, weight in model.named_parameters():
            if name.endswith("router.weight"):
                weight.mul_(0.01)
        for name, bias in model.named_buffers():
            if name.endswith("router.bias"):
                bias[-4:] = 0.05
    return model


def sampled(model, name: str) -> Segment:
    core = EngineCore(model, EngineSettings(max_slots=2, max_batch=2, max_len=48))
    ticket, tokens = core.submit(Request(name, (), prompt_ids=tuple(range(5)), max_tokens=9, seed=1)), None
    while core.busy:
        tokens = dict(core.step()).get(ticket, tokens)
    found = tokens.tokens
    ids = np.array([*range(5), *found.ids], np.int32)
    logprobs, versions = np.zeros(len(ids), np.float32), np.full(len(ids), -1, np.int32)
    logprobs[5:], versions[5:] = found.logprobs, found.versions
    return Segment(
        ids, np.arange(len(ids)) >= 5, logprobs, versions, merge_routes([(found.route_start, found.routes)], len(ids))
    )


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
@pytest.mark.parametrize("experts", EXPERTS)
def test_a_step_replays_what_the_engine_routed(experts, family):
    model = model_of(experts, family)
    rollouts = [Rollout(str(n), "t", 0, [sampled(model, str(n))], {"outcome": float(n)}) for n in range(2)]
    routes = rollouts[0].segments[0].routes
    assert routes is not None and routes.dtype == (np.uint8 if experts <= 255 else np.uint16)
    assert not route_mask(routes[-1]).any() and route_mask(routes[:-1]).all()
    if family == "deepseek_v3":
        assert routes[:-1].max() == experts - 1
    trainer = PolicyTrainer(model, None, PolicyStepSettings.model_validate({"replay_ratio": 0.0}))
    scores = trainer.score(rollouts)
    tokens = int(route_mask(routes)[:, 0, 0].sum())
    assert (
        scores.mismatch.k3 < 1e-9 and scores.replay.replayed == routes[:tokens].size
    )  # one tree: both share every token
    trainer.update(rollouts, [1.0, -1.0], scores)
    assert step_values(0, rollouts, [{"outcome": 0.0}] * 2, [0.0] * 2)["routed_tokens"] == 2 * tokens


@pytest.mark.parametrize("experts", EXPERTS)
def test_every_last_expert_can_be_forced(experts):
    model = model_of(experts)
    ids = torch.arange(6)[None]
    shape = (1, 6, 2, 3)
    wanted = (experts - 1 - torch.arange(3)).expand(shape).clone()
    dtype = torch.uint8 if experts <= 255 else torch.int32
    for markers in {model.no_route, -1} if dtype == torch.int32 else {model.no_route}:
        forced = wanted.to(dtype)
        forced[:, 4:] = markers
        out = model(ids, forced_experts=forced, return_routes=True)
        assert torch.equal(out.routes[:, :4].long(), wanted[:, :4])
        free = model(ids, return_routes=True).routes
        assert (out.routes[:, 4:] < experts).all() and free is not None


def test_an_expert_that_the_model_has_not_is_refused_by_its_number():
    model = model_of(256)
    with pytest.raises(ValueError, match="forced expert 256 does not exist, the model has 256"):
        model(torch.arange(6)[None], forced_experts=torch.full((1, 6, 2, 3), 256, dtype=torch.int32))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_routes_of_either_width_survive_every_file(dtype):
    routes = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (6, 2, 3)).astype(dtype)
    routes[-1] = no_route(dtype)
    segment = Segment(
        np.arange(6, dtype=np.int32), np.arange(6) > 2, np.zeros(6, np.float32), np.full(6, -1, np.int32), routes
    )
    rollout = Rollout("r", "t", 0, [segment], {"outcome": 1.0})
    for again in (unpack_group(pack_group([rollout]))[0], rollout_from_bytes(rollout_to_bytes(rollout))):
        assert again.segments[0].routes.dtype == dtype and np.array_equal(again.segments[0].routes, routes)
    entry = unpack_routes(io.BytesIO(pack_routes(3, EntryRoutes(0, routes))).getvalue())[3]
    assert np.array_equal(entry.rows, routes)


def test_wide_routes_of_older_files_are_marked_with_255_and_read_so():
    old = np.array([[[255, 7, 255]], [[255, 255, 255]], [[NO_ROUTE_WIDE] * 3]], np.uint16)
    assert route_mask(old).tolist() == [[[True] * 3], [[False] * 3], [[False] * 3]]
    assert wide_routes(old).tolist() == [[[255, 7, 255]], [[-1] * 3], [[-1] * 3]]
    assert route_mask(np.array([[[255]], [[3]]], np.uint16)).tolist() == [
        [[True]],
        [[True]],
    ]  # of one expert a token it is an id
    narrow = np.array([[[NO_ROUTE, 3]]], np.uint8)
    assert route_mask(narrow).tolist() == [[[False, True]]] and wide_routes(narrow) is narrow

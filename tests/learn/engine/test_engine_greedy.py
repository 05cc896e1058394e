"""Greedy answers are the likeliest tokens, each prompt's own, and end by their own rule."""

import pytest
import torch
from engine_lab import prompt

from etude.agent.policy.protocol import PolicyError
from etude.learn.engine.cost import AT_ONCE, cache_bytes_per_token, decode_costs, greedy
from etude.learn.model.cache import KVCache


def by_hand(model, ids, count):
    ids = list(ids)
    for _ in range(count):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[-count:]


def never(n, ids):
    return False


@torch.inference_mode()
def test_they_equal_the_model_asked_token_by_token(model):
    prompts = [prompt(seed, 5 + 3 * seed) for seed in range(5)]
    most = [1, 40, AT_ONCE, AT_ONCE + 1, 7]
    heard = []
    found = greedy(model, prompts, most, never, batch=2, done=heard.append)
    assert found == [by_hand(model, ids, count) for ids, count in zip(prompts, most, strict=True)]
    assert heard == [1, 2, 3, 4, 5]


def test_each_ends_by_its_own_rule(mla):
    prompts = [prompt(seed, 6) for seed in range(3)]
    found = greedy(mla, prompts, [100] * 3, lambda n, ids: n == 1)
    assert [len(ids) for ids in found] == [100, AT_ONCE, 100]


def test_no_prompts_no_answers_and_one_beyond_the_positions_is_named(mla):
    assert greedy(mla, [], [], never) == []
    with pytest.raises(PolicyError):
        greedy(mla, [prompt(0, 300)], [10], never)


def test_costs_are_measured_for_each_model_and_the_cache_is_counted_as_it_is(model):
    found = decode_costs([model, model], 2, prompt_tokens=4, new_tokens=4, rounds=2)
    assert len(found) == 2 and all(cost.tokens_per_s > 0 and cost.core_s_per_1000_tokens > 0 for cost in found)
    buffer = KVCache(model.config, 1, 1).buffer
    assert cache_bytes_per_token(model.config) == buffer.numel() * buffer.element_size()

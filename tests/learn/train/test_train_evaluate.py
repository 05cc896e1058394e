"""Evaluation equals its definition and counts every byte once."""

import math

import numpy as np
import pytest
import torch

from etude.learn.train.evaluate import evaluate


def test_bits_per_byte_of_a_short_document_equals_the_definition(model):
    ids = np.random.default_rng(0).integers(0, 40, 20).tolist()
    result = evaluate(model, [ids], 33)
    tensor = torch.tensor([ids])
    logprobs = torch.log_softmax(model(tensor).logits[0, :-1].detach(), -1).gather(-1, tensor[0, 1:, None])
    assert result is not None and result.tokens == 19
    assert result.loss == pytest.approx(-logprobs.mean().item(), abs=1e-5)
    assert result.bits_per_byte == pytest.approx(-logprobs.sum().item() / math.log(2) / 33, abs=1e-5)


@pytest.mark.parametrize("length", [2, 7, 8, 9, 15, 16, 50])
def test_windows_predict_every_token_but_the_first_once(model, length):
    result = evaluate(model, [[i % 40 for i in range(length)]], 10, window_tokens=8)
    assert result is not None and result.tokens == length - 1


def test_nothing_to_predict_is_none(model):
    assert evaluate(model, [[1]], 1) is None and evaluate(model, [], 0) is None

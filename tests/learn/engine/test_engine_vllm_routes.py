"""Routed experts that vLLM's routers report: the rows of a step go to their requests, and come back under the positions that they belong to."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from etude.learn.engine.vllm.child import PROGRAM, RunningTurn, completion

LAYERS, K = 2, 3


@pytest.fixture
def worker():
    spec = importlib.util.spec_from_file_location("etude_vllm_routes", PROGRAM.with_name("etude_vllm_routes.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.CapturedRoutes()
    made._steps = {}
    made.model_runner = SimpleNamespace(input_batch=None)
    return made


def step(worker, *rows: tuple[str, int, list[int]]) -> None:
    """A step of these requests: name, first position, and the expert that every layer chose first for each token."""
    names, starts, values = zip(*rows, strict=True)
    worker.model_runner.input_batch = SimpleNamespace(req_ids=list(names), num_computed_tokens_cpu=np.array(starts))
    flat = torch.tensor([value for row in values for value in row])
    layers = [flat[:, None] + 10 * layer + torch.arange(K) for layer in range(LAYERS)]
    worker._keep({name: len(row) for name, _, row in rows}, layers)


def answer_of(worker, name: str, wide: bool):
    """The routes as a completion of our own has them."""
    found = worker.take_routes(name, wide)
    turn = RunningTurn(print, 3, 0, 0.0, wide)
    message = {"finish": "stop", "logprobs": [-0.5], "ids": [1], "spans": [], "cached": 0, "routes": found}
    return completion(turn, message, 1.0).tokens


@pytest.mark.parametrize("wide", [False, True])
def test_rows_of_a_batch_go_to_their_requests_at_their_positions(worker, wide):
    step(worker, ("7-ab", 2, [4, 5]), ("70-cd", 0, [6]))
    step(worker, ("70-cd", 1, [7]), ("7-ab", 4, [200 if not wide else 300]))
    tokens = answer_of(worker, "7", wide)
    assert tokens.route_start == 2 and tokens.routes.dtype == (np.uint16 if wide else np.uint8)
    assert tokens.routes[:, 0, 0].tolist() == [4, 5, 300 if wide else 200]
    assert tokens.routes[0].tolist() == [[4, 5, 6], [14, 15, 16]]
    assert answer_of(worker, "70", wide).routes[:, 1, 2].tolist() == [18, 19]
    assert worker.take_routes("7", wide) is None, "they are reported once"


def test_a_position_that_is_computed_twice_keeps_the_routes_that_its_token_was_sampled_under(worker):
    step(worker, ("7-ab", 0, [1, 2]))
    step(worker, ("7-ab", 2, [3]))
    step(worker, ("7-ab", 0, [9, 9, 9, 4]))
    assert answer_of(worker, "7", False).routes[:, 0, 0].tolist() == [1, 2, 3, 4]


def test_an_answer_without_routes_has_none(worker):
    tokens = answer_of(worker, "7", False)
    assert tokens.routes is None and tokens.route_start == 0

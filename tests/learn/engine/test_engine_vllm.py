"""vLLM as an engine, as far as it goes without vLLM: what it is asked, what comes back, whose weights it loads, and how its end is heard."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest
from engine_lab import ask
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from vllm_lab import checkpoint_of, collect, published, settings, stand_in

from etude.agent.policy.protocol import PolicyError
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.child import (
    SEEDS,
    EngineGone,
    RunningTurn,
    VllmChild,
    completion,
    question,
    seed_of,
    versions_of,
)
from etude.learn.engine.vllm.found import NoVllm, vllm_version
from etude.learn.engine.vllm.service import VllmService, module_of, to_load
from etude.learn.engine.vllm.turns import Salts

TURN = RunningTurn(print, 3, 4, 0.0)


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Over a program that replaces vLLM; its small model is version 0 of the store."""
    monkeypatch.setenv("STAND_IN_TOLD", str(tmp_path / "program_log"))
    model, publisher, store = published(tmp_path)
    checkpoint = checkpoint_of(model, tmp_path / "checkpoint")
    made = VllmService(checkpoint, store, settings(stand_in(tmp_path), max_len=40), tmp_path / "vllm")
    made.model, made.publisher = model, publisher  # type: ignore[attr-defined]
    yield made
    made.close()


def program_log(folder: Path, do: str) -> list[dict]:
    lines = map(json.loads, (folder / "program_log").read_text().splitlines())
    return [line for line in lines if line["do"] == do]


# -- what is asked and what comes back


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=5), st.integers(0, 30), st.integers(0, 3))
def test_each_token_has_the_version_of_the_last_span_that_began_before_it(spans, count, oldest):
    spans = sorted(spans, key=lambda span: span[1])
    versions = versions_of(spans, count, oldest)
    assert len(versions) == count
    for place, version in enumerate(versions):
        begun = [span for span, start in spans if start <= place]
        assert version == (begun[-1] if begun else oldest)


@given(st.integers(0, 2**70), st.integers(1, 4000), st.integers(1, 4000))
def test_turns_of_a_session_draw_different_numbers_that_vllm_takes(seed, first, second):
    assert 0 <= seed_of(seed, first) < SEEDS and seed_of(seed, first) == seed_of(seed, first)
    assert (seed_of(seed, first) == seed_of(seed, second)) == (first == second)


def test_a_turn_ends_where_the_engine_has_no_more_room():
    assert question(1, ask("s", (1,) * 30, max_tokens=25), 0, "all", 40)["max_tokens"] == 10
    assert question(1, ask("s", (1,) * 30, max_tokens=5), 0, "all", 40)["max_tokens"] == 5


def test_an_answer_keeps_ids_logprobs_and_the_versions_of_both_sides_of_a_swap():
    answer = {
        "ids": [5, 6, 7],
        "logprobs": [-1.0, -2.0, -3.0],
        "spans": [[4, 0], [5, 2]],
        "finish": "stop",
        "cached": 2,
    }
    found = completion(TURN, answer, 1.5)
    assert not isinstance(found, PolicyError) and found.tokens is not None
    assert (found.tokens.ids, found.tokens.logprobs, found.tokens.versions) == (
        [5, 6, 7],
        [-1.0, -2.0, -3.0],
        [4, 4, 5],
    )
    assert found.tokens.routes is None and found.finish == "stop"
    assert (found.usage.input_tokens, found.usage.cached_tokens, found.usage.output_tokens) == (3, 2, 3)


def test_a_turn_that_vllm_gave_up_for_a_reason_of_its_own_is_our_fault():
    found = completion(TURN, {"finish": "error"}, 1.0)
    assert isinstance(found, PolicyError) and found.infra


# -- cached tokens


def test_a_session_that_begins_after_a_swap_shares_no_cached_tokens_with_one_before_it():
    salts = Salts("keep", share_prefix=True)
    before = salts.of("old", 0)
    assert salts.of("twin", 0) == before  # of the same weights: the common prompt is computed once
    assert salts.of("old", 1) == before  # goes on with what it has, as in our engine
    assert salts.of("new", 1) != before
    salts.release("old")
    assert salts.of("old", 1) == salts.of("new", 1)


def test_without_shared_prefixes_each_session_has_its_own_and_a_swap_that_empties_the_cache_needs_none():
    alone = Salts("keep", share_prefix=False)
    assert alone.of("a", 0) != alone.of("b", 0)
    emptied = Salts("recompute", share_prefix=True)
    assert emptied.of("a", 0) == emptied.of("b", 3)


# -- changed tensors

KEYS = [
    *(f"model.layers.{n}.self_attn.{p}_proj.weight" for n in range(2) for p in "qkvo"),
    *(f"model.layers.{n}.mlp.experts.{e}.up_proj.weight" for n in range(2) for e in range(3)),
    *(f"model.layers.{n}.input_layernorm.weight" for n in range(2)),
    "model.embed_tokens.weight",
    "lm_head.weight",
]


@given(st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS)))
def test_of_each_module_with_a_changed_tensor_all_are_loaded_and_of_no_other_any(changed, unknown):
    held = {key: "new" if key in changed else "old" for key in KEYS}
    loaded = {key: "old" for key in KEYS if key not in unknown}
    found = to_load(loaded, held)
    assert set(found) == {module_of(key) for key in changed | unknown}
    for module, keys in found.items():
        assert keys == [key for key in KEYS if module_of(key) == module]


def test_experts_and_what_attention_joins_are_one_module_each():
    assert module_of("model.layers.11.mlp.experts.7.down_proj.weight") == "model.layers.11.mlp"
    assert module_of("model.layers.11.self_attn.kv_a_proj_with_mqa.weight") == "model.layers.11.self_attn"
    assert module_of("model.layers.11.post_attention_layernorm.weight") == "model.layers.11.post_attention_layernorm"
    assert module_of("model.layers.1.block_sparse_moe.experts.7.w1.weight") == "model.layers.1.block_sparse_moe"
    assert module_of("lm_head.weight") == "lm_head"


# -- the service, over a process that replaces vLLM


def test_the_first_weights_are_loaded_whole_and_then_only_what_changed(service, tmp_path):
    assert (service.stage(), service.apply()) == (0, 0)
    everything = sum(map(len, program_log(tmp_path, "load")[0]["modules"].values()))
    assert everything > 30 and program_log(tmp_path, "load")[0]["version"] == 0
    service.model.norm.weight.data += 1
    service.publisher.publish(service.model.state_dict(), 1)
    assert (service.stage(1), service.apply()) == (1, 1)
    assert program_log(tmp_path, "load")[1]["modules"] == {"model.norm": ["model.norm.weight"]}
    assert service.apply() == 1 and len(program_log(tmp_path, "load")) == 2, "nothing is loaded twice"
    assert service.stats()["version"] == 1 and service.stats()["loaded_tensors"] == everything + 1


def test_turns_come_back_by_the_clients_own_numbers_with_what_sampled_them(service):
    service.stage()
    service.apply()
    service.submit_many("me", [(70, ask("a", (1, 2, 3), max_tokens=2)), (71, ask("b", (1,) * 5, max_tokens=1))])
    found = collect(service, 2)
    assert found[70].tokens.ids == [3, 3] and found[71].tokens.ids == [5]
    assert found[70].tokens.versions == [0, 0]
    assert service.stats()["finished"] == 2 and service.stats()["sampled_tokens"] == 3


@pytest.mark.parametrize("prompt", [(), (1,) * 40, (13,)], ids=["empty", "too-long", "by-vllm"])
def test_a_turn_that_cannot_be_served_is_the_requests_fault(service, prompt):
    service.submit_many("me", [(1, ask("a", prompt))])
    with pytest.raises(PolicyError) as refused:
        collect(service, 1)
    assert not refused.value.infra


def test_when_its_process_ends_turns_polls_and_calls_hear_why(service):
    service.stage()
    service.submit_many("me", [(1, ask("a", (7,))), (2, ask("b", (66,)))])
    with pytest.raises(EngineGone, match="it had to come; see .*log"):
        service.poll("me", 20.0)
    for call in (service.stats, service.apply, service.stage):
        with pytest.raises(EngineGone, match="it had to come"):
            call()
    with pytest.raises(EngineGone):
        service.submit_many("me", [(3, ask("c", (1,)))])


# -- its process


def child(words: str, tmp_path, heard=lambda message: None) -> tuple[VllmChild, threading.Event]:
    ended = threading.Event()
    return VllmChild([sys.executable, "-c", words], {}, tmp_path / "log", heard, ended.set), ended


def test_a_killed_process_fails_open_calls_whatever_it_was_about_to_say_and_leaves_no_sockets(tmp_path):
    words = (
        "import os, time\n"
        'print(\'{"said": "answer", "folder": "%s"}\' % os.environ["VLLM_RPC_BASE_PATH"], flush=True)\n'
        "print('torn', end='', flush=True)\n"
        "time.sleep(300)"
    )
    came: list[dict] = []
    made, ended = child(words, tmp_path, came.append)
    failed: list[Exception] = []

    def call() -> None:
        try:
            made.call({"do": "ping"})
        except EngineGone as gone:
            failed.append(gone)

    waiting = threading.Thread(target=call)
    waiting.start()
    wait_for(lambda: bool(came))
    os.kill(made._process.pid, 9)
    assert ended.wait(10)
    waiting.join(10)
    assert "killed by signal 9" in str(failed[0])
    assert not Path(came[0]["folder"]).exists()


def test_a_process_that_never_comes_up_is_reported_with_its_last_words(tmp_path):
    made, ended = child("import sys; print('no such thing', file=sys.stderr); sys.exit(3)", tmp_path)
    assert ended.wait(10)
    with pytest.raises(EngineGone, match="ended with 3, after: no such thing"):
        made.say({"do": "ping"})


def wait_for(condition, limit_s: float = 10.0) -> None:
    until_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.01)


# -- settings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vllm": {}}, "engine.vllm.python: name the Python"),
        ({"draft_tokens": 3}, "engine.draft_tokens = 3 .* set it to 0"),
        ({"weights": "bfloat16"}, "set engine.vllm.dtype instead"),
        ({"company": 24}, "engine.company = 24"),
        ({"tick_s": 0.01}, "engine.tick_s = 0.01"),
        ({"vllm": {"python": "p", "arguments": {"max_num_seqs": 3}}}, "set engine.max_batch instead"),
        ({"vllm": {"python": "p", "arguments": {"logprobs_mode": "raw_logits"}}}, "leave it out"),
    ],
)
def test_what_does_not_apply_to_vllm_is_refused_by_name(wrong, message):
    with pytest.raises(ValidationError, match=message):
        EngineSettings.model_validate({"kind": "vllm", "vllm": {"python": "p"}} | wrong)


def test_a_python_without_vllm_is_distinguished_from_one_that_is_none():
    with pytest.raises(NoVllm, match="has no vLLM"):
        vllm_version(sys.executable)
    with pytest.raises(NoVllm, match="can't be run"):
        vllm_version("/nowhere/python")

"""A number that is not finite ends the request that it is in, by its reason; the engine, the other sessions and later ones are untouched."""

from __future__ import annotations

import asyncio
import math

import pytest
import torch
from engine_lab import VOCAB, answer, ask, prompt, small_model

from etude.agent.policy.protocol import PolicyError
from etude.learn.engine.core import EngineCore
from etude.learn.engine.cost import greedy
from etude.learn.engine.drafting import LayerDrafter
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.sampling import sample
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.child import RunningTurn, completion
from etude.learn.model.init import with_drafts
from etude.learn.weights.state import NotFinite

POISON = VOCAB - 1  # a token whose embedding is NaN: only sessions that hold it are broken


def clean(ids: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i % (VOCAB - 1) for i in ids)


def engine(model, **settings: object) -> EngineCore:
    return EngineCore(model, EngineSettings.model_validate({"max_slots": 4, "max_batch": 4, "max_len": 96} | settings))


def poison(model) -> None:
    with torch.no_grad():
        model.embed.weight[POISON] = math.nan
        model.head.weight[POISON] = 0
        model.head.weight[POISON] -= 5 * model.head.weight.abs().max()  # hardly ever sampled


NOISE = torch.tensor([0.3, 0.3, 0.3], dtype=torch.float64)


@pytest.mark.parametrize(
    "row", [[math.nan, 0, 0], [0, math.inf, 0], [-math.inf] * 3, [math.nan] * 3, [math.inf, -math.inf, math.nan]]
)
@pytest.mark.parametrize("temperature", [None, torch.zeros(3), torch.tensor([0.5, 0.0, 2.0])])
@pytest.mark.parametrize("top_p", [None, torch.tensor([0.5, 0.9, 1.0])])
def test_a_row_without_a_distribution_has_a_logprob_of_nan_and_leaves_the_others(row, temperature, top_p):
    sound = torch.tensor([[0.1, 2.0, 0.4], [1.0, 0.2, 0.3], [0.5, 0.6, 0.7]])
    wanted = sample(sound, NOISE, temperature, top_p)
    broken = sound.clone()
    broken[1] = torch.tensor(row)
    ids, logprobs = sample(broken, NOISE, temperature, top_p)
    assert math.isnan(logprobs[1]) and 0 <= int(ids[1]) < 3
    for n in (0, 2):
        assert ids[n] == wanted[0][n] and logprobs[n] == wanted[1][n]


def test_a_token_that_is_masked_out_is_no_fault():
    ids, logprobs = sample(torch.tensor([[0.5, -math.inf, 0.5]] * 3), NOISE, None, None)
    assert (ids != 1).all() and logprobs.isfinite().all()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafts", [0, 2])
def test_one_broken_session_ends_alone_with_its_reason(model, drafts, temperature):
    if drafts:
        model = with_drafts(model, 2, seed=3)
    poison(model)
    wanted = answer(
        engine(model, draft_tokens=drafts),
        *(ask(n, clean(prompt(7 + k, 20)), temperature=temperature) for k, n in enumerate("ab")),
    )
    core = engine(model, draft_tokens=drafts)
    bad = (*clean(prompt(1, 30)), POISON, *clean(prompt(2, 30)))
    found = answer(core, ask("a", clean(prompt(7, 20)), temperature=temperature), ask("x", bad, temperature=temperature),
                   ask("b", clean(prompt(8, 20)), temperature=temperature))  # fmt: skip
    assert found[1].finish == "abort" and found[1].tokens.ids == [] and "not finite" in found[1].problem
    for own, other in zip((found[0], found[2]), wanted, strict=True):
        assert own.tokens.ids == other.tokens.ids and own.finish == other.finish
        assert own.tokens.logprobs == pytest.approx(other.tokens.logprobs, abs=1e-5)
    # A new short session next to a long one in the broken session's slot.
    after = answer(
        core,
        ask("c", clean(prompt(7, 20)), temperature=temperature),
        ask("d", clean(prompt(9, 70)), temperature=temperature),
    )
    assert after[0].tokens.ids == wanted[0].tokens.ids and all(map(math.isfinite, after[1].tokens.logprobs))
    assert core.cache.buffer.isfinite().all()


def test_what_was_sampled_before_the_break_is_kept(model):
    core = engine(model)
    ticket = core.submit(ask("a", clean(prompt(1, 10)), max_tokens=30, temperature=0.0))
    for _ in range(4):
        core.step()
    kept = core.sampled(ticket, 0).ids
    with torch.no_grad():
        model.norm.weight[0] = math.nan
    [(_, found)] = [done for done in core.step()]
    assert found.finish == "abort" and found.tokens.ids == kept and len(found.tokens.logprobs) == len(kept)
    assert found.tokens.routes is None or len(found.tokens.routes) == 10 + len(kept) - 1
    with torch.no_grad():
        model.norm.weight[0] = 1.0
    (again,) = answer(core, ask("a", clean(prompt(1, 10)), max_tokens=30, temperature=0.0))
    assert again.tokens.ids[: len(kept)] == kept and again.usage.cached_tokens == 0


def test_a_session_that_shares_the_prompt_of_a_broken_one_computes_it_itself(model):
    core, shared = engine(model), clean(prompt(1, 40))
    with torch.no_grad():
        model.blocks[1].attention_norm.weight[0] = math.nan
    (bad,) = answer(core, ask("a", shared))
    with torch.no_grad():
        model.blocks[1].attention_norm.weight[0] = 1.0
    wanted = answer(engine(model), ask("b", shared))
    found = answer(core, ask("b", shared))
    assert bad.finish == "abort" and found[0].tokens.ids == wanted[0].tokens.ids and found[0].usage.cached_tokens == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_draft_layers_that_are_not_finite_cost_time_and_no_token(temperature):
    model = with_drafts(small_model("deepseek_v3"), 2, seed=3)
    requests = [ask(n, prompt(k, 20 + 9 * k), max_tokens=20, temperature=temperature) for k, n in enumerate("abc")]
    wanted = answer(engine(model), *requests)
    core = engine(model, draft_tokens=2)
    sound = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        model.mtp[0].block.attention_norm.weight[0] = math.nan
    found = answer(core, *requests)
    assert [f.tokens.ids for f in found] == [w.tokens.ids for w in wanted] and {f.finish for f in found} <= {
        "stop",
        "length",
    }
    core.swap(sound, 1)
    assert core.cache.buffer.isfinite().all()
    again = answer(
        core, *(ask(r.session_id + "2", r.prompt_ids, max_tokens=20, temperature=temperature) for r in requests)
    )
    assert [f.tokens.ids for f in again] == [w.tokens.ids for w in wanted]
    assert core.stats.verify_calls > 0  # and guesses again


def test_a_copy_of_a_session_whose_drafts_are_not_finite_takes_none_of_them():
    model = with_drafts(small_model("deepseek_v3"), 2, seed=3)
    core = engine(model, draft_tokens=2)
    cache, trunk = core.cache, model.config.layers
    drafter = LayerDrafter(model, cache, core.rows, 2)
    cache.buffer[:, 0, :9], cache.lengths[0] = 1.0, 9
    cache.buffer[trunk:, 0, :9] = math.nan
    drafter.tainted.add(0)
    drafter._reach[0] = 7
    cache.copy(0, 1, 9)
    drafter.copy(0, 1, 9)
    assert cache.buffer[:, 1].isfinite().all() and (cache.buffer[:trunk, 1, :9] == 1).all()
    assert drafter._reach[1] == 0 and drafter.tainted == {0}


@pytest.mark.parametrize("name", ["norm.weight", "blocks.1.feed.experts.down", "mtp.0.eh_proj.weight"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused_by_name_before_one_is_written(name, value):
    model = with_drafts(small_model("qwen3_moe"), 1, seed=3)
    core = engine(model)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    state = {key: tensor + 1 for key, tensor in before.items()}
    state[name].view(-1)[3] = value
    with pytest.raises(NotFinite, match=f"{name} hold NaN or infinity"):
        core.swap(state, 7)
    assert core.version == 0 and all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_a_client_hears_the_reason_and_greedy_answers_do_not_go_round_for_ever(model):
    poison(model)

    async def error_text() -> str:
        policy = EnginePolicy.start(
            model, EngineSettings.model_validate({"max_slots": 2, "max_batch": 2, "max_len": 64})
        )
        try:
            return (await policy.complete(ask("x", (1, POISON, 2)))).problem
        finally:
            policy.close()

    assert "session x: its logits are not finite numbers" in asyncio.run(error_text())
    with pytest.raises(PolicyError, match="not finite"):
        greedy(model, [(1, POISON, 2)], [5], lambda n, ids: False)


def test_a_turn_of_vllm_with_a_logprob_that_is_no_number_is_a_fault_of_ours():
    answered = {"finish": "stop", "ids": [1, 2], "logprobs": [-0.1, math.nan], "spans": [], "cached": 0}
    found = completion(RunningTurn(print, 3, 0, 0.0), answered, 1.0)
    assert isinstance(found, PolicyError) and found.infra and "not finite" in str(found)


@pytest.mark.parametrize("drafts", [0, 2])
def test_a_slot_that_is_given_out_holds_nothing_of_the_session_before(model, drafts):
    model = with_drafts(model, 2, seed=3) if drafts else model
    core = engine(model, draft_tokens=drafts, max_slots=1, max_batch=1, share_prefix=False)
    answer(core, ask("long", prompt(1, 60)))
    core.release("long")
    core.cache.buffer[:, 0, 10:] = math.nan  # as an overflow in some layer would have left it
    core.cache.buffer[:, 0, int(core.cache.written[0]) :] = 0
    ticket = core.submit(ask("short", prompt(2, 5), max_tokens=1))
    done = dict(core.step())
    assert done[ticket].finish == "length" and core.cache.buffer.isfinite().all()
    (whole,) = answer(
        engine(model, draft_tokens=drafts, max_slots=1, max_batch=1), ask("short", prompt(2, 5), max_tokens=1)
    )
    assert done[ticket].tokens.ids == whole.tokens.ids
    written = int(core.cache.written[0])
    assert written <= 8 and not core.cache.buffer[:, 0, written:].any()

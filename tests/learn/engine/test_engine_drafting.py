"""What the draft layers see: after any history of a slot, a guess is that of layers which read the whole session afresh.

Identical output would not show a wrong draft cache, only fewer kept guesses, so every guess is checked here.
"""

from __future__ import annotations

import pytest
import torch
from drafting_lab import checking, drafted, same, speculating
from engine_lab import VOCAB, answer, ask, drain, prompt, small_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.core.trace.completion import Completion, SampledTokens
from etude.learn.engine import drafting
from etude.learn.engine.core import EngineCore
from etude.learn.engine.sampling import noise, sample
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.speedup import measure
from etude.learn.model.causal_lm import CausalLM

SETTINGS = EngineSettings(max_slots=3, max_batch=3, max_len=96, draft_max_batch=3, draft_tokens=3)
MODELS: dict[tuple[str, int], CausalLM] = {}


def model_of(family: str, layers: int) -> CausalLM:
    """Made once: an engine only reads its model."""
    if (family, layers) not in MODELS:
        MODELS[family, layers] = drafted(small_model(family), layers)
    return MODELS[family, layers]


@pytest.fixture(autouse=True)
def _always_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "WORTHWHILE", -1.0)  # untrained layers are sure of nothing


def changed(**changes: object) -> EngineSettings:
    return SETTINGS.model_copy(update=changes)


def tokens(completion: Completion) -> SampledTokens:
    assert completion.tokens is not None
    return completion.tokens


@settings(
    max_examples=settings.default.max_examples // 4,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_guesses_are_those_of_layers_that_read_the_session_afresh(data: st.DataObject) -> None:
    """Sessions go on, fork, share their beginning, lose their slot, and run with others, guessed for or not."""
    layers, count = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    model = model_of(data.draw(st.sampled_from(["deepseek_v3", "qwen3_moe"])), layers)
    used = changed(draft_tokens=count, draft_max_batch=data.draw(st.integers(1, 3)))
    core, drafter = checking(model, used)
    plain = EngineCore(model, used.model_copy(update={"draft_tokens": 0}))
    held = {n: prompt(0 if n < 3 else n, 24) for n in range(5)}
    for turn in range(data.draw(st.integers(1, 3))):
        asking = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True))
        limit = data.draw(st.integers(2, 9))
        requests = [ask(f"s{n}", held[n], seed=turn, max_tokens=limit + n, temperature=0.7 * n) for n in asking]
        for n, one, other in zip(asking, answer(core, *requests), answer(plain, *requests), strict=True):
            assert same(one, other)
            kept = data.draw(st.sampled_from([len(held[n]), 20, 7]))  # all of it, or a fork
            held[n] = (*held[n][:kept], *tokens(one).ids[: data.draw(st.integers(0, 5))], *prompt(turn, 2))
    assert drafter.checked or core.stats.verify_calls == 0


def test_guessing_goes_on_where_plain_decoding_had_taken_over() -> None:
    core, drafter = checking(model_of("deepseek_v3", 2), changed(draft_max_batch=1))
    answer(core, ask("a", prompt(0, 9), max_tokens=40), ask("b", prompt(1, 30), max_tokens=9))
    assert core.stats.decode_rows > core.stats.decode_steps  # both at once for a while, without guesses
    assert drafter.checked > 20


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
def test_after_a_swap_every_token_is_drawn_from_the_weights_of_its_version(family: str) -> None:
    """Several requests at once, weights swapped twice in flight, the cache computed again: recomputed token by token."""
    model = drafted(small_model(family), 2)
    core, drafter = checking(model, changed(swap_cache="recompute"))
    versions = [drafted(small_model(family, seed), 2, seed).state_dict() for seed in range(3)]
    core.swap(versions[0], 0)
    prompts = [prompt(n, 9 + n) for n in range(3)]
    tickets = [core.submit(ask(f"s{n}", ids, max_tokens=20 + n, seed=n)) for n, ids in enumerate(prompts)]
    done: dict[int, Completion] = {}
    for version in (1, 2):
        done.update(core.step())
        done.update(core.step())
        core.swap(versions[version], version)
    done.update(drain(core))
    assert drafter.checked > 30
    for n, ids in enumerate(prompts):
        sampled = tokens(done[tickets[n]])
        assert set(sampled.versions) == {0, 1, 2}
        numbers = torch.from_numpy(noise(n, len(ids), len(sampled.ids)))
        for version in range(3):
            model.load_state_dict(versions[version])
            with torch.no_grad():
                logits = model(torch.tensor([[*ids, *sampled.ids]])).logits[0, len(ids) - 1 : -1]
            drawn, logprobs = sample(logits, numbers, None, None)
            own = torch.tensor(sampled.versions) == version
            assert drawn[own].tolist() == torch.tensor(sampled.ids)[own].tolist()
            assert torch.allclose(logprobs[own], torch.tensor(sampled.logprobs)[own], atol=1e-5)


def test_with_a_kept_cache_a_swap_after_as_many_tokens_gives_the_same() -> None:
    """One request: both engines swap when they hold equally many tokens. The old draft layers go on under the new trunk."""
    old, new = small_model("qwen3_moe").double(), small_model("qwen3_moe", seed=1).double().state_dict()
    request = ask("s", prompt(0, 9), max_tokens=30)
    core = EngineCore(drafted(old, 1), changed(swap_cache="keep"))
    plain = EngineCore(old, changed(draft_tokens=0))
    ticket, reference = core.submit(request), plain.submit(request)
    for _ in range(4):
        core.step()
    while plain.stats.sampled_tokens < core.stats.sampled_tokens:
        plain.step()
    assert plain.stats.sampled_tokens == core.stats.sampled_tokens
    core.swap(new, 1)
    plain.swap(new, 1)
    assert same(drain(core)[ticket], drain(plain)[reference])


def test_draft_layers_swap_with_the_trunk_if_the_state_has_them_and_stay_if_not(mla: CausalLM) -> None:
    model = drafted(mla, 1)
    other = drafted(small_model("deepseek_v3", seed=1), 1, seed=9).state_dict()
    before = {name: tensor.clone() for name, tensor in model.mtp.state_dict().items()}
    core = EngineCore(model, SETTINGS)
    core.swap({name: tensor for name, tensor in other.items() if not name.startswith("mtp.")}, 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.mtp.state_dict().items())
    assert torch.equal(model.head.weight, other["head.weight"])
    core.swap(other, 2)
    assert all(torch.equal(tensor, other[f"mtp.{name}"]) for name, tensor in model.mtp.state_dict().items())
    with pytest.raises(ValueError, match=r"lack mtp\.0\.norm\.weight"):
        core.swap({name: tensor for name, tensor in other.items() if name != "mtp.0.norm.weight"}, 3)
    assert core.version == 2


def test_unlikely_guesses_and_stop_tokens_end_the_guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("qwen3_moe", 1)
    monkeypatch.setattr(drafting, "WORTHWHILE", 0.99)
    core = EngineCore(model, SETTINGS)
    answer(core, ask("s", prompt(0, 9), max_tokens=9))
    assert len(core.stats.drafted) == 1
    monkeypatch.setattr(drafting, "WORTHWHILE", 1e-30)
    core = EngineCore(model, SETTINGS)
    # Every token but the first one drawn stops: whatever is guessed behind it ends the answer.
    first = tokens(answer(core, ask("s", prompt(0, 9), max_tokens=1))[0]).ids[0]
    stops = tuple(token for token in range(VOCAB) if token != first)
    answer(core, ask("t", prompt(0, 9), max_tokens=9, stop_ids=stops))
    assert len(core.stats.drafted) == 1


@pytest.mark.nightly
def test_draft_layers_catch_up_when_guessing_kept_ending_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers, one guess a step: the second layer runs only now and then, and is right when it guesses again."""
    core, drafter = checking(model_of("deepseek_v3", 2), changed(max_len=200))
    monkeypatch.setattr(drafting, "WORTHWHILE", 2.0)
    ticket = core.submit(ask("s", prompt(0, 9), max_tokens=150))
    while core.stats.sampled_tokens < 90:
        core.step()
    assert len(core.stats.drafted) == 1
    monkeypatch.setattr(drafting, "WORTHWHILE", -1.0)
    assert len(tokens(drain(core)[ticket]).ids) == 150 and len(core.stats.drafted) == 3


def test_the_speedup_is_measured_on_identical_answers() -> None:
    model = model_of("qwen3_moe", 2)
    requests = [ask(f"s{n % 3}", prompt(n % 3, 9 + n), seed=n, max_tokens=6) for n in range(6)]
    found = measure(model, requests, changed(draft_tokens=2), batch=2, repeats=2)
    assert found.identical and found.same == found.requests == 6 and found.tokens == 36
    assert len(found.acceptance) == 2 and found.ratio > 0 and found.whole_ratio > 0
    assert 1.0 <= found.tokens_per_step <= 3.0
    with pytest.raises(ValueError, match="0 requests"):
        measure(model, [], SETTINGS)
    with pytest.raises(ValueError, match="draft_tokens=0"):
        measure(model, requests, changed(draft_tokens=0))
    with pytest.raises(ValueError, match="each request a seed"):
        measure(model, [ask("s", prompt(0, 9), seed=None)], SETTINGS)


def test_the_speedup_of_perfect_guesses_counts_tokens_by_step() -> None:
    model = model_of("qwen3_moe", 1)
    core = speculating(model, SETTINGS, 0.0)
    answer(core, ask("s", prompt(0, 9), max_tokens=13))
    assert (core.stats.sampled_tokens - 1) / core.stats.decode_steps == 4

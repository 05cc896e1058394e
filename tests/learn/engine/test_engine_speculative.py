"""Speculative decoding is plain decoding, faster: whatever is guessed, nothing of it shows in the completions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from drafting_lab import drafted, same, speculating
from engine_lab import VOCAB, answer, ask, drain, prompt, small_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.agent.policy.protocol import Request
from etude.learn.engine import drafting
from etude.learn.engine.core import EngineCore
from etude.learn.engine.probe import compare
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.speculative import run
from etude.learn.model.causal_lm import CausalLM

SETTINGS = EngineSettings(max_slots=4, max_batch=4, max_len=64, draft_max_batch=4)
MODELS: dict[tuple[str, int], CausalLM] = {}


def model_of(family: str, layers: int) -> CausalLM:
    """Made once: an engine only reads its model."""
    if (family, layers) not in MODELS:
        MODELS[family, layers] = drafted(small_model(family), layers)
    return MODELS[family, layers]


@pytest.fixture(autouse=True)
def _always_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "WORTHWHILE", -1.0)  # untrained layers are sure of nothing


def with_drafts(tokens: int, **changes: object) -> EngineSettings:
    return SETTINGS.model_copy(update={"draft_tokens": tokens, **changes})


@st.composite
def asked(draw: st.DrawFn) -> list[Request]:
    """A few requests of every kind: hot, cold, stopping early, running into the slot's end, sharing their beginning."""
    requests = []
    for n in range(draw(st.integers(1, 6))):
        common = prompt(99, 20) if draw(st.booleans()) else ()
        stops = tuple(draw(st.lists(st.integers(0, VOCAB - 1), max_size=12)))
        requests.append(
            ask(
                f"s{n}",
                (*common, *prompt(n, draw(st.integers(1, 30)))),
                seed=draw(st.integers(0, 99)),
                max_tokens=draw(st.integers(1, 40)),
                temperature=draw(st.sampled_from([0.0, 0.5, 1.0, 1.6])),
                stop_ids=stops,
                extra={"top_p": draw(st.sampled_from([1.0, 0.8]))},
            )
        )
    return requests


@settings(
    max_examples=settings.default.max_examples // 3,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    requests=asked(),
    family=st.sampled_from(["deepseek_v3", "qwen3_moe"]),
    tokens=st.integers(1, 4),
    widest=st.integers(1, 4),
    layers=st.integers(1, 3),
    wrong=st.sampled_from([None, 0.0, 0.3, 1.0]),
)
def test_completions_are_those_of_plain_decoding_whatever_is_guessed(
    requests: list[Request], family: str, tokens: int, widest: int, layers: int, wrong: float | None
) -> None:
    model = model_of(family, layers)
    changed = with_drafts(tokens, draft_max_batch=widest)
    core = EngineCore(model, changed) if wrong is None else speculating(model, changed, wrong)
    plain = answer(EngineCore(model, SETTINGS), *requests)
    for one, other in zip(plain, answer(core, *requests), strict=True):
        assert same(one, other)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3))), st.integers(0, 3), st.sets(st.integers(0, 3)))
def test_a_run_ends_with_the_first_wrong_guess_or_the_first_stop(
    pairs: list[tuple[int, int]], last: int, stops: set[int]
) -> None:
    guessed, drawn = [guess for guess, _ in pairs], [token for _, token in pairs] + [last]
    kept, agreed = run(guessed, drawn, sorted(stops))
    assert 1 <= kept <= len(drawn) and agreed in (kept, kept - 1)
    assert guessed[:agreed] == drawn[:agreed]
    assert not stops & set(drawn[: kept - 1])
    ended = drawn[kept - 1] in stops or kept == len(drawn)
    assert ended or guessed[kept - 1] != drawn[kept - 1]


def test_greedy_tokens_are_the_likeliest_of_the_plain_forward(model: CausalLM) -> None:
    ids = prompt(0, 12)
    core = speculating(model.double(), with_drafts(3), 0.2)
    tokens = answer(core, ask("s", ids, temperature=0.0, max_tokens=30))[0].tokens
    assert tokens is not None and core.stats.verify_calls < 15
    logits = model(torch.tensor([[*ids, *tokens.ids]])).logits[0, len(ids) - 1 : -1]
    assert logits.argmax(-1).tolist() == tokens.ids


def test_frequencies_of_a_guessed_token_follow_the_model(mla: CausalLM) -> None:
    """Chi-square over the second token, which is drawn in a verified step: expected is the model's own, summed over all first
    tokens. A third of the guesses is wrong, so kept and corrected ones are both among them."""
    ids, draws = prompt(0, 24), 1500
    core = speculating(mla, with_drafts(1, max_slots=16, max_batch=16, draft_max_batch=16), 0.33)
    done = answer(core, *(ask(f"s{n}", ids, max_tokens=3, seed=n) for n in range(draws)))
    seen = Counter(completion.tokens.ids[1] for completion in done if completion.tokens is not None)
    with torch.no_grad():
        first = mla(torch.tensor([ids])).logits[0, -1].softmax(-1)  # (V,)
        longer = torch.cat((torch.tensor([ids]).expand(VOCAB, -1), torch.arange(VOCAB).unsqueeze(1)), 1)
        expected = (first @ mla(longer).logits[:, -1].softmax(-1)).numpy() * draws
    large = [token for token in range(VOCAB) if expected[token] >= 10]
    cells = [(seen[token], expected[token]) for token in large]
    cells.append((draws - sum(seen[token] for token in large), draws - sum(expected[token] for token in large)))
    statistic = sum((observed - mean) ** 2 / mean for observed, mean in cells)
    assert len(cells) > 5 and statistic < len(cells) + 5 * (2 * len(cells)) ** 0.5  # five standard deviations
    assert 0.5 < core.stats.reading()["acceptance_1"] < 0.8


def test_logprobs_and_experts_equal_the_plain_forward_in_fp32(model: CausalLM) -> None:
    prompts = [prompt(seed, 3 + 5 * seed) for seed in range(4)]
    core = speculating(model, with_drafts(3), 0.3)
    done = answer(core, *(ask(f"s{n}", ids, seed=n, max_tokens=20) for n, ids in enumerate(prompts)))
    result = compare(model, [(ids, c.tokens) for ids, c in zip(prompts, done, strict=True) if c.tokens is not None])
    assert result.max_dlogp <= 1e-5 and result.routes_equal and result.tokens == 80


def test_acceptance_is_counted_by_depth() -> None:
    model = model_of("qwen3_moe", 1)
    request = ask("s", prompt(0, 10), max_tokens=13)  # one from the prompt, then three verified steps of four
    right, wrong = speculating(model, with_drafts(3), 0.0), speculating(model, with_drafts(3), 1.0)
    answer(right, request)
    answer(wrong, request)
    reading = right.stats.reading()
    assert reading["verify_calls"] == 3 and reading["drafted"] == reading["accepted"] == 9
    assert [reading[f"acceptance_{depth}"] for depth in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert reading["sampled_tokens"] == 13 and reading["decode_steps"] == 3
    assert wrong.stats.reading()["accepted"] == 0 and wrong.stats.decode_steps == 12


def test_guesses_behind_a_stop_token_do_not_count() -> None:
    model = model_of("qwen3_moe", 1)
    request = ask("s", prompt(0, 10), max_tokens=13)
    plain = answer(EngineCore(model, SETTINGS), request)[0].tokens
    assert plain is not None
    place = next(n for n in range(2, 13) if plain.ids[n] not in plain.ids[:n] and n % 4 != 0)
    core = speculating(model, with_drafts(3), 0.0)
    completion = answer(core, ask("s", prompt(0, 10), max_tokens=13, stop_ids=(plain.ids[place],)))[0]
    assert completion.finish == "stop" and completion.tokens is not None
    assert completion.tokens.ids == plain.ids[: place + 1]
    assert sum(core.stats.drafted) == sum(core.stats.accepted) == 3 * (place // 4) + min(3, place % 4 or 4)


def test_a_large_batch_decodes_plainly() -> None:
    core = EngineCore(model_of("qwen3_moe", 1), with_drafts(2, draft_max_batch=2))
    answer(core, *(ask(f"s{n}", prompt(n, 5), max_tokens=6) for n in range(3)))
    assert core.stats.verify_calls == 0 and core.stats.decode_steps == 5


def test_an_abort_inside_a_run_gives_what_plain_decoding_gave_so_far() -> None:
    model = model_of("deepseek_v3", 1)
    core = speculating(model, with_drafts(3), 0.3)
    ticket = core.submit(ask("s", prompt(0, 9), max_tokens=40))
    core.step()
    core.step()
    partial = core.abort(ticket)
    assert partial is not None and partial.finish == "abort" and partial.tokens is not None
    got = len(partial.tokens.ids)
    plain = answer(EngineCore(model, SETTINGS), ask("s", prompt(0, 9), max_tokens=got))[0].tokens
    assert plain is not None and got > 2 and partial.tokens.ids == plain.ids
    assert np.array_equal(partial.tokens.routes, plain.routes)  # type: ignore[arg-type]
    assert not core.busy and drain(core) == {}


def test_drafts_without_draft_layers_are_refused(mla: CausalLM) -> None:
    with pytest.raises(ValueError, match=r"draft_tokens is 2, but the model has no draft layers: load .* drafts=True"):
        EngineCore(mla, with_drafts(2))


def test_without_drafts_nothing_is_kept_for_them(mla: CausalLM) -> None:
    core = EngineCore(mla, SETTINGS)
    answer(core, ask("s", prompt(0, 9)))
    assert core.rows.hidden is None and core.stats.reading()["drafted"] == 0

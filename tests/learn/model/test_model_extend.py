"""Sampling and learning see the same model: extend over a cache equals one forward over everything."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.core.trace.segment import NO_ROUTE
from etude.learn.model import cache as cache_module
from etude.learn.model.cache import CacheFull, CacheSpan, KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig
from etude.learn.model.settings import ModelSettings

TOLERANCE = 1e-5


def whole(model: CausalLM, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    with torch.no_grad():
        out = model(ids, return_routes=True)
    assert out.routes is not None
    return out.logits, out.routes


def test_prefill_then_decode_equals_the_full_forward(any_model: CausalLM, ids: torch.Tensor) -> None:
    logits, routes = whole(any_model, ids)
    cache = KVCache(any_model.config, slots=7, max_len=48)
    slots, held = torch.tensor([5, 0, 3]), torch.tensor([17, 1, 30])
    rows = torch.arange(3)
    last, got = any_model.extend(ids[:, :30], held, slots, cache)
    for row in rows:
        assert torch.equal(got[row, : held[row]], routes[row, : held[row]])
        assert (got[row, held[row] :] == NO_ROUTE).all()
    while True:
        assert (last - logits[rows, held - 1]).abs().max() <= TOLERANCE
        assert torch.equal(cache.lengths[slots], held)
        if int(held.max()) == ids.shape[1]:
            break
        last, got = any_model.extend(ids[rows, held].unsqueeze(1), torch.ones(3, dtype=torch.long), slots, cache)
        assert torch.equal(got[:, 0], routes[rows, held])
        held = held + 1


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
@given(data=st.data())
def test_any_cut_into_spans_of_any_batch_gives_the_same_logits(data: st.DataObject) -> None:
    """Rows join, pause and go on in any order and any slot; each ends with the logits of its own full forward."""
    model = MODELS[data.draw(st.sampled_from(sorted(MODELS)))]
    ids = torch.randint(0, model.config.vocab_size, (4, 20), generator=torch.Generator().manual_seed(0))
    cache = KVCache(model.config, slots=6, max_len=20)
    slot_of = torch.tensor(data.draw(st.permutations(range(6)))[:4])
    held = torch.zeros(4, dtype=torch.long)
    last = torch.zeros(4, model.config.vocab_size)
    while (held < 20).any():
        open_rows = torch.nonzero(held < 20).flatten().tolist()
        chosen = torch.tensor(
            data.draw(st.permutations(sorted(data.draw(st.sets(st.sampled_from(open_rows), min_size=1)))))
        )
        counts = torch.tensor([data.draw(st.integers(1, int(20 - held[r]))) for r in chosen])
        padded = torch.zeros(len(chosen), int(counts.max()), dtype=torch.long)
        for i, r in enumerate(chosen):
            padded[i, : counts[i]] = ids[r, held[r] : held[r] + counts[i]]
        last[chosen], _ = model.extend(padded, counts, slot_of[chosen], cache)
        held[chosen] += counts
    assert (last - whole(model, ids)[0][:, -1]).abs().max() <= TOLERANCE


MODELS: dict[str, CausalLM] = {}


@pytest.fixture(autouse=True)
def _models(make_model) -> None:
    if not MODELS:
        MODELS.update({shape: make_model(shape) for shape in ("mla-all", "gqa-sparse")})


def test_a_copied_prompt_continues_like_its_original(model: CausalLM, ids: torch.Tensor) -> None:
    cache = KVCache(model.config, slots=4, max_len=48)
    model.extend(ids[:1, :20], torch.tensor([20]), torch.tensor([2]), cache)
    cache.copy(2, 0, length=12)
    last, _ = model.extend(ids[:1, 12:20], torch.tensor([8]), torch.tensor([0]), cache)
    assert (last - whole(model, ids[:1, :20])[0][:, -1]).abs().max() <= TOLERANCE
    with pytest.raises(ValueError, match="holds 20 tokens, 21"):
        cache.copy(2, 1, length=21)


def test_a_cleared_slot_remembers_nothing(model: CausalLM, ids: torch.Tensor) -> None:
    cache = KVCache(model.config, slots=1, max_len=48)
    slot = torch.tensor([0])
    first, _ = model.extend(ids[:1], torch.tensor([40]), slot, cache)
    cache.clear(0)
    model.extend(ids[1:2], torch.tensor([40]), slot, cache)
    cache.clear(0, keep=0)
    again, _ = model.extend(ids[:1], torch.tensor([40]), slot, cache)
    assert torch.equal(first, again)


def test_a_full_cache_is_refused_before_anything_is_written(model: CausalLM, ids: torch.Tensor) -> None:
    cache = KVCache(model.config, slots=2, max_len=39)
    with pytest.raises(CacheFull, match="slot 1 would hold 40 tokens"):
        model.extend(ids[:2], torch.tensor([39, 40]), torch.tensor([0, 1]), cache)
    assert not cache.buffer.any() and not cache.lengths.any()


@pytest.mark.parametrize("lengths", [[0, 3], [5, 3], [3]])
def test_impossible_lengths_are_refused(model: CausalLM, ids: torch.Tensor, lengths: list[int]) -> None:
    cache = KVCache(model.config, slots=2, max_len=39)
    with pytest.raises(ValueError, match="between 1 and 4"):
        model.extend(ids[:2, :4], torch.tensor(lengths), torch.tensor([0, 1]), cache)


def test_a_cache_longer_than_the_model_is_refused(model: CausalLM) -> None:
    with pytest.raises(ValueError, match="256 positions"):
        KVCache(model.config, slots=1, max_len=257)


def test_extend_all_gives_every_tokens_logits_and_hidden_state(any_model: CausalLM, ids: torch.Tensor) -> None:
    with torch.no_grad():
        out = any_model(ids, return_routes=True)
    cache = KVCache(any_model.config, slots=4, max_len=48)
    slots, lengths = torch.tensor([2, 0, 3]), torch.tensor([9, 4, 11])
    any_model.extend(ids[:, :10], torch.full((3,), 10), slots, cache)
    got = any_model.extend_all(ids[:, 10:21], lengths, slots, cache)
    assert got.routes is not None and out.routes is not None
    for row, length in enumerate(lengths.tolist()):
        span = slice(10, 10 + length)
        assert (got.logits[row, :length] - out.logits[row, span]).abs().max() <= TOLERANCE
        assert (got.hidden[row, :length] - out.hidden[row, span]).abs().max() <= TOLERANCE
        assert torch.equal(got.routes[row, :length], out.routes[row, span])


def test_without_every_logit_there_are_those_after_each_rows_last_token(model: CausalLM, ids: torch.Tensor) -> None:
    slots, lengths = torch.tensor([2, 0, 1]), torch.tensor([9, 4, 11])
    plain, routes = model.extend(ids[:, :11], lengths, slots, KVCache(model.config, slots=3, max_len=48))
    cache = KVCache(model.config, slots=3, max_len=48)
    out = model.extend_all(ids[:, :11], lengths, slots, cache, every_logit=False)
    assert out.routes is not None and torch.equal(out.routes, routes)
    assert (out.logits - plain).abs().max() <= TOLERANCE and torch.equal(cache.lengths[slots], lengths)


def test_tokens_that_are_cut_off_leave_no_trace(model: CausalLM, ids: torch.Tensor) -> None:
    cache, slots = KVCache(model.config, slots=3, max_len=48), torch.tensor([2, 0, 1])
    model.extend(ids[:, :20], torch.full((3,), 20), slots, cache)
    model.extend_all(ids.flip(1)[:, :5], torch.full((3,), 5), slots, cache)
    cache.cut(slots, torch.tensor([20, 17, 20]))
    assert cache.lengths[slots].tolist() == [20, 17, 20]
    cache.cut(slots, torch.full((3,), 17))
    logits, _ = model.extend(ids[:, 17:20], torch.full((3,), 3), slots, cache)
    assert (logits - whole(model, ids)[0][:, 19]).abs().max() <= TOLERANCE
    with pytest.raises(ValueError, match=r"hold \[20, 20, 20\] tokens, fewer than \[20, 21, 20\]"):
        cache.cut(slots, torch.tensor([20, 21, 20]))


def test_in_float64_spans_of_any_width_equal_the_forward_to_the_last_digits(
    any_model: CausalLM, ids: torch.Tensor
) -> None:
    """The bias of attention must have the queries' type: kernels read its bits as such, from 16 keys on."""
    model = any_model.double()
    cache, slots = KVCache(model.config, slots=3, max_len=48, dtype=torch.float64), torch.tensor([2, 0, 1])
    held = 0
    for width in (15, 1, 4, 3, 1, 6):
        logits, _ = model.extend(ids[:, held : held + width], torch.full((3,), width), slots, cache)
        held += width
        assert (logits - whole(model, ids)[0][:, held - 1]).abs().max() <= 1e-6  # rope turns in fp32


def test_long_contexts_are_read_in_place_with_the_same_logits(
    any_model: CausalLM, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of their own, each ending where it ends, give what the copy of all contexts gives: prefill, ragged rows and decoding."""
    got = []
    for limit in (0, 1 << 40):
        monkeypatch.setattr("etude.learn.model.cache.LONG_CONTEXT", limit)
        cache, slots = KVCache(any_model.config, slots=5, max_len=48), torch.tensor([4, 0, 2])
        first, _ = any_model.extend(ids[:, :20], torch.tensor([20, 3, 11]), slots, cache)
        second, _ = any_model.extend(ids[:, 20:21], torch.ones(3, dtype=torch.long), slots, cache)
        got.append(torch.cat((first, second)))
    assert (got[0] - got[1]).abs().max() <= TOLERANCE


@pytest.mark.sample(1)
@pytest.mark.parametrize("long_context", [0, 1 << 17], ids=["contexts read in place", "contexts copied"])
@settings(
    max_examples=settings.default.max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_sessions_that_share_a_beginning_get_the_logits_of_their_own_full_forward(
    data: st.DataObject, long_context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two prompts, each computed once and copied to other sessions, whose keys are then read once for all of them; and a session of its own."""
    monkeypatch.setattr(cache_module, "SHARED_CONTEXT", 3)
    monkeypatch.setattr(cache_module, "LONG_CONTEXT", long_context)
    model = MODELS["gqa-sparse"]
    ids = torch.randint(0, model.config.vocab_size, (6, 24), generator=torch.Generator().manual_seed(0))
    ids[1, :10], ids[2, :7], ids[4, :12] = ids[0, :10], ids[0, :7], ids[3, :12]
    cache, held = KVCache(model.config, slots=6, max_len=24), torch.tensor([10, 0, 0, 12, 0, 5])
    model.extend(ids[[0, 3, 5], :12], held[[0, 3, 5]], torch.tensor([0, 3, 5]), cache)
    for source, target, length in ((0, 1, 10), (1, 2, 7), (3, 4, 12)):
        cache.copy(source, target, length)
        held[target] = length
    assert [(s.rows.tolist(), s.length) for s in cache.alike(torch.arange(6))] == [
        ([0, 1, 2], 7),
        ([3, 4], 12),
        ([5], 0),
    ]
    last = torch.zeros(6, model.config.vocab_size)
    while (held < 24).any():
        left = torch.nonzero(held < 24).flatten().tolist()
        chosen = torch.tensor(sorted(data.draw(st.sets(st.sampled_from(left), min_size=1))))
        counts = torch.tensor([data.draw(st.integers(1, min(3, int(24 - held[r])))) for r in chosen])
        padded = torch.zeros(len(chosen), int(counts.max()), dtype=torch.long)
        for i, r in enumerate(chosen):
            padded[i, : counts[i]] = ids[r, held[r] : held[r] + counts[i]]
        last[chosen], _ = model.extend(padded, counts, chosen, cache)
        held[chosen] += counts
    assert (last - whole(model, ids)[0][:, -1]).abs().max() <= TOLERANCE


def test_what_a_slot_forgets_it_no_longer_shares(
    model: CausalLM, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "SHARED_CONTEXT", 3)
    cache, slots = KVCache(model.config, slots=3, max_len=48), torch.arange(3)
    model.extend(ids[:1, :20], torch.tensor([20]), torch.tensor([0]), cache)
    cache.copy(0, 1, 12)
    cache.copy(1, 2, 9)
    assert [(s.rows.tolist(), s.length) for s in cache.alike(slots)] == [([0, 1, 2], 9)]
    cache.cut(torch.tensor([1]), torch.tensor([5]))
    assert [s.length for s in cache.alike(slots)] == [5]
    cache.clear(1, keep=2)
    assert [(s.rows.tolist(), s.length) for s in cache.alike(slots)] == [([0, 2], 9), ([1], 0)]
    cache.wipe(0, 1)
    assert cache.alike(slots) == []
    cache.copy(2, 1, 9)
    assert [(s.rows.tolist(), s.length) for s in cache.alike(slots)] == [([0], 0), ([1, 2], 9)]
    cache.forget()
    assert cache.alike(slots) == [] and not cache.lengths.any()


def test_large_contexts_of_neighbouring_slots_are_read_in_place_and_those_of_others_copied(monkeypatch):
    monkeypatch.setattr("etude.learn.model.cache.READ_IN_PLACE", 0)
    config = ModelConfig.from_settings(ModelSettings.model_validate({"family": "llama", "layers": 1}), 50)
    cache = KVCache(config, slots=4, max_len=8)
    cache.buffer.normal_()
    cache.lengths.fill_(5)
    span = CacheSpan(cache, torch.arange(4), torch.ones(4, dtype=torch.long), 1)
    buffer = cache.buffer[0]
    for rows in (None, torch.tensor([0, 2]), torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([0, 3])):
        found = span._contexts(buffer, rows, 1)
        expected = buffer[torch.arange(4) if rows is None else rows][:, 1:6]
        assert torch.equal(found, expected), "groups of rows that begin at the same slot differ"
        near = rows is None or rows.tolist() in ([0, 1], [2, 3])
        assert (found.untyped_storage().data_ptr() == buffer.untyped_storage().data_ptr()) == near

"""A class of transformers behind the interface of our model computes what transformers computes: logits, gradients, decoding, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from family_lab import transformers_model
from torch.nn import functional as F
from transformers import AutoModelForCausalLM
from transformers_lab import ATTENTION, SHAPES, peer, tokens

from etude.learn.engine.core import EngineCore
from etude.learn.engine.probe import MAX_MEAN_K3, compare, sample_probe
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.checkpoint import load_checkpoint, load_config, loadable, save_checkpoint
from etude.learn.model.compute import computing
from etude.learn.model.count import count_parameters
from etude.learn.model.hf_errors import UnsupportedConfig
from etude.learn.model.init import with_drafts
from etude.learn.model.mask import DocumentMask
from etude.learn.model.transformers_backend.attention import MaskRule, UnsupportedAttention, attention, window_of
from etude.learn.model.transformers_backend.config import TransformersConfig
from etude.learn.model.transformers_backend.language_model import TransformersLM
from etude.learn.train.shared_prefix import TokenTree, TreeMask
from etude.learn.weights.hf_files import CheckpointError

# Of the logits' standard deviation. Two attention kernels of transformers differ by as much on these models.
TOLERANCE, DECODE_TOLERANCE = 2e-6, 1e-5
# On this model transformers' own cached decoding differs from its whole forward by 1.5e-5.
OWN_DECODE_TOLERANCE = {"gemma4_text": 2e-5}
LENGTHS = (21, 13)

# Sparse attention in the default suite by one class of three; the others nightly.
SLOW = ("deepseek_v32", "deepseek_v4")
CLASSES = [pytest.param(name, marks=pytest.mark.nightly) if name in SLOW else name for name in SHAPES]
all_classes = pytest.mark.parametrize("model_type", CLASSES)


def rms(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert expected.std() > 0.02
    found, expected = found.detach(), expected.detach()
    return float(((found - expected) / expected.std()).square().mean().sqrt())


def packed(*texts: torch.Tensor) -> tuple[torch.Tensor, DocumentMask]:
    """Texts (1, T_i) one after another in one row."""
    counts = torch.tensor([text.shape[1] for text in texts])
    return torch.cat(texts, 1), DocumentMask.packed(torch.repeat_interleave(torch.arange(len(texts)), counts)[None])


@all_classes
@torch.no_grad()
def test_logits_of_packed_documents_equal_those_of_each_alone_in_transformers(model_type: str) -> None:
    inner = peer(model_type)
    texts = [tokens(n, length) for n, length in enumerate(LENGTHS)]
    alone = [inner(text, use_cache=False).logits[0] for text in texts]
    model = TransformersLM(inner)
    assert (model.way == "with our attention") == (model_type in ATTENTION), model.way
    ids, mask = packed(*texts)
    for found, expected in zip(model(ids, mask).logits[0].split(LENGTHS), alone, strict=True):
        assert rms(found, expected) <= TOLERANCE


@all_classes
@torch.no_grad()
def test_no_token_reaches_another_document(model_type: str) -> None:
    model = TransformersLM(peer(model_type))
    first, second, other = tokens(0, 9), tokens(1, 12), tokens(2, 9)
    found = [model(*packed(text, second)).logits[0, 9:] for text in (first, other)]
    assert rms(*found) <= 1e-6  # experts' sums have another order with other neighbours
    assert rms(model(first).logits, model(other).logits) > 0.1


@pytest.mark.sample(8)
@all_classes
def test_gradients_equal_those_of_transformers(model_type: str) -> None:
    text = tokens(3, 30)
    inner = peer(model_type)
    F.cross_entropy(inner(text, use_cache=False).logits[0, :-1], text[0, 1:]).backward()
    expected = {name: p.grad.clone() for name, p in inner.named_parameters() if p.grad is not None}
    for recompute in (False, True):
        model = TransformersLM(peer(model_type))
        with computing(model.train(), "fp32", recompute):
            hidden = model(text, logits_at=torch.zeros_like(text, dtype=torch.bool)).hidden[0]
            F.cross_entropy(model.head(hidden[:-1]), text[0, 1:]).backward()
        found = {name: p.grad for name, p in model.inner.named_parameters() if p.grad is not None}
        assert found.keys() == expected.keys()
        for name, gradient in expected.items():
            bound = 1e-5 * max(1.0, float(gradient.abs().max()))
            assert (found[name] - gradient).abs().max() <= bound, name


@all_classes
@torch.no_grad()
def test_rows_that_begin_alike_cost_their_beginning_once_and_give_the_same_states(model_type: str) -> None:
    model = TransformersLM(peer(model_type))
    start = tokens(0, 70)[0].tolist()
    rows = [start + tokens(n, 4 + 3 * n)[0].tolist() for n in (1, 2, 3)]
    tree = TokenTree([torch.tensor(row).numpy() for row in rows], [None] * 3)
    states = model(torch.from_numpy(tree.ids)[None], TreeMask(tree)).hidden[0]
    for row, nodes in zip(rows, tree.rows, strict=True):
        expected = model(torch.tensor([row])).hidden[0]
        assert rms(states[torch.from_numpy(nodes)], expected) <= DECODE_TOLERANCE


@pytest.mark.sample(8)
@all_classes
@pytest.mark.parametrize("long", [False, True], ids=["copied", "in place"])
def test_decoding_behind_a_cache_gives_the_logits_of_the_whole(
    model_type: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etude.learn.model.cache.LONG_CONTEXT", 0 if long else 1 << 40)
    model = TransformersLM(peer(model_type))
    ids = torch.cat((tokens(1, 40), tokens(2, 40)))
    with torch.no_grad():
        whole = model(ids).logits
    cache, slots, at = model.new_cache(3, 64, torch.float32), torch.tensor([2, 0]), torch.zeros(2, dtype=torch.long)
    for counts in ([5, 8], [1, 1], [1, 1], [9, 2], [1, 1], [12, 7], [1, 1]):
        new = torch.zeros(2, max(counts), dtype=torch.long)
        for row, count in enumerate(counts):
            new[row, :count] = ids[row, at[row] : at[row] + count]
        step, _ = model.extend(new, torch.tensor(counts), slots, cache)
        at += torch.tensor(counts)
        expected = torch.stack([whole[row, at[row] - 1] for row in range(2)])
        tolerance = OWN_DECODE_TOLERANCE.get(model_type, DECODE_TOLERANCE)
        assert (step - expected).abs().max() <= tolerance * whole.std()


@pytest.mark.sample(4)
@all_classes
def test_the_engine_reports_the_logprobs_of_the_trainer(model_type: str) -> None:
    model = TransformersLM(peer(model_type))
    core = EngineCore(model, EngineSettings(max_slots=6, max_batch=4, max_len=96))
    found = compare(model, sample_probe(core))
    assert found.tokens == 768 and found.mean_k3 <= MAX_MEAN_K3 and found.routes_equal


@pytest.mark.sample(4)
@all_classes
def test_a_checkpoint_is_read_back_bit_for_bit_by_us_and_by_transformers(model_type: str, tmp_path: Path) -> None:
    theirs = peer(model_type)
    theirs.save_pretrained(tmp_path / "theirs")
    model = load_checkpoint(tmp_path / "theirs")
    assert isinstance(model, TransformersLM) and isinstance(load_config(tmp_path / "theirs"), TransformersConfig)
    save_checkpoint(model, tmp_path / "ours")
    back, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "ours", dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    again = load_checkpoint(tmp_path / "ours")
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
        assert torch.equal(again.state_dict()[f"inner.{name}"], tensor), name
    assert loadable(tmp_path / "ours").endswith(model.way) and model.config.family in loadable(tmp_path / "ours")
    count = count_parameters(model.config)
    assert count.total == sum(p.numel() for p in model.parameters()) and count.active <= count.total
    with torch.no_grad():
        text = tokens(0, 12)
        assert rms(again(text).logits, theirs(text).logits) <= TOLERANCE


def test_llama_through_transformers_equals_our_own_class(tmp_path: Path) -> None:
    transformers_model("llama", 3).save_pretrained(tmp_path)  # type: ignore[operator]
    ours, theirs = load_checkpoint(tmp_path), load_checkpoint(tmp_path, impl="transformers")
    assert not isinstance(ours, TransformersLM) and isinstance(theirs, TransformersLM)
    ids, mask = packed(tokens(0, 21), tokens(1, 13))
    losses = []
    for model in (ours, theirs):
        logits = model(ids, mask).logits
        F.cross_entropy(logits[0, :-1], ids[0, 1:]).backward()
        losses.append(logits.detach())
    assert rms(losses[1], losses[0]) <= TOLERANCE
    found, expected = theirs.embed.weight.grad, ours.embed.weight.grad
    assert found is not None and expected is not None
    assert (found - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("model_type", ["olmoe", "qwen3_next", "dots1", "gemma4_text", "glm_moe_dsa", "deepseek_v4"])
def test_experts_are_recorded_and_replayed_with_live_weights(model_type: str) -> None:
    model, (ids, mask) = TransformersLM(peer(model_type)), packed(tokens(0, 21), tokens(1, 13))
    plain = model(ids, mask, return_routes=True)
    assert plain.routes is not None and plain.routes.shape == (1, 34, *model._route_shape) and model.moe_index
    same = model(ids, mask, forced_experts=plain.routes, return_routes=True)
    assert rms(same.logits, plain.logits) <= 1e-6
    other = (plain.routes.int() + 1) % model.config.experts
    for recompute in (False, True):
        model.recompute = recompute
        replayed = model(ids, mask, forced_experts=other, return_routes=True)
        assert replayed.routes is not None and torch.equal(replayed.routes.int(), other)
        assert rms(replayed.logits, plain.logits) > 1e-2
        model.zero_grad()
        replayed.logits.square().sum().backward()
        gradients = [
            p.grad for name, p in model.named_parameters() if name.endswith(("mlp.gate.weight", "router.proj.weight"))
        ]
        assert gradients and all(gradient is not None and bool(gradient.any()) for gradient in gradients)
    free = model(ids, mask, forced_experts=torch.full_like(other, -1))
    assert rms(free.logits, plain.logits) <= 1e-6


def test_a_router_that_does_not_return_what_its_topk_chose_is_not_understood() -> None:
    inner = peer("olmoe")
    for layer in inner.model.layers:
        plain = layer.mlp.gate.forward
        layer.mlp.gate.forward = lambda *given, plain=plain: (*plain(*given)[:2], plain(*given)[2].flip(-1))
    model = TransformersLM(inner)
    assert not model.moe_index and not model.routers() and model.way.endswith("its choice of experts is not recorded")


def test_a_model_type_that_nothing_computes_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nonesuch"}')
    with pytest.raises(
        UnsupportedConfig, match='model_type is .nonesuch.; supported are .* model.impl = "transformers"'
    ):
        load_config(tmp_path)
    with pytest.raises(UnsupportedConfig, match="transformers can't read config.json"):
        load_config(tmp_path, "transformers")


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "stablelm"}')
    monkeypatch.setattr("etude.learn.model.transformers_backend.config.find_spec", lambda _: None)
    with pytest.raises(UnsupportedConfig, match=r"etude\[transformers\]"):
        load_config(tmp_path)
    with pytest.raises(UnsupportedConfig, match=r"is not installed; pip install .etude\[transformers\]"):
        load_checkpoint(tmp_path, impl="transformers")


def test_products_in_bf16_keep_weights_and_logits_in_fp32_and_come_close(tmp_path: Path) -> None:
    model, text = TransformersLM(peer("stablelm")), tokens(0, 40)
    expected = model(text).logits
    with computing(model, "bf16", True):
        logits = model(text).logits
        logits.sum().backward()
    assert logits.dtype == torch.float32 and model.embed.weight.dtype == torch.float32
    assert 1e-4 < rms(logits, expected) < 3e-2
    core = EngineCore(model, EngineSettings(max_slots=4, max_batch=4, max_len=96, compute="bf16"))
    with computing(model, "bf16", False):
        assert compare(model, sample_probe(core)).mean_k3 < 1e-3


def test_a_longrope_is_read_up_to_its_original_context_where_no_document_changes_another() -> None:
    rope = {
        **dict(rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 4, long_factor=[9.0] * 4),
        "original_max_position_embeddings": 32,
    }
    model = TransformersLM(peer("phi3", rope_parameters=rope, original_max_position_embeddings=32))
    assert model.config.context_length == 32
    with pytest.raises(ValueError, match="33 tokens, and the model has 32 positions"):
        model(tokens(0, 33))


def test_what_a_class_asks_of_its_attention_and_is_not_computed_is_refused() -> None:
    model = TransformersLM(peer("stablelm"))
    module = next(iter(model._attention.layers))
    q, k = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8)
    with pytest.raises(UnsupportedAttention, match="position_bias"):
        attention(module, q, k, k, None, position_bias=torch.zeros(1))
    with pytest.raises(UnsupportedAttention, match="dropout"):
        attention(module, q, k, k, None, dropout=0.1)


def test_the_rule_of_a_mask_is_read_as_a_window_or_refused() -> None:
    assert window_of(lambda b, h, q, kv: kv <= q, 100) == 0
    assert window_of(lambda b, h, q, kv: (kv <= q) & (kv > q - 7), 100) == 7
    assert window_of(lambda b, h, q, kv: (kv <= q) & (kv > q - 700), 100) == 0  # wider than the model reads
    for odd in (lambda b, h, q, kv: kv < q + 2, lambda b, h, q, kv: (kv <= q) & (kv // 8 == q // 8)):
        with pytest.raises(UnsupportedAttention, match="no causal one"):
            window_of(odd, 100)


def test_a_mask_that_a_class_cuts_is_read_only_where_nothing_is_cut_off() -> None:
    rule = MaskRule(lambda b, h, q, kv: kv <= q)
    assert rule[:, :, slice(-0, None), :] is rule and window_of(rule, 100) == 0
    for cut in ((slice(None), 0), (slice(-1, None),)):
        with pytest.raises(UnsupportedAttention, match="cuts its mask"):
            rule[cut]


def test_what_only_our_own_classes_have_is_refused_with_the_setting_named() -> None:
    model = TransformersLM(peer("stablelm"))
    with pytest.raises(ValueError, match='stablelm is computed by transformers .model.impl = "transformers"'):
        with_drafts(model, 1, 0)


def test_code_of_a_checkpoint_never_runs(tmp_path: Path) -> None:
    """transformers' own class of the type computes it; a type that it does not have is refused."""
    peer("stablelm").save_pretrained(tmp_path)
    plain = json.loads((tmp_path / "config.json").read_text())
    code = "from pathlib import Path\n\nPath(__file__).with_name('ran').touch()\n"
    for name in ("evil.py", "configuration_evil.py"):
        (tmp_path / name).write_text(code)
    mapped = {"AutoConfig": "configuration_evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (tmp_path / "config.json").write_text(json.dumps(plain | {"auto_map": mapped}))
    model = load_checkpoint(tmp_path)
    assert isinstance(model, TransformersLM) and not (tmp_path / "ran").exists()
    save_checkpoint(model, tmp_path / "saved")
    assert "auto_map" not in json.loads((tmp_path / "saved" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(plain | {"auto_map": mapped, "model_type": "evil"}))
    for impl in ("auto", "transformers"):
        with pytest.raises(UnsupportedConfig, match="no class of evil: code of a checkpoint is never run|is 'evil'"):
            load_checkpoint(tmp_path, impl=impl)
    assert not (tmp_path / "ran").exists()


def test_weights_that_the_class_misses_are_named_instead_of_drawn(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    peer("stablelm").save_pretrained(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"model.layers.1.mlp.up_proj.weight \(1 such\) is missing"):
        load_checkpoint(tmp_path)

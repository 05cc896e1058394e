"""Draft layers equal transformers' MtpModel, lie on disk in DeepSeek's layout, and leave the trunk alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from etude.learn.model.cache import CacheSpan, KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, load_config, save_checkpoint
from etude.learn.model.checkpoint_tensors import read_tensors
from etude.learn.model.config import ModelConfig
from etude.learn.model.count import count_parameters
from etude.learn.model.hf_keys import CheckpointError, MissingTensors
from etude.learn.model.init import adopt_drafts, draw, with_drafts
from etude.learn.model.mask import DocumentMask
from etude.learn.model.settings import ModelSettings, YarnSettings

TOLERANCE = 1e-5
DEPTHS = 2


@pytest.fixture
def drafted(any_model: CausalLM) -> CausalLM:
    """Draft layers whose norms matter."""
    return lively(with_drafts(any_model, DEPTHS, seed=3))


def lively(model: CausalLM) -> CausalLM:
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for tensor in model.mtp.state_dict().values():
            if tensor.ndim == 1:
                tensor.add_(torch.empty(tensor.shape).normal_(0, 0.1, generator=generator))
    return model


def draft_states(model: CausalLM, ids: Tensor, mask: DocumentMask | None = None) -> list[Tensor]:
    """Hidden states (B, T, H) of every depth."""
    mask = mask or DocumentMask.rows(*ids.shape)
    hidden, turns = model(ids, mask).hidden.flatten(0, 1), model.rope.at(mask.positions.flatten())
    states = []
    for depth, layer in enumerate(model.mtp, 1):
        hidden, _ = layer(hidden, model.embed(mask.ahead(ids, depth)).flatten(0, 1), turns, mask)
        states.append(hidden.view(*ids.shape, -1))
    return states


def their_drafts(model: CausalLM, folder: Path) -> tuple[torch.nn.Module, MtpModel]:
    """transformers' trunk and draft layers, loaded from our files.

    It finds the tensors by a pattern that names the layer of the published model, and has no such pattern for Qwen3-MoE,
    whose draft layers come after Qwen's rule of dense layers.
    """
    save_checkpoint(model, folder)
    peer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    first = model.config.layers
    peer._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.{first + depth}\." for depth in range(DEPTHS)]
    if model.config.family == "qwen3_moe":
        peer.config.num_mtp_layers, peer.config.mlp_only_layers = DEPTHS, []
        peer.config.decoder_sparse_step = 1
    return peer, MtpModel.from_pretrained(peer)


def test_draft_logits_equal_transformers(drafted: CausalLM, ids: Tensor, tmp_path: Path) -> None:
    peer, mtp = their_drafts(drafted, tmp_path / "c")
    with torch.no_grad():
        # What `generate(use_mtp=True)` hands over is the last hidden state, after the final norm.
        trunk = peer(ids, output_hidden_states=True).hidden_states[-1]
        assert (trunk - drafted(ids).hidden).abs().max() <= TOLERANCE
        cache, states = MtpCache(config=peer.config.get_mtp_config()), draft_states(drafted, ids)
        theirs = trunk[:, :-DEPTHS]
        for depth in range(1, DEPTHS + 1):
            seen = slice(depth, ids.shape[1] - DEPTHS + depth)
            places = torch.arange(ids.shape[1])[seen].expand(ids.shape[0], -1)
            theirs = mtp.forward_layer(depth - 1, theirs, places, cache, input_ids=ids[:, seen])
            logits = drafted.head(states[depth - 1][:, :-DEPTHS])
            assert logits.std() > 0.3
            assert (logits - mtp.shared_head(theirs)).abs().max() <= TOLERANCE


def test_transformers_reads_the_file_as_it_does_the_published_one(tmp_path: Path) -> None:
    """Its pattern names layer 61; with as many blocks nothing has to be put right, and it drafts on its own."""
    settings = ModelSettings(
        hidden_size=16, layers=61, heads=2, kv_lora_rank=8, nope_dim=4, rope_dim=4, v_dim=4, dense_intermediate=16,
        moe_intermediate=8, experts=2, init_head_std=0.3, max_positions=64,
    )  # fmt: skip
    model = CausalLM(ModelConfig.from_settings(settings, 32))
    draw(model, settings)
    save_checkpoint(lively(with_drafts(model, 1, seed=1)), tmp_path / "c")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "c", dtype=torch.float32)
    ids = torch.arange(6)[None]
    plain = peer.generate(ids, max_new_tokens=8, do_sample=False)
    assert torch.equal(peer.generate(ids, max_new_tokens=8, do_sample=False, use_mtp=True), plain)


def test_round_trip_is_bit_exact_and_the_trunk_loads_alone(drafted: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(drafted, tmp_path / "c")
    whole, trunk = load_checkpoint(tmp_path / "c", drafts=True), load_checkpoint(tmp_path / "c")
    assert whole.config == drafted.config and load_config(tmp_path / "c").mtp_layers == DEPTHS
    assert trunk.config.mtp_layers == len(trunk.mtp) == 0
    state = drafted.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in whole.state_dict().items())
    assert {name for name in state if not name.startswith("mtp.")} == trunk.state_dict().keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in trunk.state_dict().items())


def test_files_hold_the_published_layout(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(with_drafts(mla, 1, seed=0), tmp_path / "c")
    assert json.loads((tmp_path / "c" / "config.json").read_text())["num_nextn_predict_layers"] == 1
    behind = {key.removeprefix("model.layers.3.") for key in read_tensors(tmp_path / "c") if ".layers.3." in key}
    assert {"enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight"} <= behind
    assert {"self_attn.kv_b_proj.weight", "mlp.experts.7.up_proj.weight", "mlp.gate.weight"} <= behind
    assert not any("embed_tokens" in key or "shared_head.head" in key for key in behind)


def test_published_copies_of_embedding_and_head_are_passed_over(mla: CausalLM, tmp_path: Path) -> None:
    drafted = with_drafts(mla, 1, seed=0)
    save_checkpoint(drafted, tmp_path / "c")
    file = tmp_path / "c" / "model-00001-of-00001.safetensors"
    tensors = load_file(file)
    tensors["model.layers.3.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    tensors["model.layers.3.shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    save_file(tensors, file)
    (file.parent / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(tensors, file.name)})
    )
    back = load_checkpoint(tmp_path / "c", drafts=True)
    assert all(torch.equal(tensor, drafted.state_dict()[name]) for name, tensor in back.state_dict().items())


def test_another_trunk_carries_the_draft_layers_on(drafted: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(drafted, tmp_path / "sft")
    moved = load_checkpoint(tmp_path / "sft")
    with torch.no_grad():
        moved.head.weight.mul_(2)
    save_checkpoint(moved, tmp_path / "rl", tokenizer_from=tmp_path / "sft", drafts_from=tmp_path / "sft")
    back = load_checkpoint(tmp_path / "rl", drafts=True)
    assert torch.equal(back.head.weight, moved.head.weight)
    assert all(torch.equal(t, drafted.mtp.state_dict()[name]) for name, t in back.mtp.state_dict().items())
    save_checkpoint(moved, tmp_path / "plain", drafts_from=tmp_path / "rl")
    save_checkpoint(load_checkpoint(tmp_path / "plain"), tmp_path / "none")
    save_checkpoint(moved, tmp_path / "still-none", drafts_from=tmp_path / "none")
    assert load_config(tmp_path / "still-none").mtp_layers == 0


def test_a_trunk_that_learnt_on_and_was_stretched_adopts_draft_layers(any_model, ids: Tensor, tmp_path: Path) -> None:
    drafted = lively(with_drafts(any_model, DEPTHS, seed=3))
    save_checkpoint(drafted, tmp_path / "mtp")
    longer = any_model.config.model_copy(update={"max_positions": 1024, "yarn": YarnSettings(original_positions=256)})
    trunk = CausalLM(longer)
    trunk.load_state_dict(any_model.state_dict())
    with torch.no_grad():
        trunk.head.weight.mul_(2)
    adopted = adopt_drafts(trunk, tmp_path / "mtp")
    assert adopted.config == longer.model_copy(update={"mtp_layers": DEPTHS})
    assert all(torch.equal(tensor, adopted.state_dict()[name]) for name, tensor in trunk.state_dict().items())
    assert all(torch.equal(t, adopted.mtp.state_dict()[name]) for name, t in drafted.mtp.state_dict().items())
    save_checkpoint(trunk, tmp_path / "bare")
    with pytest.raises(CheckpointError, match="bare has no draft layers"):
        adopt_drafts(trunk, tmp_path / "bare")


def test_draft_layers_that_do_not_fit_are_refused(mla: CausalLM, make_model, tmp_path: Path) -> None:
    drafted = with_drafts(mla, 1, seed=0)
    save_checkpoint(drafted, tmp_path / "c")
    with pytest.raises(CheckpointError, match="already has 1 draft layers"):
        save_checkpoint(drafted, tmp_path / "d", drafts_from=tmp_path / "c")
    with pytest.raises(CheckpointError, match="another shape"):
        save_checkpoint(make_model("gqa"), tmp_path / "d", drafts_from=tmp_path / "c")
    with pytest.raises(ValueError, match="already has 1 draft layers"):
        with_drafts(drafted, 1, seed=0)
    tensors = load_file(tmp_path / "c" / "model-00001-of-00001.safetensors")
    del tensors["model.layers.3.enorm.weight"]
    save_file(tensors, tmp_path / "c" / "model-00001-of-00001.safetensors")
    index = tmp_path / "c" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(tensors, "model-00001-of-00001.safetensors")}))
    with pytest.raises(MissingTensors, match=r"model\.layers\.3\.enorm\.weight"):
        load_checkpoint(tmp_path / "c", drafts=True)


def test_new_draft_layers_leave_the_trunk_bit_identical(any_model: CausalLM, ids: Tensor) -> None:
    drafted, again, other = (with_drafts(any_model, 1, seed) for seed in (0, 0, 1))
    for name, tensor in any_model.state_dict().items():
        assert torch.equal(drafted.state_dict()[name], tensor), name
    with torch.no_grad():
        assert torch.equal(drafted(ids).logits, any_model(ids).logits)
    matrix = [model.mtp[0].eh_proj.weight for model in (drafted, again, other)]  # type: ignore[union-attr]
    assert torch.equal(matrix[0], matrix[1]) and not torch.equal(matrix[0], matrix[2])


def test_extending_a_cache_gives_the_same_drafts(drafted: CausalLM, ids: Tensor) -> None:
    """The depths behind one cache, in spans of other lengths than the whole."""
    layers, (batch, length) = list(drafted.mtp), ids.shape
    cache = KVCache(drafted.config, slots=batch, max_len=64)
    assert cache.buffer.shape[0] == drafted.config.layers + DEPTHS
    with torch.inference_mode():
        hidden, wanted = drafted(ids).hidden, draft_states(drafted, ids)
        found: list[list[Tensor]] = [[], []]
        for first, last in ((0, 17), (17, 18), (18, length)):
            span = CacheSpan(cache, torch.arange(batch), torch.full((batch,), last - first), last - first)
            state, turns = hidden[:, first:last].flatten(0, 1), drafted.rope.at(span.positions)
            for depth, layer in enumerate(layers, 1):
                seen = drafted.embed(DocumentMask.rows(*ids.shape).ahead(ids, depth)[:, first:last].flatten())
                state = layer.extend(state, seen, turns, span)  # type: ignore[operator]
                found[depth - 1].append(state.view(batch, last - first, -1))
            span.commit()
    for ours, theirs in zip(found, wanted, strict=True):
        assert (torch.cat(ours, 1) - theirs).abs().max() <= TOLERANCE


def test_a_packed_document_drafts_as_it_would_alone(drafted: CausalLM, ids: Tensor) -> None:
    documents = (torch.arange(ids.shape[1]) >= 23).long().expand_as(ids)
    packed = draft_states(drafted, ids, DocumentMask.packed(documents))
    alone = draft_states(drafted, ids[:, :23])
    for depth, (one, other) in enumerate(zip(packed, alone, strict=True), 1):
        assert (one[:, : 23 - depth] - other[:, : 23 - depth]).abs().max() <= TOLERANCE


def test_ahead_moves_left_and_repeats_the_end() -> None:
    mask, ids = DocumentMask.rows(1, 3), torch.tensor([[1, 2, 3]])
    assert mask.ahead(ids, 1).tolist() == [[2, 3, 3]]
    assert mask.ahead(ids, 4).tolist() == [[3, 3, 3]]


def test_draft_layers_are_counted_apart(any_model: CausalLM) -> None:
    plain, drafted = any_model.config, with_drafts(any_model, 1, seed=0)
    count = count_parameters(drafted.config)
    assert (count.total, count.active) == (count_parameters(plain).total, count_parameters(plain).active)
    assert count.drafts == sum(p.numel() for p in drafted.parameters()) - count.total
    assert count_parameters(plain).drafts == 0

"""A checkpoint comes back bit for bit, or is refused by name."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from etude.learn.model import checkpoint
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, load_config, save_checkpoint
from etude.learn.model.checkpoint_tensors import read_tensors
from etude.learn.model.hf_config import UnsupportedConfig
from etude.learn.model.hf_keys import CheckpointError, MissingTensors, UnexpectedTensors, WrongShape

FILE = "model-00001-of-00001.safetensors"


def same(a: CausalLM, b: CausalLM) -> bool:
    return a.config == b.config and all(torch.equal(t, b.state_dict()[n]) for n, t in a.state_dict().items())


def rewrite(folder: Path, change) -> None:
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file(tensors, folder / FILE)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(tensors, FILE)}))


def test_round_trip_is_bit_exact(any_model: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(any_model, tmp_path / "c")
    assert same(load_checkpoint(tmp_path / "c"), any_model)


def test_files_are_what_readers_look_for(mla: CausalLM, tmp_path: Path) -> None:
    (tmp_path / "tok").mkdir()
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "end": 2}, unk_token="a"))
    tokenizer.save(str(tmp_path / "tok" / "tokenizer.json"))
    save_checkpoint(mla, tmp_path / "c", tokenizer_from=tmp_path / "tok", extra_config={"eos_token_id": 2})
    config = json.loads((tmp_path / "c" / "config.json").read_text())
    assert config["architectures"] == ["DeepseekV3ForCausalLM"] and config["eos_token_id"] == 2
    assert config["topk_method"] == "noaux_tc" and config["scoring_func"] == "sigmoid"
    assert (tmp_path / "c" / "tokenizer.json").read_bytes() == (tmp_path / "tok" / "tokenizer.json").read_bytes()
    index = json.loads((tmp_path / "c" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(read_tensors(tmp_path / "c"))
    assert "model.layers.1.mlp.experts.3.gate_proj.weight" in index["weight_map"]
    assert "model.layers.1.mlp.gate.e_score_correction_bias" in index["weight_map"]
    with safe_open(tmp_path / "c" / FILE, "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_the_tokenizers_ids_go_from_checkpoint_to_checkpoint(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "a", extra_config={"eos_token_id": 2})
    save_checkpoint(mla, tmp_path / "b", tokenizer_from=tmp_path / "a")
    assert json.loads((tmp_path / "b" / "config.json").read_text())["eos_token_id"] == 2


def test_many_shards_are_one_model(mla: CausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 20_000)
    save_checkpoint(mla, tmp_path / "c")
    assert len(list((tmp_path / "c").glob("*.safetensors"))) > 3
    assert same(load_checkpoint(tmp_path / "c"), mla)
    next((tmp_path / "c").glob("model-00002*")).unlink()
    with pytest.raises(CheckpointError, match="model-00002.*incomplete"):
        load_checkpoint(tmp_path / "c")


def test_fused_expert_tensors_are_read_too(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "c")
    state = mla.state_dict()

    def fuse(tensors: dict[str, torch.Tensor]) -> None:
        for key in [key for key in tensors if ".mlp.experts." in key]:
            del tensors[key]
        for layer in (1, 2):
            experts = f"blocks.{layer}.feed.experts."
            tensors[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = state[experts + "gate_up"]
            tensors[f"model.layers.{layer}.mlp.experts.down_proj"] = state[experts + "down"]

    rewrite(tmp_path / "c", fuse)
    assert same(load_checkpoint(tmp_path / "c"), mla)


def test_prediction_heads_behind_the_last_layer_are_left_out(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "c")
    rewrite(tmp_path / "c", lambda t: t.update({"model.layers.3.eh_proj.weight": torch.zeros(2, 2)}))
    assert same(load_checkpoint(tmp_path / "c"), mla)


def test_missing_tensors_are_named(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "c")
    rewrite(tmp_path / "c", lambda t: t.pop("model.layers.2.mlp.experts.5.up_proj.weight"))
    with pytest.raises(MissingTensors, match=r"model\.layers\.2\.mlp\.experts\.5\.up_proj\.weight is missing"):
        load_checkpoint(tmp_path / "c")


def test_unexpected_tensors_are_named(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "c")
    rewrite(tmp_path / "c", lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(2)}))
    with pytest.raises(UnexpectedTensors, match=r"model\.layers\.0\.self_attn\.q_proj\.bias is not part"):
        load_checkpoint(tmp_path / "c")


def test_wrong_shapes_are_named(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "c")
    rewrite(tmp_path / "c", lambda t: t.update({"model.norm.weight": torch.zeros(47)}))
    with pytest.raises(WrongShape, match=r"model\.norm\.weight is \(47,\) in the checkpoint, the model needs \(48,\)"):
        load_checkpoint(tmp_path / "c")
    save_checkpoint(mla, tmp_path / "c")
    rewrite(tmp_path / "c", lambda t: t.update({"lm_head.weight": torch.zeros(96, 48)}))
    with pytest.raises(CheckpointError, match="has 96 rows, and config.json says vocab_size 97"):
        load_checkpoint(tmp_path / "c")


def test_damage_is_reported(mla: CausalLM, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a checkpoint directory"):
        load_checkpoint(tmp_path / "nowhere")
    save_checkpoint(mla, tmp_path / "c")
    (tmp_path / "c" / FILE).write_bytes((tmp_path / "c" / FILE).read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(tmp_path / "c")
    (tmp_path / "c" / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="not JSON"):
        load_config(tmp_path / "c")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "nonesuch"),
        ("scoring_func", "softmax"),
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("final_logit_softcapping", 30.0),
        ("a_key_of_tomorrow", 1),
        ("quantization_config", {"quant_method": "fp8"}),
        ("rope_parameters", {"rope_type": "axial", "factor": 8.0}),
        ("kv_lora_rank", None),
        ("n_group", 3),
    ],
)
def test_what_the_code_does_not_compute_is_refused(mla: CausalLM, tmp_path: Path, key: str, value: object) -> None:
    save_checkpoint(mla, tmp_path / "c", extra_config={key: value})
    with pytest.raises(
        UnsupportedConfig, match=key if key not in ("rope_parameters", "n_group") else "rope_type|groups"
    ):
        load_config(tmp_path / "c")


def test_a_failed_save_leaves_the_former_checkpoint(
    mla: CausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(mla, tmp_path / "c")
    former = {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()}

    def full_disk(*_args: object, **_kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(mla, tmp_path / "c")
    assert {p.name: p.read_bytes() for p in (tmp_path / "c").iterdir()} == former
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_save_replaces_the_former_checkpoint_whole(mla: CausalLM, model: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "c")
    (tmp_path / "c" / "leftover").write_text("old")
    save_checkpoint(model, tmp_path / "c")
    assert same(load_checkpoint(tmp_path / "c"), model)
    assert not (tmp_path / "c" / "leftover").exists() and [p.name for p in tmp_path.iterdir()] == ["c"]
    shutil.rmtree(tmp_path / "c")


def test_a_checkpoint_that_counts_draft_layers_and_holds_none_has_none(
    mla: CausalLM, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As transformers writes a DeepSeek-V3 or GLM-4.5 model. A part of a draft layer is a damaged checkpoint."""
    save_checkpoint(mla, tmp_path / "c")
    raw = json.loads((tmp_path / "c" / "config.json").read_text())
    (tmp_path / "c" / "config.json").write_text(json.dumps(raw | {"num_nextn_predict_layers": 1}))
    assert load_config(tmp_path / "c").mtp_layers == 1
    assert same(load_checkpoint(tmp_path / "c", drafts=True), mla)
    assert "counts 1 draft layers and the files hold none" in caplog.text
    rewrite(
        tmp_path / "c",
        lambda tensors: tensors.update({f"model.layers.{mla.config.layers}.enorm.weight": torch.ones(4)}),
    )
    with pytest.raises(MissingTensors, match="hnorm"):
        load_checkpoint(tmp_path / "c", drafts=True)

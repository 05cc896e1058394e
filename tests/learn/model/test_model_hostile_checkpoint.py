"""A checkpoint of somebody else: the index decides which file holds a tensor, nothing outside is opened, and what is no weight is refused by name."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from etude.learn.model.checkpoint import load_checkpoint, load_config, loadable, save_checkpoint
from etude.learn.model.hf_config import UnsupportedConfig, from_hf_config, to_hf_config
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.hf_files import INDEX, SINGLE, CheckpointError, tensor_files
from etude.learn.weights.inspect import read_state

FILE = "model-00001-of-00001.safetensors"
MODEL = new_model(
    ModelSettings.model_validate(
        dict(hidden_size=16, layers=2, heads=2, kv_lora_rank=8, nope_dim=4, rope_dim=4, v_dim=4, experts=4)
    ),
    31,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_checkpoint(MODEL, tmp_path / "c")
    return tmp_path / "c"


def put(folder: Path, tensors: dict[str, torch.Tensor], name: str = FILE) -> None:
    save_file(tensors, folder / name, metadata={"format": "pt"})


def index(folder: Path, weight_map: object) -> None:
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def set_config(folder: Path, **changes: object) -> None:
    (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | changes))


def equal(model) -> bool:
    return all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), MODEL.state_dict().values(), strict=True))


@pytest.mark.nightly
@given(st.data())
def test_stale_copies_in_other_files_are_never_read(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("stale") / "c"
    save_checkpoint(MODEL, folder)
    tensors = load_file(folder / FILE)
    (folder / FILE).unlink()
    files = [f"{letter}.safetensors" for letter in "abc"]
    places = {key: data.draw(st.sampled_from(files)) for key in tensors}
    for name in files:
        stale = data.draw(st.sets(st.sampled_from(sorted(tensors))))
        held = {key: torch.full_like(tensors[key], 9.0) for key in stale} | {
            k: tensors[k] for k, f in places.items() if f == name
        }
        put(folder, held, name)
    put(folder, {key: torch.zeros_like(tensor) for key, tensor in tensors.items()}, SINGLE)
    index(folder, places)
    assert equal(load_checkpoint(folder))
    assert all(torch.equal(tensor, tensors[key]) for key, tensor in read_state(folder).items())


def test_a_tensor_that_the_index_does_not_name_does_not_exist(folder):
    index(folder, {key: FILE for key in load_file(folder / FILE) if key != "lm_head.weight"})
    with pytest.raises(CheckpointError, match="lm_head.weight is missing"):
        load_checkpoint(folder)
    assert "lm_head.weight" not in read_state(folder)


def test_a_tensor_that_its_file_lacks_is_named_with_the_file(folder):
    put(folder, {key: tensor for key, tensor in load_file(folder / FILE).items() if key != "lm_head.weight"})
    for reader in (load_checkpoint, read_state):
        with pytest.raises(CheckpointError, match=f"{FILE} lacks lm_head.weight"):
            reader(folder)


@pytest.mark.parametrize("reader", [load_checkpoint, read_state, loadable])
def test_a_file_that_is_no_safetensors_and_a_name_that_is_too_long_are_checkpoint_errors(folder, reader):
    (folder / FILE).write_bytes(b"\xff" * (1 << 20))
    with pytest.raises(CheckpointError, match=f"{FILE} can't be read .*; the checkpoint is damaged"):
        reader(folder)
    index(folder, {"lm_head.weight": "x" * 300 + ".safetensors"})
    with pytest.raises(CheckpointError, match="names a file that can't be looked up .File name too long.: xxx"):
        reader(folder)


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "../x.safetensors",
        "a/b.safetensors",
        "..\\x.safetensors",
        "",
        "x.bin",
        "x\0.safetensors",
        7,
        None,
    ],
)
def test_an_index_names_files_of_its_own_directory_alone(folder, name):
    index(folder, {"lm_head.weight": name, "model.norm.weight": FILE})
    for reader in (load_checkpoint, read_state):
        with pytest.raises(CheckpointError, match="as the file of lm_head.weight; a file of the same directory"):
            reader(folder)


DEEP = "[" * 100_000
BROKEN = ["", "{", "[]", "3", "null", '"text"', "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map": 3}', DEEP, '{"a": ' * 100_000,
          "9" * 5000, '{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}', "\udce4"]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_index_is_a_checkpoint_error(folder, text):
    (folder / INDEX).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=INDEX):
        load_checkpoint(folder)


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_a_damaged_config_is_a_typed_error(folder, text):
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises((CheckpointError, UnsupportedConfig)):
        load_config(folder)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [
        (torch.int8, "I8"),
        (torch.uint8, "U8"),
        (torch.int32, "I32"),
        (torch.int64, "I64"),
        (torch.float8_e4m3fn, "F8_E4M3"),
        (torch.float8_e5m2, "F8_E5M2"),
        (torch.bool, "BOOL"),
    ],
)
def test_quantised_weights_are_refused_by_name(folder, dtype, kind):
    key = "model.layers.0.self_attn.o_proj.weight"
    put(folder, {k: (t * 40).to(dtype) if k == key else t for k, t in load_file(folder / FILE).items()})
    with pytest.raises(CheckpointError, match=f"{key} in {FILE} is {kind}: quantised"):
        load_checkpoint(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_finite_are_refused_by_name(folder, value, dtype):
    tensors = {key: tensor.to(dtype) for key, tensor in load_file(folder / FILE).items()}
    tensors["model.layers.1.mlp.experts.3.down_proj.weight"][1, 2] = value
    put(folder, tensors)
    with pytest.raises(
        CheckpointError, match=r"model.layers.1.mlp.experts.3.down_proj.weight holds numbers that are not finite"
    ):
        load_checkpoint(folder)


def test_a_weight_that_overflows_in_the_type_asked_for_is_refused(folder):
    put(
        folder,
        {key: tensor * (1e6 if key == "model.norm.weight" else 1) for key, tensor in load_file(folder / FILE).items()},
    )
    load_checkpoint(folder, dtype=torch.bfloat16)
    with pytest.raises(CheckpointError, match="norm.weight as float16 holds numbers that are not finite"):
        load_checkpoint(folder, dtype=torch.float16)


@pytest.mark.parametrize(
    "changes",
    [
        *({key: 10**9} for key in ("num_hidden_layers", "hidden_size", "vocab_size", "n_routed_experts", "max_position_embeddings",
                                   "num_nextn_predict_layers", "intermediate_size", "num_attention_heads", "kv_lora_rank")),
        {"num_hidden_layers": 10**30}, {"num_hidden_layers": -1}, {"hidden_size": "many"}, {"rms_norm_eps": float("inf")},
        {"rope_theta": float("nan"), "rope_parameters": None}, {"model_type": ["deepseek_v3"]}, {"rope_parameters": 3},
        {"rope_scaling": None, "rope_parameters": {"rope_type": "yarn", "factor": 1e9, "original_max_position_embeddings": 4096}},
        {"rope_scaling": None, "rope_parameters": {"rope_type": "yarn", "factor": 1e308, "original_max_position_embeddings": 10**30}},
        {"max_position_embeddings": 1 << 22, "qk_rope_head_dim": 1 << 14},
        {"rope_scaling": None, "qk_rope_head_dim": 1 << 12,
         "rope_parameters": {"rope_type": "yarn", "factor": 1024, "original_max_position_embeddings": 4096}},
    ],
    ids=str,
)  # fmt: skip
def test_absurd_configs_are_refused_before_memory_is_taken(folder, changes):
    set_config(folder, **changes)
    start = time.process_time()
    with pytest.raises((CheckpointError, UnsupportedConfig)):
        load_checkpoint(folder)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("changes", [{"hidden_size": 1}, {"heads": 3, "hidden_size": 48}], ids=str)
def test_a_rope_table_larger_than_the_model_is_refused_when_a_model_is_described(changes):
    with pytest.raises(ValueError, match="4,194,304 positions of 16,384 rotated numbers .* more than 1 GiB"):
        ModelSettings.model_validate({"rope_dim": 1 << 14, "max_positions": 1 << 22} | changes)
    assert ModelSettings.model_validate({"rope_dim": 128, "max_positions": 1 << 21} | changes).rotary_dim == 128


def without(folder: Path, *names: str, **changed: torch.Tensor) -> None:
    tensors = {key: tensor for key, tensor in load_file(folder / FILE).items() if key not in names}
    put(folder, tensors | {key.replace("__", "."): tensor for key, tensor in changed.items()})


CANNOT = {
    "one tensor alone": (lambda folder: (put(folder, {"x": torch.ones(20_000)}), index(folder, {"x": FILE})), "missing"),
    "a tensor that the index names and the file lacks": (lambda folder: without(folder, "lm_head.weight"), "lacks lm_head.weight"),
    "a scalar head": (lambda folder: without(folder, lm_head__weight=torch.tensor(1.0)), r"lm_head.weight is \(\) in the checkpoint"),
    "another width": (lambda folder: without(folder, lm_head__weight=torch.ones(31, 8)), r"is \(31, 8\) in the checkpoint"),
    "other rows": (lambda folder: without(folder, lm_head__weight=torch.ones(30, 16)), "has 30 rows, and config.json says vocab_size 31"),
    "integers": (lambda folder: without(folder, lm_head__weight=torch.ones(31, 16, dtype=torch.int8)), "is I8: quantised"),
    "one tensor too many": (lambda folder: (without(folder, model__more=torch.ones(3)),
                                            index(folder, dict.fromkeys(load_file(folder / FILE), FILE))), "model.more is not part"),
    "too small a file": (lambda folder: set_config(folder, intermediate_size=1 << 19), "parameters, and its files hold"),
}  # fmt: skip


@pytest.mark.parametrize("name", CANNOT)
def test_a_checkpoint_passes_the_check_exactly_if_it_can_be_loaded(folder, name):
    assert loadable(folder).endswith(f" {len(load_file(folder / FILE))} tensors")
    damage, words = CANNOT[name]
    damage(folder)
    with pytest.raises(CheckpointError, match=words):
        loadable(folder)
    with pytest.raises(CheckpointError):
        load_checkpoint(folder)


def test_a_model_that_the_files_can_not_fill_is_refused_before_it_is_built(folder):
    set_config(folder, num_hidden_layers=900, hidden_size=8192)
    with pytest.raises(CheckpointError, match="describes a model of .* parameters, and its files hold"):
        load_checkpoint(folder)


def kimi(**changes: object) -> dict:
    raw = to_hf_config(MODEL.config) | {"model_type": "kimi_k2", "architectures": ["DeepseekV3ForCausalLM"]}
    return raw | changes


def test_kimis_names_are_deepseeks_architecture(folder):
    assert from_hf_config(kimi()) == MODEL.config
    set_config(folder, model_type="kimi_k2")
    assert equal(load_checkpoint(folder))


def test_the_language_model_of_a_multimodal_checkpoint_is_read_and_the_rest_left(folder):
    tensors = {f"language_model.{key}": tensor for key, tensor in load_file(folder / FILE).items()}
    tensors["vision_tower.patch.weight"] = torch.ones(3, 3)
    put(folder, tensors)
    index(folder, {key: FILE for key in tensors})
    (folder / "config.json").write_text(
        json.dumps({"model_type": "kimi_k25", "text_config": kimi(), "vision_config": {}})
    )
    assert equal(load_checkpoint(folder)) and loadable(folder).endswith(f" {len(tensors) - 1} tensors")


def test_a_wrapper_without_its_text_config_or_with_quantised_weights_is_refused():
    with pytest.raises(UnsupportedConfig, match="text_config"):
        from_hf_config({"model_type": "kimi_k25"})
    for raw in (
        {"model_type": "kimi_k25", "text_config": kimi(quantization_config={"bits": 4})},
        {"model_type": "kimi_k25", "text_config": kimi(), "quantization_config": {"bits": 4}},
    ):
        with pytest.raises(UnsupportedConfig, match="quantised"):
            from_hf_config(raw)


def test_a_directory_without_weights_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=f"{SINGLE} does not exist"):
        tensor_files(tmp_path)


QWEN = new_model(
    ModelSettings.model_validate(dict(family="qwen3_moe", hidden_size=16, layers=2, heads=2, experts=4)), 31
)
OTHER = [
    ("partial_rotary_factor", 0.5), ("attn_logit_softcapping", 50.0), ("final_logit_softcapping", 30.0), ("logits_scaling", 8.0),
    ("shared_expert_intermediate_size", 512), ("mlp_bias", True), ("qkv_bias", True), ("residual_multiplier", 0.2),
    ("attention_chunk_size", 8192), ("index_topk", 2048), ("no_rope_layers", [1, 0]), ("layer_types", ["full_attention", "sliding_attention"]),
    ("layer_types", 3), ("partial_rotary_factor", "half"), ("rope_parameters", {"rope_type": "default", "partial_rotary_factor": 0.25}),
]  # fmt: skip


@pytest.mark.parametrize("model", [MODEL, QWEN], ids=["deepseek_v3", "qwen3_moe"])
@pytest.mark.parametrize(("key", "value"), OTHER, ids=str)
def test_a_key_that_changes_what_a_model_computes_is_refused_and_not_ignored(model, key, value):
    name = "partial_rotary_factor" if key == "rope_parameters" else key
    with pytest.raises(UnsupportedConfig, match=f"{name} (is|holds) "):
        from_hf_config(to_hf_config(model.config) | {key: value})


@pytest.mark.parametrize("model", [MODEL, QWEN], ids=["deepseek_v3", "qwen3_moe"])
def test_the_same_keys_are_taken_where_they_change_nothing(model):
    plain = {"partial_rotary_factor": 1.0, "attn_logit_softcapping": None, "shared_expert_intermediate_size": 0, "mlp_bias": False,
             "layer_types": ["full_attention"] * 2, "sliding_window": 4096, "no_rope_layers": [], "index_topk": None}  # fmt: skip
    assert from_hf_config(to_hf_config(model.config) | plain) == model.config

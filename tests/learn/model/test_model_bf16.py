"""In bf16 a model computes what it computes in fp32 up to bf16's rounding: forward, cached decode and a training step, both families.

The rope table and the router's selection bias stay in fp32, in memory and in files.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from etude.learn.engine.swap import round_weights
from etude.learn.model.cache import KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings

VOCABULARY = 61
TOLERANCE = 0.03  # of the logits' std: bf16 keeps 8 bits, so a sum of a few layers is off by about a hundredth


def model_of(family: str, **changes: object) -> CausalLM:
    settings = dict(
        family=family, hidden_size=64, layers=3, heads=2, kv_lora_rank=16, nope_dim=8, rope_dim=4, v_dim=8, kv_heads=1
    )
    settings |= dict(
        head_dim=8, dense_intermediate=48, moe_intermediate=16, experts=4, max_positions=128, init_head_std=0.1
    )
    model = new_model(ModelSettings.model_validate(settings | changes), VOCABULARY)
    with torch.no_grad():
        for name, bias in model.named_buffers():
            if name.endswith("router.bias"):
                bias.copy_(5 + torch.arange(len(bias)) * 1e-3)  # equal in bf16
    return model


def ids(rows: int = 2, length: int = 60) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.float() - wanted).pow(2).mean().sqrt() / wanted.std())


both = pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_forward_of_a_checkpoint_in_another_type_is_that_of_fp32(tmp_path, family, dtype):
    model = model_of(family)
    save_checkpoint(model, tmp_path / "c")
    other = load_checkpoint(tmp_path / "c", dtype=dtype)
    assert other.head.weight.dtype == dtype
    # The experts that fp32 chose: a choice that rounding turns over is another model's.
    with torch.no_grad():
        wanted = model(ids(), return_routes=True)
        found = other(ids(), forced_experts=wanted.routes)
    assert error(found.logits, wanted.logits) < TOLERANCE


@both
def test_cached_decode_in_bf16_is_the_forward_in_bf16(family):
    model = model_of(family, experts=2).bfloat16()
    tokens = ids()
    with torch.no_grad():
        wanted = model(tokens).logits.float()
    cache = KVCache(model.config, 2, 64, dtype=torch.bfloat16)
    slots, at = torch.arange(2), 0
    for width in (20, 1, 3, 1):
        logits, _ = model.extend(tokens[:, at : at + width], torch.full((2,), width), slots, cache)
        at += width
        assert error(logits, wanted[:, at - 1]) < TOLERANCE


@both
def test_a_training_step_in_bf16_goes_where_that_of_fp32_goes(family):
    def step(model: CausalLM) -> dict[str, torch.Tensor]:
        before = {name: parameter.detach().float().clone() for name, parameter in model.named_parameters()}
        logits = model(ids(), forced_experts=routes).logits[:, :-1].float()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids()[:, 1:].flatten()).backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=50.0)  # far above bf16's rounding of a weight
        optimizer.step()
        return {name: parameter.detach().float() - before[name] for name, parameter in model.named_parameters()}

    model = model_of(family)
    with torch.no_grad():
        routes = model(ids(), return_routes=True).routes
    moved, wanted = step(model_of(family).bfloat16()), step(model)
    flat = [torch.cat([change.flatten() for change in changes.values()]) for changes in (moved, wanted)]
    assert float(torch.nn.functional.cosine_similarity(*flat, dim=0)) > 0.99


@both
@pytest.mark.parametrize(
    "convert",
    [lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.bfloat16().float(), lambda m: m.double()],
)
def test_rope_table_and_selection_bias_keep_their_bits_under_any_conversion(family, convert):
    model = model_of(family)
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    converted = dict(convert(model).named_buffers())
    assert kept.keys() == converted.keys() and any(name.endswith("rope.table") for name in kept)
    assert all(converted[name].dtype == torch.float32 and torch.equal(converted[name], kept[name]) for name in kept)


def test_the_selection_bias_is_fp32_in_the_file_of_a_bf16_model_and_config_names_the_type(tmp_path):
    save_checkpoint(model_of("deepseek_v3").bfloat16(), tmp_path / "c")
    files = [load_file(path) for path in Path(tmp_path / "c").glob("*.safetensors")]
    types = {key: tensor.dtype for file in files for key, tensor in file.items()}
    assert {types.pop(key) for key in [*types] if "correction_bias" in key} == {torch.float32}
    assert set(types.values()) == {torch.bfloat16}
    assert json.loads((tmp_path / "c" / "config.json").read_text())["dtype"] == "bfloat16"


def test_an_engine_that_rounds_its_weights_leaves_the_selection_bias():
    model = model_of("deepseek_v3")
    round_weights(model, "bfloat16")
    biases = [bias for name, bias in model.named_buffers() if name.endswith("router.bias")]
    assert biases and all(len(bias.unique()) == len(bias) for bias in biases)


@pytest.mark.parametrize("interleave", [True, False])
@pytest.mark.parametrize(
    "odd", [{"nope_dim": 3}, {"kv_lora_rank": 5}, {"v_dim": 3}, {"nope_dim": 5, "q_lora_rank": 7, "kv_lora_rank": 9}]
)
def test_odd_widths_of_latent_attention_are_computed_alike_in_forward_and_decode(odd, interleave):
    model = model_of("deepseek_v3", rope_interleave=interleave, **odd)
    with torch.no_grad():
        wanted = model(ids()).logits
    cache = KVCache(model.config, 2, 64)
    logits, _ = model.extend(ids()[:, :30], torch.full((2,), 30), torch.arange(2), cache)
    torch.testing.assert_close(logits, wanted[:, 29], atol=1e-5, rtol=1e-4)

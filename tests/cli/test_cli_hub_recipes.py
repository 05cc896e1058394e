"""The recipes of published models can be planned: config and tokenizer come from the hub, and the memory is said before any weight is loaded."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from here import Here, document

sys.path.insert(
    0, str(Path(__file__).parents[1] / "learn" / "weights")
)  # tests are no package: this is how they share a module

from hub_server import serve

from etude.agent.chat.families import by_name

# As published. Weights are not needed for a plan.
QWEN3_4B = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 2560, "intermediate_size": 9728,
    "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True, "attention_bias": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_CODER_30B = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 262_144,
    "rms_norm_eps": 1e-6, "rope_theta": 1e7, "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu", "torch_dtype": "bfloat16",
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True, "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}  # fmt: skip
QWEN3_30B = QWEN3_CODER_30B | {"intermediate_size": 6144}
GLM_4_5_AIR = {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "vocab_size": 151_552, "hidden_size": 4096, "intermediate_size": 10_944,
    "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131_072,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "tie_word_embeddings": False, "attention_bias": True, "hidden_act": "silu",
    "use_qk_norm": False, "n_routed_experts": 128, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.0, "torch_dtype": "bfloat16",
}  # fmt: skip
KIMI_K2_5 = {
    "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "vision_config": {}, "text_config": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "vocab_size": 163_840, "hidden_size": 7168, "intermediate_size": 18_432,
        "num_hidden_layers": 61, "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 1536, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 384, "num_experts_per_tok": 8, "n_shared_experts": 1,
        "moe_intermediate_size": 2048, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 2.827, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "max_position_embeddings": 262_144,
        "rms_norm_eps": 1e-5, "rope_theta": 50_000.0, "tie_word_embeddings": False, "attention_bias": False, "hidden_act": "silu",
        "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0,
                         "mscale": 1.0, "mscale_all_dim": 1.0},
    },
}  # fmt: skip
GPU_BYTES = 80 * 10**9


@pytest.fixture
def planned(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_renderer: Callable[..., Any]):
    """Plans a recipe whose model a hub has. Its weights are not downloaded."""

    def plan(recipe: str, repository: str, config: dict[str, Any], chat: str) -> dict[str, Any]:
        files = {
            "config.json": json.dumps(config).encode(),
            "tokenizer.json": make_renderer(chat)._tokenizer.serialized.encode(),
            "chat_template.jinja": f"{{# {' '.join(by_name(chat).shows)} #}}".encode(),
            "model.safetensors": b"weights",
        }
        with serve(tmp_path / "cache", monkeypatch) as hub:
            hub.add(repository, files)
            found = document(here("run", recipe, "--dry-run", "--json"))
            assert "model.safetensors" not in hub.downloads()
        return found

    return plan


def memory_of(found: dict[str, Any]) -> dict[str, Any]:
    """By stage, of a recipe that fine-tunes with adapters on GPUs."""
    memory = {row["stage"]: row for row in found["memory"]}
    assert set(memory) == {"sft", "rl", "bench"} and memory["rl"]["on_gpu"] == ["engine", "trainer"]
    return memory


def test_qwen3_4b_with_adapters_fits_one_gpu_by_its_plan(planned) -> None:
    memory = memory_of(planned("qwen3-4b-lora", "Qwen/Qwen3-4B", QWEN3_4B, "qwen3"))
    assert 20 * 10**9 < memory["rl"]["trainer_bytes"] + memory["rl"]["engine_bytes"] < GPU_BYTES
    assert memory["sft"]["trainer_bytes"] > 8 * 10**9  # four billion weights in bf16


def test_qwen3_coder_30b_with_adapters_fits_eight_gpus_by_its_plan(planned) -> None:
    coder = ("Qwen/Qwen3-Coder-30B-A3B-Instruct", QWEN3_CODER_30B, "qwen3-coder")
    memory = memory_of(planned("qwen3-coder-30b-a3b-lora", *coder))
    weights = 2 * 30 * 10**9
    assert weights < memory["sft"]["trainer_bytes"] < GPU_BYTES
    assert 4 * weights < memory["rl"]["trainer_bytes"] < 4 * GPU_BYTES
    assert 4 * weights < memory["rl"]["engine_bytes"] < 4 * GPU_BYTES
    assert weights < memory["bench"]["engine_bytes"] < GPU_BYTES


@pytest.mark.parametrize(
    ("recipe", "repository", "config", "chat", "fits"),
    [
        ("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B-Instruct-2507", QWEN3_30B, "qwen3-2507",
         {"short": ["h100", "h200"], "sft": ["h100", "h200"], "rl": ["h100", "h200"]}),
        ("glm-4.5-air", "zai-org/GLM-4.5-Air", GLM_4_5_AIR, "glm-4.5", {"short": ["h200"], "long": ["h200"], "sft": ["h200"]}),
        ("kimi-k2.5", "moonshotai/Kimi-K2.5", KIMI_K2_5, "kimi-k2.5", {"short": ["h200"], "long": ["h200"], "sft": ["h200"]}),
    ],
)  # fmt: skip
def test_a_model_over_many_gpus_is_planned_stage_by_stage(
    planned, recipe: str, repository: str, config: dict[str, Any], chat: str, fits: dict[str, list[str]]
) -> None:
    found = {row["stage"]: row for row in planned(recipe, repository, config, chat)["gpus"]}
    assert list(found) == list(fits)
    for stage, kinds in fits.items():
        assert set(kinds) <= set(found[stage]["fits"]), (stage, found[stage]["fits"])
        plan = found[stage]["h200"]
        assert plan["rank_memory_bytes"]["peak"] <= 141e9 and not plan["misfits"] and plan["step_s"][1] > 0

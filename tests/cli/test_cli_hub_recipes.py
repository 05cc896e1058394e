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
GPU_BYTES = 80 * 10**9


@pytest.fixture
def planned(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_renderer: Callable[..., Any]):
    """Plans a recipe whose model a hub has: its memory by stage. Its weights are not downloaded."""

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
        memory = {row["stage"]: row for row in found["memory"]}
        assert set(memory) == {"sft", "rl", "bench"} and memory["rl"]["on_gpu"] == ["engine", "trainer"]
        return memory

    return plan


def test_qwen3_4b_with_adapters_fits_one_gpu_by_its_plan(planned) -> None:
    memory = planned("qwen3-4b-lora", "Qwen/Qwen3-4B", QWEN3_4B, "qwen3")
    assert 20 * 10**9 < memory["rl"]["trainer_bytes"] + memory["rl"]["engine_bytes"] < GPU_BYTES
    assert memory["sft"]["trainer_bytes"] > 8 * 10**9  # four billion weights in bf16


def test_qwen3_coder_30b_with_adapters_fits_eight_gpus_by_its_plan(planned) -> None:
    memory = planned("qwen3-coder-30b-a3b-lora", "Qwen/Qwen3-Coder-30B-A3B-Instruct", QWEN3_CODER_30B, "qwen3-coder")
    weights = 2 * 30 * 10**9
    assert weights < memory["sft"]["trainer_bytes"] < GPU_BYTES
    assert 4 * weights < memory["rl"]["trainer_bytes"] < 4 * GPU_BYTES
    assert 4 * weights < memory["rl"]["engine_bytes"] < 4 * GPU_BYTES
    assert weights < memory["bench"]["engine_bytes"] < GPU_BYTES

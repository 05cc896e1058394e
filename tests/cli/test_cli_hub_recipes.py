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
GPU_BYTES = 80 * 10**9


def test_qwen3_4b_with_adapters_fits_one_gpu_by_its_plan(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_renderer: Callable[..., Any]
) -> None:
    files = {
        "config.json": json.dumps(QWEN3_4B).encode(),
        "tokenizer.json": make_renderer("qwen3")._tokenizer.serialized.encode(),
        "chat_template.jinja": f"{{# {' '.join(by_name('qwen3').shows)} #}}".encode(),
        "model.safetensors": b"weights",
    }
    with serve(tmp_path / "cache", monkeypatch) as hub:
        hub.add("Qwen/Qwen3-4B", files)
        found = document(here("run", "qwen3-4b-lora", "--dry-run", "--json"))
        assert "model.safetensors" not in hub.downloads()
    memory = {row["stage"]: row for row in found["memory"]}
    assert set(memory) == {"sft", "rl", "bench"}
    assert memory["rl"]["on_gpu"] == ["engine", "trainer"]
    assert 30 * 10**9 < memory["rl"]["trainer_bytes"] + memory["rl"]["engine_bytes"] < GPU_BYTES
    assert memory["sft"]["trainer_bytes"] > 16 * 10**9  # four billion weights in fp32

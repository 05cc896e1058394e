"""Tiny random checkpoints, as transformers writes them, through sessions, sft and rl, each in its own chat format: nine families of our own, and
classes that transformers computes, with our attention and by rows.

The models learn nothing worth a figure. The test shows that every stage takes the checkpoint's own renderer, tools and weights, that a step changes
the weights, and that transformers reads what the run leaves.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from etude.agent.chat.chat_family import TEMPLATE
from etude.agent.chat.families import by_name
from etude.agent.chat.load import load_renderer
from etude.core.trace.reader import read_session
from etude.learn.model.families import FAMILIES as SWITCHES

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

# Model type of the checkpoint, and its chat format.
FAMILIES = {
    "llama": "llama-3.1",
    "mistral": "mistral",
    "qwen2": "qwen2.5",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3-coder",
    "glm4_moe": "glm-4.5",
    "deepseek_v3": "deepseek-v3.1",
    "gpt_oss": "gpt-oss",
    "ministral3": "mistral",
    "qwen3_next": "qwen3",
    "smollm3": "smollm3",
    "granitemoehybrid": "granite-4",
    "phi3": "phi-4-mini",
    "lfm2": "lfm2",
    "nemotron_h": "nemotron-3",
    "laguna": "laguna-s-2.1",
    "hy_v3": "hy3",
    "olmo2": TEMPLATE,
}
# Of no family, as OLMo 2's is: roles in words, and no tools.
PLAIN = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '<|assistant|>\\n' + m['content'] + '<|im_end|>\\n' }}"
    "{% else %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
# Trained with adapters alone, in SFT and RL.
ADAPTED = ("qwen3_next", "hy_v3")
# Computed by transformers; what their configurations need besides.
OTHER_CLASSES: dict[str, dict[str, Any]] = {
    "qwen3_next": {
        **dict(head_dim=16, linear_num_value_heads=2, linear_num_key_heads=1, linear_key_head_dim=8, linear_value_head_dim=8),
        **dict(num_hidden_layers=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16),
    },
    "granitemoehybrid": {
        **dict(layer_types=["mamba", "attention"], mamba_n_heads=4, mamba_d_head=16, mamba_d_state=8, mamba_n_groups=1, mamba_chunk_size=16),
        **dict(num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=16, num_key_value_heads=1),
    },
    "phi3": {},
    "nemotron_h": {
        **dict(layers_block_type=["linear_attention", "moe", "full_attention", "moe"], mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=8),
        **dict(n_groups=1, head_dim=16, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=16),
        **dict(num_hidden_layers=4, chunk_size=16),
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "n_group": 1,
    "topk_group": 1,
}
RECIPE = """
[run]
without = ["corpus", "base", "short", "mtp", "long", "competent_sft", "attempts", "rewarded_sft", "trials", "probes", "bench", "report"]
[exercises.levels]
from-tests = 0
two-bugs = 0
relapse = 0
write-test = 0
[harness]
preset = "minimal"
max_turns = 3
max_tokens_per_turn = 48
summary_trigger_tokens = 0
[engine]
max_slots = 8
[sessions]
count = 8
competence = 1.0
[sft]
batch_tokens = 8192
epochs = 9
heldout_share = 0.2
loop.steps = 3
optimizer.matrices = "adamw"
[rl]
steps = 2
slots = 8
groups_per_step = 2
group_size = 4
kl_beta = 0.01
solvable_tasks = 0
update.graph_tokens = 0
"""


@pytest.fixture
def checkpoint(tmp_path: Path, make_renderer: Callable[..., Any]) -> Callable[[str, str], Path]:
    def write(model_type: str, chat: str) -> Path:
        """A directory as a hub would give it: config, weights, tokenizer, and what tells the chat format."""
        renderer = make_renderer("chatml" if chat == TEMPLATE else chat)
        tokenizer = renderer._tokenizer
        shape: dict[str, Any] = dict(
            vocab_size=tokenizer.size, hidden_size=32, num_hidden_layers=2, intermediate_size=48, num_attention_heads=2,
            max_position_embeddings=16_384, bos_token_id=None, pad_token_id=None, eos_token_id=renderer.stop_ids[0],
        )  # fmt: skip
        own = (
            {"num_key_value_heads": 2, **LATENT}
            if model_type == "deepseek_v3"
            else {"num_key_value_heads": 1, "head_dim": 16}
        )
        if model_type in OTHER_CLASSES:
            own = {"num_key_value_heads": 1} | OTHER_CLASSES[model_type]
        elif SWITCHES[model_type].switches.get("experts") != 0:
            own |= {SWITCHES[model_type].keys["experts"]: 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
        torch.manual_seed(0)
        config = AutoConfig.for_model(model_type, **(shape | own))
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path / "init")
        (tmp_path / "init" / "tokenizer.json").write_text(tokenizer.serialized)
        template = PLAIN if chat == TEMPLATE else f"{{# {' '.join(by_name(chat).shows)} #}}"
        (tmp_path / "init" / "chat_template.jinja").write_text(template)
        return tmp_path / "init"

    return write


@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_family_goes_through_sft_and_rl_in_its_own_chat_format(
    model_type: str, tmp_path: Path, checkpoint: Callable[[str, str], Path]
) -> None:
    init, out = checkpoint(model_type, FAMILIES[model_type]), tmp_path / "run"
    assert load_renderer(init).name == FAMILIES[model_type]
    (tmp_path / "tiny.toml").write_text(RECIPE)
    words = [
        sys.executable,
        "-P",
        "-m",
        "etude",
        "run",
        str(tmp_path / "tiny.toml"),
        "--set",
        f"model.init={init}",
        "--out",
        str(out),
    ]
    for stage in ("sft", "rl.update") if model_type in ADAPTED else ():
        words += ["--set", f"{stage}.lora.rank=4"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=280, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:] + ran.stdout[-1000:]
    session = read_session(next((out / "sessions").glob("*.jsonl")))
    assert {call["name"] for entry in session.of("completion") for call in entry.data["message"].get("calls", [])} <= {
        "read",
        "bash",
        "edit",
    }
    said = [line for line in (out / "events.jsonl").read_text().splitlines() if "model.impl = " in line]
    assert said and all(("transformers" in line) == (model_type in OTHER_CLASSES) for line in said)
    sft = json.loads((out / "sft" / "summary.json").read_text())
    assert sft["steps"] == 3 and sft["sampled_tokens"] and sft["heldout_loss"]
    rl = json.loads((out / "rl" / "summary.json").read_text())
    assert len(rl["curve"]) == 2 and rl["mismatch"]["k3"] < 1e-9 and rl["mismatch"]["tokens"]
    assert (out / "rl" / "adapter").is_dir() == (out / "sft" / "adapter").is_dir() == (model_type in ADAPTED)
    before = None
    for folder in (init, out / "sft" / "checkpoint", out / "rl" / "checkpoint"):
        after = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
        assert before is None or any(not torch.equal(after[name], before[name]) for name in after), folder
        before = after

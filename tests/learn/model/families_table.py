"""The table of `docs/models.md`, made from the tests that prove its cells. `python tests/learn/model/families_table.py` writes it into the page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "engine"))
sys.path.insert(2, str(Path(__file__).parents[2] / "parity"))

import test_engine_vllm_families as vllm
import test_model_families as tests
import test_parity_peft_families as peft

from etude.learn.model.families import FAMILIES

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
BEGIN, END = "<!-- families: written by tests/learn/model/families_table.py -->\n", "<!-- end of families -->\n"
PROOFS = {
    "load": tests.test_logits_and_files_equal_transformers,
    "train step": tests.test_a_new_model_of_every_family_takes_a_training_step,
    "gradients": tests.test_gradients_equal_transformers,
    "decode": tests.test_decoding_behind_a_cache_gives_the_logits_of_the_whole,
    "save": tests.test_logits_and_files_equal_transformers,
    "replay": tests.test_replayed_routes_give_the_same_logits_and_pin_the_choice,
}
# Published models whose config.json names the family.
PUBLISHED = {
    "llama": "Llama 2 to 3.3, SmolLM2",
    "mistral": "Mistral 7B, Ministral 8B, Mistral Small, Devstral Small (text part)",
    "ministral3": "Ministral 3, Devstral 2 (text part)",
    "smollm3": "SmolLM3",
    "qwen2": "Qwen2, Qwen2.5, Qwen2.5-Coder",
    "qwen3": "Qwen3 0.6B to 32B",
    "seed_oss": "Seed-OSS 36B",
    "glm4": "GLM-4 9B and 32B (0414)",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "gemma3_text": "Gemma 3 (text part)",
    "mixtral": "Mixtral",
    "qwen2_moe": "Qwen1.5-MoE, Qwen2-57B-A14B",
    "qwen3_moe": "Qwen3-30B-A3B, 235B-A22B, Qwen3-Coder-30B-A3B and 480B",
    "glm4_moe": "GLM-4.5, 4.5-Air, 4.6, 4.7",
    "minimax_m2": "MiniMax-M2",
    "hy_v3": "Hunyuan 3",
    "laguna": "Laguna XS.2, S 2.1 and M.1",
    "gpt_oss": "gpt-oss 20b and 120b",
    "deepseek_v2": "DeepSeek-V2, V2-Lite, Coder-V2",
    "deepseek_v3": "DeepSeek-V3, R1, V3.1, Kimi K2 and K2.5 (text part), Moonlight",
    "mistral4": "Mistral Small 4 (text part)",
    "glm4_moe_lite": "GLM-4.7-Flash",
}


def table() -> str:
    """A row for each family: `yes` where a test has it among its cases, `-` where there is nothing to do, `no` else."""
    adapted = _cases(peft.test_adapters_have_the_same_logits_here_and_in_peft)
    answered = _cases(vllm.test_vllm_samples_what_the_trainer_computes_before_and_after_a_swap)
    head = ["family (`model_type`)", "published models", *PROOFS, "LoRA", "vLLM"]
    lines = [" | ".join(["", *head, ""]).strip(), "|" + "---|" * len(head)]
    for name, family in FAMILIES.items():
        dense = family.switches.get("experts") == 0
        cells = [
            "yes" if name in _cases(proof) else "-" if dense and column == "replay" else "no"
            for column, proof in PROOFS.items()
        ]
        row = [f"`{name}`", PUBLISHED[name], *cells, *("yes" if name in them else "no" for them in (adapted, answered))]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


def _cases(proof: Any) -> set[str]:
    marks = (mark for mark in proof.pytestmark if mark.name == "parametrize" and mark.args[0] == "family")
    return {name for mark in marks for name in mark.args[1]}


def page() -> str:
    """The page with the table as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(page())

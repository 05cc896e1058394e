"""A release of transformers other than the tests' own gives the same logits and greedy tokens for a checkpoint that was saved here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from environments import require_python
from safetensors.torch import load_file, save_file
from transformers_oracle import NEW_TOKENS

from etude.learn.model.cache import KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import save_checkpoint

pytestmark = pytest.mark.nightly
HERE = Path(__file__).parent
LOGIT_TOLERANCE = 2e-6


def model_shapes() -> Any:
    """The tiny models of both families, as `tests/learn/model` has them."""
    place = HERE.parent / "learn" / "model" / "conftest.py"
    spec = importlib.util.spec_from_file_location("model_shapes", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def greedy(model: CausalLM, ids: torch.Tensor) -> torch.Tensor:
    rows, length = ids.shape
    cache = KVCache(model.config, slots=rows, max_len=length + NEW_TOKENS)
    slots, step, tokens = torch.arange(rows), ids, []
    for _ in range(NEW_TOKENS):
        logits, _ = model.extend(step, torch.full((rows,), step.shape[1]), slots, cache)
        step = logits.argmax(-1, keepdim=True)
        tokens.append(step)
    return torch.cat(tokens, 1)


def test_logits_and_greedy_tokens_of_every_shape_are_those_of_transformers(tmp_path: Path) -> None:
    python, shapes = require_python("transformers"), model_shapes()
    models = {shape: shapes.tiny_model(shape) for shape in shapes.SHAPES}
    ids = torch.randint(0, shapes.VOCABULARY, (3, 24), generator=torch.Generator().manual_seed(0))
    for shape, model in models.items():
        save_checkpoint(model, tmp_path / shape)
        save_file({"ids": ids}, tmp_path / shape / "ids.safetensors")
    folders = "".join(f"{tmp_path / shape}\n" for shape in models)
    done = subprocess.run([python, HERE / "transformers_oracle.py"], input=folders, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    version, *answers = map(json.loads, done.stdout.splitlines())
    print(f"transformers {version['version']} of {version['file']}: {len(answers)} models")  # shown with -s
    assert {answer["class"] for answer in answers} == {"DeepseekV3ForCausalLM", "Qwen3MoeForCausalLM"}
    for shape, model in models.items():
        theirs = load_file(tmp_path / shape / "theirs.safetensors")
        with torch.no_grad():
            ours = model(ids).logits
            assert theirs["logits"].std() > 0.3, shape  # logits of a size at which the tolerance means something
            assert (ours - theirs["logits"]).abs().max() <= LOGIT_TOLERANCE, shape
            assert torch.equal(greedy(model, ids), theirs["tokens"]), shape

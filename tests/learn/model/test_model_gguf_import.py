"""A GGUF file becomes a directory that the model code and transformers load."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from etude.learn.model.checkpoint import load_checkpoint, loadable
from etude.learn.model.gguf_import import import_gguf
from etude.learn.weights.hf_files import CheckpointError

sys.path.insert(0, str(Path(__file__).parents[1] / "weights"))
from gguf_lab import llama_metadata, llama_tensors, write_gguf


def permuted(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order in which llama.cpp's converter stores q and k."""
    return rows.reshape(heads, 2, -1, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def folder_of(tmp_path: Path, **changes: object) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    write_gguf(tmp_path / "m.gguf", llama_metadata() | changes, llama_tensors())
    import_gguf(tmp_path / "m.gguf", folder)
    return folder


def test_the_directory_loads_here_and_in_transformers_with_the_same_logits(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    folder = folder_of(tmp_path)
    assert loadable(folder).startswith("llama, 1 layers, 64 positions")
    ids = torch.arange(7)[None]
    with torch.no_grad():
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids).logits
        ours = load_checkpoint(folder)(ids)
    assert torch.allclose(getattr(ours, "logits", ours[0] if isinstance(ours, tuple) else ours), theirs, atol=1e-4)


def test_q_and_k_are_put_back_in_order(tmp_path: Path) -> None:
    taken = load_file(folder_of(tmp_path) / "model.safetensors")
    for part, heads in (("q", 4), ("k", 2)):
        _, shape, raw = llama_tensors()[f"blk.0.attn_{part}.weight"]
        stored = np.frombuffer(raw, np.float32).reshape(shape)
        found = taken[f"model.layers.0.self_attn.{part}_proj.weight"].numpy()
        assert np.array_equal(permuted(found, heads), stored)
        assert not np.array_equal(found, stored)


def test_a_tied_head_is_left_out(tmp_path: Path) -> None:
    assert "lm_head.weight" not in load_file(folder_of(tmp_path) / "model.safetensors")


def test_bf16_rounds_as_torch_does(tmp_path: Path) -> None:
    exact = load_file(folder_of(tmp_path) / "model.safetensors")
    (tmp_path / "half").mkdir()
    import_gguf(tmp_path / "m.gguf", tmp_path / "half", "bf16")
    rounded = load_file(tmp_path / "half" / "model.safetensors")
    assert all(torch.equal(rounded[key], exact[key].to(torch.bfloat16)) for key in exact)


def test_the_tokenizer_merges_and_cuts_digits_apart(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder_of(tmp_path) / "tokenizer.json"))
    assert tokenizer.encode("ab12<|end|>").ids == [4, 5, 6, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba'; llama"),
        ({"tokenizer.ggml.pre": "tekken"}, "pre-tokenizer 'tekken'"),
        ({"tokenizer.ggml.merges": ["a"]}, "do not fit together"),
        ({"tokenizer.ggml.merges": ["x y"]}, "are no BPE"),
        ({"llama.rope.scaling.type": "yarn"}, "scales its rope by 'yarn'"),
        ({"llama.block_count": "one"}, "block_count is 'one'"),
    ],
)
def test_what_is_not_known_is_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        folder_of(tmp_path, **change)

"""Writes small GGUF files for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        inner = 8 if isinstance(value[0], str) else 5
        parts = [_text(one) if inner == 8 else struct.pack("<i", one) for one in value]
        return struct.pack("<IIQ", 9, inner, len(value)) + b"".join(parts)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<II", 4, value)


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[int, tuple[int, ...], bytes]]
) -> None:
    """`tensors`: the number of the type, the shape in PyTorch's order and the bytes."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _text(key) + _value(value)
    data = b""
    for name, (kind, shape, raw) in tensors.items():
        head += _text(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


WORDS = ["<|end|>", "a", "b", "Ġ", "ab", "1", "2"]


def llama_metadata() -> dict[str, Any]:
    sizes = {"block_count": 1, "context_length": 64, "embedding_length": 32, "feed_forward_length": 32}
    sizes |= {"attention.head_count": 4, "attention.head_count_kv": 2}
    return {
        "general.architecture": "llama",
        **{f"llama.{key}": size for key, size in sizes.items()},
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 1, 1, 1, 1, 1, 1],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": "{{ messages }}",
    }


def llama_tensors() -> dict[str, tuple[int, tuple[int, ...], bytes]]:
    """Random fp32 tensors of the smallest model, its head tied."""
    random = np.random.default_rng(0)
    shapes = {"token_embd": (len(WORDS), 32), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,)}
    shapes |= {
        "blk.0.attn_q": (32, 32),
        "blk.0.attn_k": (16, 32),
        "blk.0.attn_v": (16, 32),
        "blk.0.attn_output": (32, 32),
    }
    shapes |= {f"blk.0.ffn_{part}": (32, 32) for part in ("gate", "up", "down")}
    return {
        f"{name}.weight": (0, shape, random.standard_normal(shape).astype(np.float32).tobytes())
        for name, shape in shapes.items()
    }

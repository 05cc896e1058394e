"""A GGUF file as a Hugging Face directory: config.json, safetensors, tokenizer, chat template, model card.

Tensors are read and written one at a time. llama.cpp stores the q and k rows of the architecture `llama` in another order; they are put back.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from etude.learn.model.card import CARD, CheckpointOrigin, card
from etude.learn.model.checkpoint_files import TOKEN_IDS
from etude.learn.model.gguf_tokenizer import ID_KEYS, TEMPLATE, read_tokenizer_of, tokenizer_config
from etude.learn.weights.gguf_file import GgufFile, open_gguf
from etude.learn.weights.gguf_types import Floats
from etude.learn.weights.hf_files import SINGLE, CheckpointError

DTYPES = {"fp32": ("F32", 4, "float32"), "bf16": ("BF16", 2, "bfloat16")}
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_KEYS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_TRUNK = {
    "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight",
}  # fmt: skip


@dataclass(frozen=True)
class _Settings:
    """The metadata of one architecture."""

    path: Path
    metadata: Mapping[str, Any]
    architecture: str

    def number(self, key: str, default: float | None = None) -> Any:
        found = self.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < 1 << 40:
            raise CheckpointError(f"{self.path}: {self.architecture}.{key} is {found!r:.40}, no positive number")
        # Numbers are fp32: the shortest decimal that gives the same one.
        return found if isinstance(found, int) else float(str(np.float32(found)))


@dataclass(frozen=True)
class GgufSummary:
    """What a file holds: `name` and `licence` as it states them, else "", and how many tensors there are of each type."""

    architecture: str
    name: str
    licence: str
    parameters: int
    types: dict[str, int]


def summarize_gguf(path: Path) -> GgufSummary:
    """Reads the header alone. Raises CheckpointError as `import_gguf` does for what the header shows."""
    with open_gguf(path) as file:
        architecture = str(hf_config_of(file)["model_type"])
        keys = dict(_hf_keys(file))
        name, licence = (str(file.metadata.get(f"general.{key}", "")) for key in ("name", "license"))
        tensors = [file.tensors[name] for name in keys.values()]
    types = Counter(tensor.kind.name for tensor in tensors)
    return GgufSummary(architecture, name, licence, sum(math.prod(tensor.shape) for tensor in tensors), dict(types))


def write_checkpoint(
    path: Path, folder: Path, dtype: Literal["fp32", "bf16"], origin: CheckpointOrigin, note: str
) -> dict[str, Any]:
    """Writes the model's files and a model card, with `note` on where the weights come from, to `folder`, which must be absent or empty. It is there
    as a whole or not at all. Returns the content of config.json; raises as `import_gguf`, and OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
        draft = Path(place, "checkpoint")
        draft.mkdir()
        config = import_gguf(path, draft, dtype)
        text = card(origin, config, config["vocab_size"]) + f"\n## Origin\n\n{note}\n"
        (draft / CARD).write_text(text, encoding="utf-8")
        draft.rename(folder)  # over an empty folder too
    return config


def import_gguf(path: Path, folder: Path, dtype: Literal["fp32", "bf16"] = "fp32") -> dict[str, Any]:
    """Writes the model's files into `folder`, which is there and empty, and returns the content of config.json. Raises CheckpointError for
    a damaged file and for an architecture, a tensor type or a tokenizer that is not known."""
    with open_gguf(path) as file:
        config = hf_config_of(file) | {"dtype": DTYPES[dtype][2]}
        tokenizer = read_tokenizer_of(file.metadata)
        marks = tokenizer_config(file.metadata, int(config["max_position_embeddings"]))
        keys = dict(_hf_keys(file))
        _write_safetensors(folder / SINGLE, file, keys, config, dtype)
        _write_json(folder / "config.json", config)
        tokenizer.save(str(folder / "tokenizer.json"))
        _write_json(folder / "tokenizer_config.json", marks)
        _write_json(folder / "generation_config.json", {key: config[key] for key in TOKEN_IDS if key in config})
        template = file.metadata.get(TEMPLATE)
        if isinstance(template, str):
            (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return config


def hf_config_of(file: GgufFile) -> dict[str, Any]:
    """The content of config.json. Raises CheckpointError for an architecture that is not known."""
    architecture = file.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in _ARCHITECTURES:
        raise CheckpointError(
            f"{file.path} has the architecture {architecture!r:.40}; {', '.join(_ARCHITECTURES)} can be read"
        )
    settings = _Settings(file.path, file.metadata, architecture)
    scaling = file.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if scaling != "none":
        raise CheckpointError(f"{file.path} scales its rope by {scaling!r:.40}, which is not read; take another file")
    heads, hidden = settings.number("attention.head_count"), settings.number("embedding_length")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError(f"{file.path} lacks the tensor token_embd.weight; the file is incomplete")
    config = {
        "architectures": [_ARCHITECTURES[architecture]],
        "model_type": architecture,
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": settings.number("feed_forward_length"),
        "num_hidden_layers": settings.number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": settings.number("attention.head_count_kv", heads),
        "head_dim": settings.number("attention.key_length", hidden // heads),
        "max_position_embeddings": settings.number("context_length"),
        "rms_norm_eps": settings.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": settings.number("rope.freq_base", 10000.0),
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    ids = {key: file.metadata.get(name) for key, name in ID_KEYS.items()}
    return config | {key: number for key, number in ids.items() if type(number) is int}


def _hf_keys(file: GgufFile) -> Iterator[tuple[str, str]]:
    """Key on disk and name in the GGUF file. Raises CheckpointError for a tensor that is not known."""
    for name in file.tensors:
        if name in _TRUNK:
            yield _TRUNK[name], name
            continue
        start, _, rest = name.partition(".")
        layer, _, rest = rest.partition(".")
        part, _, kind = rest.partition(".")
        if start != "blk" or not layer.isdecimal() or part not in _KEYS or kind not in ("weight", "bias"):
            raise CheckpointError(f"{file.path} has the tensor {name!r:.80}, which this model code does not compute")
        yield f"model.layers.{int(layer)}.{_KEYS[part]}.{kind}", name


def _tensor(file: GgufFile, name: str, config: Mapping[str, Any]) -> Floats:
    """A tensor with its rows in the order of Hugging Face."""
    numbers = file.read(name)
    part = name.rpartition(".")[0]
    if config["model_type"] != "llama" or not part.endswith((".attn_q", ".attn_k")):
        return numbers
    heads = config["num_attention_heads" if part.endswith("_q") else "num_key_value_heads"]
    if numbers.shape[0] % (2 * heads):
        raise CheckpointError(f"{file.path}: {name} has {numbers.shape[0]} rows for {heads} heads; the file is damaged")
    rows = numbers.reshape(heads, -1, 2, *numbers.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(numbers.shape)


def _write_safetensors(
    path: Path, file: GgufFile, keys: Mapping[str, str], config: Mapping[str, Any], dtype: str
) -> None:
    """One file, tensor after tensor: its header says where each will be."""
    kind, width, _ = DTYPES[dtype]
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers refuses files without this mark
    end = 0
    for key, name in keys.items():
        shape = file.tensors[name].shape
        start, end = end, end + int(np.prod(shape, dtype=object)) * width
        header[key] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("wb") as out:
        out.write(len(raw).to_bytes(8, "little") + raw)
        for name in keys.values():
            numbers = _tensor(file, name, config)
            out.write(numbers.tobytes() if dtype == "fp32" else _to_bf16(numbers).tobytes())


def _to_bf16(numbers: Floats) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """The nearest bf16, ties to even, as its bits."""
    bits = numbers.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

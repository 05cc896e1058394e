"""The tensors of a Hugging Face checkpoint directory: what its files say of them, and the tensors themselves, one after the other.

Quantised weights are read back to bf16 on the way (`weights/quantized.py`). Plain ones are views of the mapped file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from etude.learn.model.config import ModelConfig
from etude.learn.model.count import count_parameters
from etude.learn.model.hf_config import WRAPPED, WRAPPERS, raw_config, text_config
from etude.learn.model.hf_keys import MissingTensors, ignorable
from etude.learn.weights.hf_files import INDEX, CheckpointError, tensor_files
from etude.learn.weights.quantized import Dequantizer, scheme_of

WEIGHT_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
HEADER_TYPES = ("F64", "F32", "BF16", "F16")  # the same, as safetensors names them
_ROWS = ("model.embed_tokens.weight", "lm_head.weight")  # one row a token id
Wanted = Callable[[str], bool]  # of a tensor's key on disk


@dataclass(frozen=True)
class TensorHeader:
    """What a file says of a tensor."""

    shape: tuple[int, ...]


def tensor_headers(folder: Path | str, config: ModelConfig) -> dict[str, TensorHeader]:
    """What the files hold of this model, by the keys of the language model. Raises CheckpointError, also for a type that is no weight's and for
    rows that are not the vocabulary's; reads no weights."""
    folder, prefix = Path(folder), prefix_of(folder)
    quantized = _dequantizer_of(folder)
    found: dict[str, TensorHeader] = {}
    for path, file, keys in _opened(folder, lambda key: _belongs(key, prefix, config), quantized):
        for key in keys:
            with _reading(path):
                header = file.get_slice(key)
            if (whole := quantized.add_shape(key, header.get_shape())) is not None:
                # What is read back is bf16; a tensor that is no part of another has to be a weight itself.
                kind = "BF16" if quantized.is_part(key) else header.get_dtype()
                found[whole[0].removeprefix(prefix)] = _checked(whole[0], path.name, kind, list(whole[1]), config)
    quantized.require_complete()
    return found


def model_tensors(folder: Path | str, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """The tensors of this model by the keys of the language model, read as they are asked for. Raises as `read_tensors`."""
    prefix = prefix_of(folder)
    for key, tensor in _tensors(Path(folder), lambda key: _belongs(key, prefix, config)):
        yield key.removeprefix(prefix), tensor
        del tensor


def read_tensors(folder: Path | str, wanted: Wanted = lambda _key: True) -> dict[str, Tensor]:
    """Tensors of a checkpoint directory by their key on disk: all, or those that are wanted. Raises CheckpointError for a damaged
    directory, and by name for a tensor that is no weight (`check_weight`).
    """
    return dict(_tensors(Path(folder), wanted))


def _tensors(folder: Path, wanted: Wanted) -> Iterator[tuple[str, Tensor]]:
    """One after the other; nothing here holds a tensor after the next one was asked for."""
    quantized = _dequantizer_of(folder)
    for path, file, keys in _opened(folder, wanted, quantized):
        for key in keys:
            with _reading(path):
                whole = quantized.add(key, file.get_tensor(key))
            if whole is not None:
                check_weight(*whole)
                yield whole
            del whole  # as it may be gigabytes, before the next one is read
    quantized.require_complete()


def _opened(folder: Path, wanted: Wanted, quantized: Dequantizer) -> Iterator[tuple[Path, Any, list[str]]]:
    """Each file of weights, open, with the keys in it that are wanted or are parts of what is. Raises CheckpointError."""
    for name, listed in tensor_files(folder).items():
        path = folder / name
        with _reading(path), safe_open(path, framework="pt") as file:
            there = set(file.keys())
            named = there if listed is None else listed
            taken = sorted(key for key in named if wanted(quantized.tensor_of(key)))
            if absent := [key for key in taken if key not in there]:
                raise MissingTensors(
                    f"{path} lacks {absent[0]}, which {INDEX} says is there; the checkpoint is incomplete"
                )
            yield path, file, taken


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises CheckpointError for what safetensors can't read."""
    try:
        yield
    except SafetensorError as error:
        raise CheckpointError(f"{path} can't be read ({error}); the checkpoint is damaged") from error


def _dequantizer_of(folder: Path) -> Dequantizer:
    """What reads the quantised weights of a checkpoint directory. Raises CheckpointError."""
    raw = raw_config(folder) if (folder / "config.json").is_file() else {}
    scheme = scheme_of(raw.get("quantization_config") or text_config(raw).get("quantization_config"))
    return Dequantizer(scheme, set() if scheme is None else stored_keys(folder))


def stored_keys(folder: Path) -> set[str]:
    """The names of all tensors of a checkpoint directory, from the index or the files' headers. Raises CheckpointError."""
    keys: set[str] = set()
    for name, listed in tensor_files(folder).items():
        if listed is not None:
            keys |= listed
            continue
        with _reading(folder / name), safe_open(folder / name, framework="np") as file:
            keys |= set(file.keys())
    return keys


def _checked(key: str, file: str, kind: str, shape: list[int], config: ModelConfig) -> TensorHeader:
    if kind not in HEADER_TYPES:
        raise CheckpointError(
            f"{key} in {file} is {kind}: quantised weights can't be loaded; convert the checkpoint to bf16 or fp32 first"
        )
    if key.endswith(_ROWS) and shape and shape[0] != config.vocab_size:
        raise CheckpointError(
            f"{key} in {file} has {shape[0]:,} rows, and config.json says vocab_size {config.vocab_size:,}: they do not belong together"
        )
    return TensorHeader(tuple(shape))


def check_weight(name: str, tensor: Tensor) -> None:
    """Raises CheckpointError for a tensor that is no weight: integers, 8-bit floats without their scales, or a number that is not finite."""
    if tensor.dtype not in WEIGHT_TYPES:
        kind = str(tensor.dtype).removeprefix("torch.")
        raise CheckpointError(
            f"{name} is {kind}: quantised weights can't be loaded; convert the checkpoint to bf16 or fp32 first"
        )
    if tensor.numel() and not all(bound.isfinite() for bound in tensor.aminmax()):
        raise CheckpointError(
            f"{name} holds numbers that are not finite (NaN or infinity): the checkpoint is damaged; take another"
        )


def prefix_of(folder: Path | str) -> str:
    """What the keys of the language model's tensors begin with in a checkpoint directory."""
    return WRAPPED if raw_config(folder).get("model_type") in WRAPPERS else ""


def _belongs(key: str, prefix: str, config: ModelConfig) -> bool:
    """Whether a tensor on disk is one of the model's."""
    return key.startswith(prefix) and not ignorable(key.removeprefix(prefix), config)


def check_size(config: ModelConfig, folder: Path | str) -> None:
    """Raises CheckpointError before memory is taken for a model that the files can't fill, at half a byte a parameter, the least that is read."""
    size = sum((Path(folder) / name).stat().st_size for name in tensor_files(Path(folder)))
    count = count_parameters(config)
    if count.total + count.drafts > 2 * size:
        raise CheckpointError(
            f"{folder}: config.json describes a model of {count.total + count.drafts:,} parameters, and its files hold {size:,} bytes: the "
            "checkpoint is damaged, incomplete or of another model"
        )

"""Whether the model code can load a checkpoint directory, without loading it: its config, its index, and the types of its tensors."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from etude.model.hf_config import read_config
from etude.weights.hf_files import INDEX, SINGLE, CheckpointError, tensor_files

_ROWS = ("model.embed_tokens.weight", "lm_head.weight")  # one row a token id
# As safetensors names them.
WEIGHT_TYPES = ("F64", "F32", "BF16", "F16")


def loadable(folder: Path) -> str:
    """What it is, in words. Raises CheckpointError or UnsupportedConfig, naming what can't be loaded; reads headers, no weights."""
    config = read_config(folder)
    summary = f"{config.family}, {config.layers} layers, {config.context_length:,} positions"
    if not (folder / INDEX).exists() and not (folder / SINGLE).exists():
        return f"{summary}; no weights are here"
    count = 0
    for name, listed in tensor_files(folder).items():
        try:
            with safe_open(folder / name, framework="np") as file:
                keys = list(file.keys())
                for key in keys if listed is None else sorted(listed.intersection(keys)):
                    if (kind := file.get_slice(key).get_dtype()) not in WEIGHT_TYPES:
                        raise CheckpointError(
                            f"{key} in {name} is {kind}: quantised weights can't be loaded; convert the checkpoint to bf16 or fp32 first"
                        )
                    if key.endswith(_ROWS) and (rows := file.get_slice(key).get_shape()[0]) != config.vocab_size:
                        raise CheckpointError(
                            f"{key} in {name} has {rows:,} rows, and config.json says vocab_size {config.vocab_size:,}: they do not belong together"
                        )
                    count += 1
        except SafetensorError as error:
            raise CheckpointError(f"{folder / name} can't be read ({error}); the checkpoint is damaged") from error
    return f"{summary}; {count:,} tensors"

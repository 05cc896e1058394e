"""A checkpoint directory through transformers: read whole or refused, and written so that it reads back bit for bit."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from etude.learn.model.transformers_backend.config import read_transformers_config, transformers
from etude.learn.model.transformers_backend.language_model import INNER, TransformersLM
from etude.learn.weights.hf_files import CheckpointError


def load_transformers(
    folder: Path | str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> TransformersLM:
    """The model of a checkpoint directory. Raises CheckpointError or UnsupportedConfig, naming what does not fit."""
    read_transformers_config(folder)
    try:
        inner, report = transformers().AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=dtype, trust_remote_code=False, local_files_only=True, output_loading_info=True
        )
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(f"{folder}: transformers can't load the weights: {line:.300}") from error
    for what in ("missing_keys", "mismatched_keys"):
        if odd := sorted(str(key) for key in report.get(what, ())):
            raise CheckpointError(
                f"{folder}: {odd[0]} ({len(odd)} such) is {what.removesuffix('_keys')}: the weights are not those of the class "
                f"{type(inner).__name__}"
            )
    _require_finite(inner)
    return TransformersLM(inner.to(device))


def _require_finite(inner: nn.Module) -> None:
    for name, tensor in inner.state_dict().items():
        if tensor.is_floating_point() and tensor.numel() and not all(bound.isfinite() for bound in tensor.aminmax()):
            raise CheckpointError(
                f"{name} holds numbers that are not finite (NaN or infinity): the checkpoint is damaged; take another"
            )


def write_weights(model: TransformersLM, folder: Path, state: Mapping[str, Tensor]) -> None:
    """The weights of `state`, whose names are those of `model`, into `folder` by the names that the class has on disk. config.json stays."""
    named = {name.removeprefix(INNER): tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    with tempfile.TemporaryDirectory(prefix="etude-weights-", dir=folder) as place:
        model.inner.save_pretrained(place, state_dict=named)
        for path in Path(place).glob("*.safetensors*"):
            path.rename(folder / path.name)

"""How a new model is drawn, draft layers too, and the one door through which a run gets its first model.

Matrices are normal with std gain / sqrt(fan in): activations keep their size at any width. Those that write into the stream
are shrunk by sqrt(2 L), so that depth does not grow it (GPT-2). The head starts near zero: the first loss is ln V.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import draft_tensors, load_checkpoint, load_config
from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_config import to_hf_config
from etude.learn.model.hf_keys import from_hf
from etude.learn.model.settings import ModelSettings
from etude.learn.model.transformers_backend.config import refuse
from etude.learn.weights.hf_files import CheckpointError

WRITES_INTO_STREAM = ("attention.out.weight", "down.weight", "experts.down")
STARTS_AT_ZERO = ("bias", "sinks")
MLA_FACTORS = (
    "attention.q.weight",
    "attention.q_a.weight",
    "attention.q_b.weight",
    "attention.kv_a.weight",
    "attention.kv_b.weight",
)


def initial_std(name: str, parameter: nn.Parameter, config: ModelConfig, settings: ModelSettings) -> float:
    """The standard deviation a parameter is drawn with."""
    if name == "embed.weight":
        # A tied embedding is the head too: logits of about one, whose first loss is near ln V.
        return config.hidden_size**-0.5 if config.tied else settings.init_embedding_std
    if name == "head.weight":
        return settings.init_head_std
    std = settings.init_gain * parameter.shape[-1] ** -0.5  # fan in is last, in 2-D and in fused 3-D weights
    if name.endswith(WRITES_INTO_STREAM):
        std *= (2 * config.layers) ** -0.5
    if config.attention == "latent" and name.endswith(MLA_FACTORS):
        std *= settings.init_mla_gain
    return std


def draw(model: CausalLM, settings: ModelSettings) -> None:
    """Fill every parameter from `settings.seed`; norms become one, biases and sinks zero."""
    _draw(model, model.config, settings)


@torch.no_grad()
def _draw(part: nn.Module, config: ModelConfig, settings: ModelSettings) -> None:
    generator = torch.Generator().manual_seed(settings.seed)
    for name, parameter in part.named_parameters():
        if name.endswith(STARTS_AT_ZERO):
            parameter.zero_()
            continue
        if parameter.ndim == 1:
            parameter.fill_(0.0 if config.norm_offset else 1.0)
            continue
        std = initial_std(name, parameter, config, settings)
        parameter.copy_(torch.empty(parameter.shape).normal_(0.0, std, generator=generator))
    for name, buffer in part.named_buffers():
        if name.endswith("router.bias"):
            buffer.zero_()


def with_drafts(model: CausalLM, layers: int, seed: int) -> CausalLM:
    """A copy of `model` with `layers` freshly drawn draft layers behind the same trunk. Raises ValueError if it has some."""
    refuse(model.config, "a draft layer")
    if model.config.mtp_layers:
        raise ValueError(f"the model already has {model.config.mtp_layers} draft layers; load it without them")
    drafted = CausalLM(model.config.model_copy(update={"mtp_layers": layers})).to(model.embed.weight.dtype)
    _draw(drafted.mtp, drafted.config, ModelSettings.model_validate({"seed": seed}))
    drafted.load_state_dict(drafted.state_dict() | model.state_dict())
    return drafted


def adopt_drafts(model: CausalLM, folder: Path | str) -> CausalLM:
    """A copy of `model` with the draft layers of the checkpoint `folder` behind its trunk, which may have learnt on or been
    stretched since they were made. Raises CheckpointError if there are none, or if they don't fit.
    """
    found, layers = draft_tensors(folder, model.config), load_config(folder).mtp_layers
    if not layers:
        raise CheckpointError(f"the checkpoint {folder} has no draft layers")
    drafted = CausalLM(model.config.model_copy(update={"mtp_layers": layers})).to(model.embed.weight.dtype)
    drafted.load_state_dict(drafted.state_dict() | model.state_dict())
    drafts = {name: tensor for name, tensor in drafted.state_dict().items() if name.startswith("mtp.")}
    from_hf(drafts, found, drafted.config)
    return drafted


def new_model(settings: ModelSettings, vocab_size: int) -> CausalLM:
    """The model a run starts from: the checkpoint `settings.init` names, with its own shape, or a freshly drawn one."""
    if settings.init:
        model = load_checkpoint(settings.init, impl=settings.impl)
        if model.config.vocab_size < vocab_size:  # more rows than ids are common: checkpoints pad theirs
            raise ValueError(
                f"the checkpoint {settings.init} has a vocabulary of {model.config.vocab_size}, its tokenizer.json one of "
                f"{vocab_size}: they do not belong together"
            )
        return model
    if settings.impl == "transformers":
        raise ValueError(
            'model.impl = "transformers" computes a checkpoint, and model.init names none: name one, or leave impl out'
        )
    config = ModelConfig.from_settings(settings, vocab_size)
    to_hf_config(config)  # what the family's files can't describe is refused now, not when the model is saved
    model = CausalLM(config)
    draw(model, settings)
    return model

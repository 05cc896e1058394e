"""Longer contexts for a trained model: its positions stretched by YaRN (arXiv 2309.00071), its weights as they are.

32k to 256k is a factor of 8: `pretrain.short.row_tokens = 32768`, `pretrain.long.row_tokens = 262144`, `pretrain.long.yarn_factor = 8`.
The stretched model needs some training at its new length before it is better than the old one there.
"""

from __future__ import annotations

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig
from etude.learn.model.settings import YarnSettings
from etude.learn.model.transformers_backend.config import refuse


def stretch_config(config: ModelConfig, trained_positions: int, factor: float) -> ModelConfig:
    """The same model reading `factor` times as far as it was trained to, and not further: max_positions says how far.

    `trained_positions` are the tokens of the rows it was trained on. A model that is stretched already keeps its original
    positions: the factors multiply, and `trained_positions` have to be what its stretch reaches. Raises ValueError.
    """
    refuse(config, "a stretch of positions")
    if factor <= 1:
        raise ValueError(f"a stretch by {factor} is none: take a factor above 1, or leave the checkpoint as it is")
    if config.rope_scaling is not None:
        raise ValueError(
            f"the checkpoint scales its positions by {config.rope_scaling.kind}, which YaRN can't continue: leave out the long phase"
        )
    if config.yarn is None:
        # Temperatures as a new model of the family gets them (ModelConfig.from_settings).
        whole = 0.0 if config.attention == "grouped" else 1.0
        yarn = YarnSettings.model_validate(
            {"factor": factor, "original_positions": trained_positions, "mscale_all_dim": whole}
        )
    else:
        reach = reachable_positions(config)
        if trained_positions != reach:
            raise ValueError(
                f"the checkpoint is stretched to {reach} positions by YaRN, the phase before had rows of {trained_positions}: "
                f"stretch on from {reach}"
            )
        yarn = config.yarn.model_copy(update={"factor": config.yarn.factor * factor})
    return config.model_copy(update={"yarn": yarn, "max_positions": round(yarn.original_positions * yarn.factor)})


def reachable_positions(config: ModelConfig) -> int:
    """Positions that a checkpoint was made for: the stretch of its YaRN, else all that it claims."""
    return config.max_positions if config.yarn is None else round(config.yarn.original_positions * config.yarn.factor)


def stretch(model: CausalLM, trained_positions: int, factor: float) -> CausalLM:
    """A model of the stretched config over the very tensors of `model`, which is not to be used any more."""
    longer = CausalLM(stretch_config(model.config, trained_positions, factor))
    longer.load_state_dict(model.state_dict(), assign=True)  # shared, so that a large model is held once
    return longer

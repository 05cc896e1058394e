"""The resolved shape of one model: the settings' architecture plus the vocabulary, and what follows from them."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from etude.learn.model.settings import MOST_DRAFT_LAYERS, MOST_VOCABULARY, Architecture


class ModelConfig(Architecture):
    """What a model is built from. Immutable; two models of equal configs have equal parameter names and shapes."""

    new: ClassVar[bool] = False
    vocab_size: int = Field(ge=1, le=MOST_VOCABULARY, description="rows of the embedding and of the head")
    mtp_layers: int = Field(
        0,
        ge=0,
        le=MOST_DRAFT_LAYERS,
        description="draft layers behind the trunk; a recipe sets them in [mtp], not in [model]",
    )

    @classmethod
    def from_settings(cls, settings: Architecture, vocab_size: int) -> ModelConfig:
        """The architecture part of `settings` with a vocabulary.

        How a new model is drawn and what describes absent parts stay behind, so equal models have equal configs.
        """
        unused = settings.unused_fields
        shape = {name: getattr(settings, name) for name in Architecture.model_fields if name not in unused}
        if settings.attention == "grouped" and settings.yarn is not None:
            # Rope divides by this temperature because MLA's score multiplies by it; here nothing would bring it back.
            shape["yarn"] = settings.yarn.model_copy(update={"mscale_all_dim": 0.0})
        return cls(vocab_size=vocab_size, **{name: Architecture.model_fields[name].default for name in unused} | shape)

    def has_experts(self, layer: int) -> bool:
        """Whether block `layer` is a mixture of experts. Draft layers, which are counted on behind the trunk's, are where the trunk has any."""
        if not self.experts or layer >= self.layers:
            return bool(self.experts)
        sparse = layer >= self.first_dense and (layer + 1) % self.sparse_step == 0
        return sparse and layer not in self.dense_layers

    def window_of(self, layer: int) -> int:
        """Positions that block `layer` sees; 0: all. Draft layers see all."""
        return self.window if layer in self.window_layers else 0

    def heads_of(self, layer: int) -> int:
        """Query heads of block `layer`."""
        return self.layer_heads[layer] if layer < len(self.layer_heads) else self.heads

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Blocks with experts, in order; index l of a route array belongs to block `moe_layers[l]`."""
        return tuple(n for n in range(self.layers) if self.has_experts(n))

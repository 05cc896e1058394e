"""Settings of the importance weights. Torch-free: the recipe imports them. `importance_weights.py` gives the source of each default."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from etude.core.plugins import is_import_path

ImportanceKind = Literal["none", "tis", "ppo_clip", "icepop", "dppo_mask"]


class TisSettings(BaseModel):
    """Truncated importance sampling."""

    model_config = ConfigDict(extra="forbid")

    cap: float = Field(default=2.0, gt=0, description="Most that a token's ratio trainer/sampler counts.")


class PpoClipSettings(BaseModel):
    """The gradient of PPO's clipped surrogate."""

    model_config = ConfigDict(extra="forbid")

    low: float = Field(
        default=0.2, gt=0, lt=1, description="A token that is to become rarer stops below a ratio of 1 minus this."
    )
    high: float = Field(
        default=0.28, gt=0, description="A token that is to become likelier stops above a ratio of 1 plus this."
    )
    dual: float | None = Field(
        default=3.0,
        gt=1,
        description="A token that is to become rarer stops above this ratio too; unset: it counts ever more.",
    )


class IcePopSettings(BaseModel):
    """A band of ratios outside of which a token is dropped."""

    model_config = ConfigDict(extra="forbid")

    low: float = Field(default=0.5, ge=0, lt=1, description="Least ratio trainer/sampler of a token that counts.")
    high: float = Field(default=5.0, gt=1, description="Largest ratio of a token that counts.")


class DppoMaskSettings(BaseModel):
    """A bound on how far a token's probability has moved already."""

    model_config = ConfigDict(extra="forbid")

    divergence: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="A token is dropped whose probability has moved so far the way its advantage pushes it.",
    )
    cap: float = Field(default=5.0, ge=1, description="Most that a kept token's ratio counts.")


class ImportanceSettings(BaseModel):
    """Which option holds, and the numbers of each."""

    model_config = ConfigDict(extra="forbid")

    kind: str = Field(
        default="tis",
        description="How tokens that older weights sampled are corrected (docs/rl.md): none, tis, ppo_clip, icepop, dppo_mask, or module:name "
        "of a function of one's own (docs/extending.md).",
    )
    tis: TisSettings = Field(default_factory=TisSettings, description="Numbers of tis.")
    ppo_clip: PpoClipSettings = Field(default_factory=PpoClipSettings, description="Numbers of ppo_clip.")
    icepop: IcePopSettings = Field(default_factory=IcePopSettings, description="Numbers of icepop.")
    dppo_mask: DppoMaskSettings = Field(default_factory=DppoMaskSettings, description="Numbers of dppo_mask.")

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        if kind not in get_args(ImportanceKind) and not is_import_path(kind):
            raise ValueError(
                f"{kind!r} is none of {', '.join(get_args(ImportanceKind))}, and no import path (module:name)"
            )
        return kind

    @model_validator(mode="after")
    def _chosen(self) -> ImportanceSettings:
        """Nothing would read the numbers of an option that is not chosen."""
        blocks = {
            name: block for name, block in ImportanceSettings.model_fields.items() if name not in ("kind", self.kind)
        }
        unused = [
            name
            for name, block in blocks.items()
            if getattr(self, name) != block.get_default(call_default_factory=True)
        ]
        if unused:
            raise ValueError(
                f"trust.{unused[0]} has numbers, but trust.kind is {self.kind!r}: choose {unused[0]!r} or leave them out"
            )
        return self

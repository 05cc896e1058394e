"""A session's budget of turns and tokens, by its effort. Medium is the budget of the settings. The factors are choices of this project."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etude.agent.harness.presets.preset import Preset
from etude.agent.harness.settings import HarnessSettings

FACTORS = {"low": 0.5, "medium": 1.0, "high": 2.0}


@dataclass(frozen=True)
class Budget:
    """`turns` for one request, `session_tokens` for all segments together, `turn_tokens` for one turn."""

    turns: int
    session_tokens: int
    turn_tokens: int

    @classmethod
    def of(cls, settings: HarnessSettings) -> Budget:
        factor = FACTORS[settings.effort]
        return cls(
            max(1, int(settings.max_turns * factor)),
            int(settings.max_session_tokens * factor),
            settings.max_tokens_per_turn,
        )


def effort_words(preset: Preset, settings: HarnessSettings) -> str:
    """The effort's paragraph in the system prompt. Empty at medium effort and for a trained vocabulary."""
    if settings.effort == "medium" or not preset.skinned:
        return ""
    return (Path(__file__).parent / "prompts" / f"effort-{settings.effort}.md").read_text(encoding="utf-8").strip()

"""At which effort a group is attempted: drawn by group, so that rollouts are compared with those that were asked for the same.

The length penalty is scaled by it (`length.effort`), and the model must be able to know it: by the words of the system prompt or
by the chat format's own field. Where neither says it, efforts are refused.
"""

from __future__ import annotations

import random
from dataclasses import replace

from etude.agent.chat.renderer import Effort, Renderer
from etude.agent.harness.budget import effort_words
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.rl.settings import RlSettings
from etude.rollout.attempt import AttemptSetup


def at_effort(setup: AttemptSetup, group: int, settings: RlSettings) -> AttemptSetup:
    """The setup of the group's attempts; the same group draws the same effort whenever it is asked."""
    shares = settings.efforts
    if not shares:
        return setup
    (effort,) = random.Random(f"effort {settings.seed} {group}").choices(list(shares), list(shares.values()))
    return replace(setup, harness=setup.harness.model_copy(update={"effort": effort}))


def check_efforts(settings: RlSettings, harness: HarnessSettings, renderer: Renderer) -> None:
    """Raises ValueError if efforts are to be drawn and the model could not know its effort."""
    asked: list[Effort] = [effort for effort, share in settings.efforts.items() if share]
    if settings.efforts and not asked:
        raise ValueError("every share of rl.efforts is 0: give one of them a share, or leave the table out")
    for effort in asked:
        at = harness.model_copy(update={"effort": effort})
        visible = effort_words(preset_of(at), at) or renderer.at_effort(effort) is not renderer
        if effort != "medium" and not visible:
            raise ValueError(
                f"rl.efforts has {effort}, but neither the preset {harness.preset} nor the chat format {renderer.name} tells the "
                "model: use a described preset, or leave rl.efforts out"
            )

"""The first messages of a session: the system prompt and the first request, and their tokens."""

from __future__ import annotations

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.budget import effort_words
from etude.agent.harness.dependencies import renderer_for
from etude.agent.harness.presets.preset import Preset, preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.harness.transcript import Transcript
from etude.core.trace.entry import SessionHeader
from etude.core.trace.message import Message
from etude.core.trace.session import Recorder


def opening_messages(preset: Preset, settings: HarnessSettings, facts: TaskFacts) -> list[Message]:
    """The messages before the first turn."""
    words = (preset.system, facts.surroundings, facts.instructions, effort_words(preset, settings))
    system = "\n\n".join(text for text in words if text)
    return [*([Message("system", system)] if system else []), Message("user", facts.instruction)]


async def first_prompt(settings: HarnessSettings, facts: TaskFacts, renderer: Renderer) -> tuple[int, ...]:
    """Token ids of the first request of a session, as the agent would send them."""
    preset = preset_of(settings, ())
    recorder = Recorder(
        SessionHeader(session_id=facts.task_id, task_id=facts.task_id, harness="", effort=settings.effort)
    )
    transcript = Transcript(recorder, renderer_for(renderer, settings), preset.schemas)
    transcript.open(opening_messages(preset, settings, facts))
    return await transcript.prompt()

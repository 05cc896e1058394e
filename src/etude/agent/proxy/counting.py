"""How many tokens a conversation has, for agents that plan by it: nothing is sampled, recorded or kept."""

from __future__ import annotations

import json

from etude.agent.chat.renderer import Renderer, RenderError
from etude.agent.proxy.ask import Ask, ProxyRequestError
from etude.agent.proxy.tokens import aside

# Without the model's tokenizer tokens can only be estimated: code and English text have some four bytes a token in every large
# vocabulary, and an agent that plans its compaction by this gets a number of the right size.
BYTES_PER_TOKEN = 4


async def prompt_tokens(ask: Ask, renderer: Renderer | None) -> int:
    """The prompt's tokens in the model's format; without one an estimate. Raises Refused for what the format can't hold."""
    if renderer is None:
        said = json.dumps([[message.to_json() for message in ask.messages], ask.tools], ensure_ascii=False)
        return -(-len(said.encode()) // BYTES_PER_TOKEN)
    try:
        return len(await aside(ask.messages, renderer.at_effort(ask.effort).render, ask.messages, ask.tools))
    except RenderError as error:
        raise ProxyRequestError(f"the model's chat format can't hold this request: {error}") from error

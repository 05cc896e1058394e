"""A policy that takes tokens, asked in messages: so that a checkpoint's own engine can judge, or be probed, without a server before it."""

from __future__ import annotations

from dataclasses import replace

from etude.agent.chat.renderer import Renderer, RenderError
from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.completion import Completion, Usage


class SingleRequestPolicy:
    """Renders each request separately: for single questions, not for sessions."""

    takes_tokens = False

    def __init__(self, inner: Policy, renderer: Renderer) -> None:
        self.name = inner.name
        self._inner, self._renderer = inner, renderer

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError, not ours where the chat format can't hold the messages."""
        try:
            prompt = self._renderer.render(request.messages, request.tools)
        except RenderError as error:
            raise PolicyError(f"the chat format of {self.name} can't hold this: {error}", infra=False) from error
        asked = replace(request, prompt_ids=tuple(prompt), stop_ids=self._renderer.stop_ids)
        answer = await self._inner.complete(asked)
        if answer.tokens is None:
            return answer
        message = self._renderer.parse(answer.tokens.ids, tools=request.tools)
        usage = Usage(len(prompt), 0, len(answer.tokens.ids), seconds=answer.usage.seconds)
        return Completion(message=message, finish=answer.finish, usage=usage)

    async def release(self, session_id: str) -> None:
        await self._inner.release(session_id)

"""The line a person types in, open while the agent works: what is being said stands above it, how things are before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.key_binding import KeyBindings

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent


class Queued(str):
    """Words to be kept until the agent has finished."""


class Line:
    """`state` is shown before what is typed; `tail` is the unfinished line of what is said, and whether it is thought."""

    def __init__(self, state: Callable[[], str], tail: Callable[[], tuple[str, bool]]) -> None:
        self._state, self._tail = state, tail
        keys = KeyBindings()
        keys.add("escape", "enter")(_queue)
        self._session: PromptSession[str] = PromptSession(self._message, key_bindings=keys, erase_when_done=True)

    async def read(self) -> str:
        """What was typed; `Queued` after Alt-Enter. Raises KeyboardInterrupt and EOFError."""
        return await self._session.prompt_async()

    def refresh(self) -> None:
        """Something changed of what the line shows."""
        if self._session.app.is_running:
            self._session.app.invalidate()

    def _message(self) -> FormattedText:
        tail, thought = self._tail()
        prompt = ("bold", f"{self._state()}> ")
        if not tail:
            return FormattedText([prompt])
        width = get_app().output.get_size().columns - 1
        return FormattedText([("ansibrightblack" if thought else "", tail[-width:] + "\n"), prompt])


def _queue(event: KeyPressEvent) -> None:
    event.current_buffer.append_to_history()
    event.app.exit(result=Queued(event.current_buffer.text))

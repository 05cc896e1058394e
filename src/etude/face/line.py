"""The line a person types in, open while the agent works: what is being said stands above it, how things are before it.

One prompt for the whole conversation: the terminal never leaves it in between, so that no key is lost or echoed twice.
"""

from __future__ import annotations

import asyncio
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
    """`state` is shown before what is typed; `tail` is the unfinished line of what is said, and whether it is thought.

    Use as an async context: the line is open inside of it.
    """

    def __init__(self, state: Callable[[], str], tail: Callable[[], tuple[str, bool]]) -> None:
        self._state, self._tail = state, tail
        self._typed: asyncio.Queue[str | type[BaseException]] = asyncio.Queue()
        self._session: PromptSession[str] = PromptSession(
            self._message, key_bindings=self._keys(), erase_when_done=True
        )
        self._open: asyncio.Future[str] | None = None

    async def __aenter__(self) -> Line:
        self._open = asyncio.ensure_future(self._session.prompt_async())
        self._open.add_done_callback(lambda _: self._typed.put_nowait(EOFError))  # the terminal is gone
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._open is not None
        if self._session.app.is_running:
            self._session.app.exit(result="")
        await asyncio.wait((self._open,))
        if not isinstance(self._open.exception(), EOFError | None):
            self._open.result()

    async def read(self) -> str:
        """What was typed; `Queued` after Alt-Enter. Raises KeyboardInterrupt and EOFError."""
        typed = await self._typed.get()
        if isinstance(typed, str):
            return typed
        raise typed

    def refresh(self) -> None:
        """Something changed of what the line shows."""
        if self._session.app.is_running:
            self._session.app.invalidate()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter", eager=True)(lambda event: self._take(event, str))
        for enter in ("enter", "c-j"):  # the second while something is printed
            keys.add("escape", enter)(lambda event: self._take(event, Queued))
        keys.add("c-c", eager=True)(self._interrupt)
        keys.add("<sigint>", eager=True)(self._interrupt)  # while something is printed the terminal sends the signal
        keys.add("c-d", eager=True)(self._end)
        return keys

    def _take(self, event: KeyPressEvent, kind: type[str]) -> None:
        buffer = event.current_buffer
        self._typed.put_nowait(kind(buffer.text))
        buffer.reset(append_to_history=True)

    def _interrupt(self, event: KeyPressEvent) -> None:
        event.current_buffer.reset()
        self._typed.put_nowait(KeyboardInterrupt)

    def _end(self, event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            self._typed.put_nowait(EOFError)

    def _message(self) -> FormattedText:
        tail, thought = self._tail()
        prompt = ("bold", f"{self._state()}> ")
        if not tail:
            return FormattedText([prompt])
        width = get_app().output.get_size().columns - 1
        return FormattedText([("ansibrightblack" if thought else "", tail[-width:] + "\n"), prompt])

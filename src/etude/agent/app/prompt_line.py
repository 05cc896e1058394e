"""The input line of the terminal. It stays open while the agent works: streamed text appears above it, the state in front of it.

One prompt serves the whole conversation, so that no key is lost or echoed twice. The terminal stays in raw mode while something is
printed above, so that Ctrl-D, Ctrl-C and Enter always arrive as keys.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent


class QueuedText(str):
    """Text to be queued until the agent has finished."""


class RawInput(Vt100Input):
    """Stays in raw mode while something is printed. In cooked mode a Ctrl-D would become an unread end of file and arrive as another key.

    Output is the same in both modes.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()


class PromptLine:
    """The prompt, as an async context manager: the line is open inside of it.

    `state` is shown in front of the input. `tail` returns the unfinished line of streamed text, and whether it is thinking. `history`
    keeps what was typed, except for answers to questions, which are typed while `answering` returns True.
    """

    def __init__(
        self, state: Callable[[], str], tail: Callable[[], tuple[str, bool]], history: Path, answering: Callable[[], bool]
    ) -> None:  # fmt: skip
        self._state, self._tail, self._answering = state, tail, answering
        self._typed: asyncio.Queue[str | type[BaseException]] = asyncio.Queue()
        self._session: PromptSession[str] = PromptSession(
            self._message,
            key_bindings=self._keys(),
            erase_when_done=True,
            input=RawInput(sys.stdin),
            history=_history(history),
        )
        self._open: asyncio.Future[str] | None = None

    async def __aenter__(self) -> PromptLine:
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
        """Wait for the next input, a `QueuedText` after Alt-Enter. Raises KeyboardInterrupt and EOFError."""
        typed = await self._typed.get()
        if isinstance(typed, str):
            return typed
        raise typed

    def refresh(self) -> None:
        """Redraw, because the state or the tail changed."""
        if self._session.app.is_running:
            self._session.app.invalidate()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        keys.add("enter", eager=True)(lambda event: self._take(event, str))
        keys.add("escape", "enter")(lambda event: self._take(event, QueuedText))
        keys.add("c-c", eager=True)(self._interrupt)
        keys.add("<sigint>", eager=True)(self._interrupt)  # from elsewhere: kill -INT
        keys.add("c-d", eager=True)(self._end)
        return keys

    def _take(self, event: KeyPressEvent, kind: type[str]) -> None:
        buffer = event.current_buffer
        self._typed.put_nowait(kind(buffer.text))
        buffer.reset(append_to_history=not self._answering())

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


def _history(file: Path) -> FileHistory:
    """Open the history file. Only its owner can read it, because people type secrets."""
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    return FileHistory(file)

"""What a session is held at: who answers, and the folder with what stands around it. Set up once, for as many sessions as follow."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.model import Choice, Model, open_model
from etude.agent.app.workspace_access import Place, opened
from etude.agent.git_links.home import read_header, sessions_home
from etude.agent.git_links.signals import SignalStore
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.migrations import SessionError
from etude.sandbox.protocol import Operations


@dataclass(frozen=True)
class Desk:
    """Open as long as the context that made it."""

    choice: Choice
    model: Model
    place: Place
    operations: Operations

    def settings(self, session: Path | None) -> HarnessSettings:
        """Of a session that is taken up, or of a new one: the preset is the session's own."""
        return HarnessSettings.model_validate(read_header(session).settings) if session else self.model.settings


@asynccontextmanager
async def open_desk(
    choice: Choice, place: Place, signals: bool | None, report: Callable[[str], None]
) -> AsyncIterator[Desk]:
    """Signals of the folder's sessions are measured before and after, where the person wants them. `report` gets lines for the person.
    Raises FaceError."""
    model = await open_model(choice)
    try:
        async with opened(place, (choice.key_env,), report) as operations, measured(place.folder, signals):
            yield Desk(choice, model, place, operations)
    finally:
        closing = model.close()
        if closing is not None:
            await closing


@asynccontextmanager
async def measured(folder: Path, wanted: bool | None) -> AsyncIterator[None]:
    """Signals are collected when sessions of a folder begin and end: what is due by then. `wanted` None: as the switch stands."""
    store = SignalStore(sessions_home())
    if wanted is not None and wanted != store.on:
        store.turn(wanted)
    if not store.on:
        yield
        return
    before = asyncio.create_task(_measure(store, folder))  # beside the session's own beginning
    try:
        yield
    finally:
        await before
        await _measure(store, folder)


async def _measure(store: SignalStore, folder: Path) -> None:
    """A session that can't be read, or a full disk, must not cost the one that is held."""
    try:
        await asyncio.to_thread(store.collect, time.time(), folder)
    except (OSError, SessionError) as error:
        logging.warning("no signals of %s: %s", folder, error)

"""What sessions run on: the model, and the workspace with its sandbox. It is opened once and serves any number of sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.model import AgentModel, ModelChoice, open_model
from etude.agent.app.workspace_access import WorkspaceAccess, open_workspace
from etude.agent.git_links.home import read_header, sessions_home
from etude.agent.git_links.signals import SignalStore
from etude.agent.harness.presets.definition import require_allowed
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.migrations import SessionError
from etude.sandbox.protocol import Operations


@dataclass(frozen=True)
class SessionRuntime:
    """Open as long as the context manager `open_runtime` that made it."""

    choice: ModelChoice
    model: AgentModel
    place: WorkspaceAccess
    operations: Operations

    def settings(self, session: Path | None) -> HarnessSettings:
        """The settings of a session to resume, or those of a new one. A resumed session keeps its preset. Raises PluginError for a preset by
        import path that the user did not choose."""
        if session is None:
            return self.model.settings
        kept = HarnessSettings.model_validate(read_header(session).settings)
        require_allowed(kept.preset, [self.model.settings.preset], str(session), f"resume with --preset {kept.preset}")
        return kept


@asynccontextmanager
async def open_runtime(
    choice: ModelChoice, place: WorkspaceAccess, signals: bool | None, report: Callable[[str], None]
) -> AsyncIterator[SessionRuntime]:
    """Open model and workspace, and collect the signals of the folder's sessions before and after, if the user enabled them.

    `report` gets lines for the user. Raises AppError.
    """
    model = await open_model(choice)
    try:
        async with (
            open_workspace(place, (choice.key_env,), report) as operations,
            collecting_signals(place.folder, signals),
        ):
            yield SessionRuntime(choice, model, place, operations)
    finally:
        closing = model.close()
        if closing is not None:
            await closing


@asynccontextmanager
async def collecting_signals(folder: Path, enabled: bool | None) -> AsyncIterator[None]:
    """Collect the due signals of a folder's sessions at the start and at the end. `enabled` switches signals on or off; None keeps the setting."""
    store = SignalStore(sessions_home())
    if enabled is not None and enabled != store.on:
        store.turn(enabled)
    if not store.on:
        yield
        return
    before = asyncio.create_task(_collect_signals(store, folder))  # runs while the session starts
    try:
        yield
    finally:
        await before
        await _collect_signals(store, folder)


async def _collect_signals(store: SignalStore, folder: Path) -> None:
    """Collect, and log failures: an unreadable session or a full disk must not end the current session."""
    try:
        await asyncio.to_thread(store.collect, time.time(), folder)
    except (OSError, SessionError) as error:
        logging.warning("no signals of %s: %s", folder, error)

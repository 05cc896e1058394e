"""The user's folder as the agent's workspace: in a sandbox or without one, and its description in the system prompt."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from etude.agent.app.errors import UnavailableError, UsageError
from etude.agent.app.user_files import config_file, history_file, trust_file
from etude.agent.git_links.git import GitError, git
from etude.agent.git_links.home import sessions_home
from etude.agent.harness.mcp.log import log_folder
from etude.agent.workspace.environment import without_keys
from etude.agent.workspace.local_folder import LocalFolder
from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.protocol import Operations
from etude.sandbox.spec import Network, SandboxSpec

_log = logging.getLogger(__name__)

SandboxMode = Literal["workspace", "none"]
# Limits of one command. They are far above those of a rollout, because a user's project may compile.
MEMORY_MB, PROCESSES, SCRATCH_MB = 16_384, 1024, 2048
# The socket of the user's SSH agent. Without a sandbox, commands may use it as the user would.
_SSH_AGENT = "SSH_AUTH_SOCK"


@dataclass(frozen=True)
class WorkspaceAccess:
    """A folder and how the agent may access it. `additional` are other writable folders, used only without a sandbox."""

    folder: Path
    sandbox_mode: SandboxMode = "workspace"
    network: bool = False
    additional: tuple[Path, ...] = ()

    @classmethod
    def validated(
        cls, folder: Path, walls: SandboxMode, network: bool, additional: tuple[Path, ...] = ()
    ) -> WorkspaceAccess:
        """Check the folder and the options. Raises UsageError for a folder that is missing or that can't be read or written."""
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder; give the one to work in with --folder DIR")
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise UsageError(f"{folder} can't be read and written by this user; change its mode, or work elsewhere")
        if network and walls == "none":
            raise UsageError("--network opens a sandbox' network; with --sandbox none there is no sandbox")
        return cls(folder.resolve(), walls, network, additional)


@asynccontextmanager
async def open_workspace(
    place: WorkspaceAccess, keys: Sequence[str] = (), report: Callable[[str], None] = _log.info
) -> AsyncIterator[Operations]:
    """Open the folder for tools, in its sandbox.

    `keys` names the environment variables that hold a model's key; no command gets them. `report` gets a line if another backend than
    the preferred one is used. Raises UsageError, and UnavailableError where no sandbox can be created.
    """
    variables = without_keys(os.environ, keys)
    if place.sandbox_mode == "none":
        if _SSH_AGENT in os.environ:
            variables[_SSH_AGENT] = os.environ[_SSH_AGENT]
        local = LocalFolder(place.folder, allowed=place.additional, env=variables)
        try:
            yield local
        finally:
            await local.kill()
        return
    from etude.sandbox.pool import open_around

    try:
        pool, box, refusals = await open_around(_spec(place, variables))
    except UserError as error:
        raise UsageError(str(error)) from error
    except InfraError as error:
        raise UnavailableError(f"{error}; or run without a sandbox: --sandbox none") from error
    try:
        if refusals:
            report(f"sandbox: back end {pool.probe().backend} serves, by the same rules ({' | '.join(refusals)})")
        yield box
    finally:
        await pool.close()


def _spec(place: WorkspaceAccess, variables: Mapping[str, str]) -> SandboxSpec:
    folder = str(place.folder)
    variables = {key: value for key, value in variables.items() if key != "TMPDIR"}
    return SandboxSpec(
        workdir=folder,
        folder=folder,
        env={**variables, "GIT_OPTIONAL_LOCKS": "0"},  # .git is read-only in the sandbox
        memory_mb=MEMORY_MB,
        pids=PROCESSES,
        disk_mb=SCRATCH_MB,
        network=Network("host" if place.network else "none"),
        hidden=tuple(str(path) for path in _private_paths()),
    )


def _private_paths() -> tuple[Path, ...]:
    """The user's private files, which the sandbox hides."""
    return sessions_home(), history_file(), trust_file(), config_file(), log_folder()


def describe_surroundings(place: WorkspaceAccess) -> str:
    """The description of the workspace in the system prompt."""
    if place.sandbox_mode == "none":
        shell = "run on the person's machine, with the person's rights"
    else:
        network = "with network" if place.network else "without network"
        shell = (
            f"run in a sandbox, {network}; only the workspace and /tmp can be written, and not .git: the person commits"
        )
    return "\n".join(
        [
            "<surroundings>",
            f"workspace: {place.folder}",
            f"repository: {describe_repository(place.folder)}",
            f"system: {platform.system()} {platform.machine()}",
            f"date: {time.strftime('%Y-%m-%d')}",
            f"commands: {shell}",
            "</surroundings>",
        ]
    )


def describe_repository(folder: Path) -> str:
    """The repository's branch and state in words, or that there is none."""
    try:
        branch = git(folder, "branch", "--show-current").decode(errors="replace").strip()
        changed = len(git(folder, "status", "--porcelain").splitlines())
    except GitError:
        return "none (no git)"
    return f"git, branch {branch or '(detached)'}, {changed or 'no'} uncommitted changes"

"""Where the agent works: the person's folder, inside of the sandbox room's walls or without any; and what it is told about it."""

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

from etude.agent.app.errors import BadUse, OutOfReach
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

Walls = Literal["workspace", "none"]
# Of one command; a person's own project may compile, so far more than a rollout's.
MEMORY_MB, PROCESSES, SCRATCH_MB = 16_384, 1024, 2048
# The way to a person's SSH keys: without walls a command may ask their agent, as the person would.
_SSH_AGENT = "SSH_AUTH_SOCK"


@dataclass(frozen=True)
class Place:
    """A folder and its walls. `additional`: other folders that may be written too, where there are no walls."""

    folder: Path
    walls: Walls = "workspace"
    network: bool = False
    additional: tuple[Path, ...] = ()

    @classmethod
    def at(cls, folder: Path, walls: Walls, network: bool, additional: tuple[Path, ...] = ()) -> Place:
        """Raises BadUse for a folder that isn't there or can't be read."""
        if not folder.is_dir():
            raise BadUse(f"{folder} is no folder; give the one to work in with --folder DIR")
        if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            raise BadUse(f"{folder} can't be read and written by this user; change its mode, or work elsewhere")
        if network and walls == "none":
            raise BadUse("--network opens a sandbox' network; with --sandbox none there is no wall to open")
        return cls(folder.resolve(), walls, network, additional)


@asynccontextmanager
async def opened(
    place: Place, keys: Sequence[str] = (), report: Callable[[str], None] = _log.info
) -> AsyncIterator[Operations]:
    """The folder as tools see it. `keys` name the variables that hold a model's key; no command gets them. `report` gets a line where
    another back end than the preferred one serves. Raises BadUse, and OutOfReach where no sandbox can be made."""
    variables = without_keys(os.environ, keys)
    if place.walls == "none":
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
        raise BadUse(str(error)) from error
    except InfraError as error:
        raise OutOfReach(f"{error}; or, without walls: --sandbox none") from error
    try:
        if refusals:
            report(f"sandbox: back end {pool.probe().backend} serves, by the same rules ({' | '.join(refusals)})")
        yield box
    finally:
        await pool.close()


def _spec(place: Place, variables: Mapping[str, str]) -> SandboxSpec:
    folder = str(place.folder)
    variables = {key: value for key, value in variables.items() if key != "TMPDIR"}
    return SandboxSpec(
        workdir=folder,
        folder=folder,
        env={**variables, "GIT_OPTIONAL_LOCKS": "0"},  # the repository's own data can't be written
        memory_mb=MEMORY_MB,
        pids=PROCESSES,
        disk_mb=SCRATCH_MB,
        network=Network("host" if place.network else "none"),
        hidden=tuple(str(path) for path in _own()),
    )


def _own() -> tuple[Path, ...]:
    """What is the person's alone: nothing inside of the walls reads it."""
    return sessions_home(), history_file(), trust_file(), config_file(), log_folder()


def surroundings(place: Place) -> str:
    """What the agent is told about where it is, as it stands in the system prompt."""
    if place.walls == "none":
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
            f"repository: {repository(place.folder)}",
            f"system: {platform.system()} {platform.machine()}",
            f"date: {time.strftime('%Y-%m-%d')}",
            f"commands: {shell}",
            "</surroundings>",
        ]
    )


def repository(folder: Path) -> str:
    """Its branch and state in words; that there is none, where there is none."""
    try:
        branch = git(folder, "branch", "--show-current").decode(errors="replace").strip()
        changed = len(git(folder, "status", "--porcelain").splitlines())
    except GitError:
        return "none (no git)"
    return f"git, branch {branch or '(detached)'}, {changed or 'no'} uncommitted changes"

"""The sandbox that a project is installed in: its tree, the package indexes, room to build; and a log of what was run there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.content import PLAIN, mode_of
from etude.tasks.environment.toolchains import with_toolchain
from etude.tasks.environment.workspace import place_files
from etude.tasks.generate.install.goal import cause
from etude.tasks.generate.install.recipe import INSTALL_DISK_MB, INSTALL_MEMORY_MB, INSTALL_PIDS, InstallRecipe

STEP_TIMEOUT_S = 600.0
OUTPUT_BYTES = 200_000
# Programs that ask a person would wait for ever; caches would be part of the snapshot.
QUIET = {"PIP_NO_INPUT": "1", "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "CI": "1"}
NPM = {"npm_config_audit": "false", "npm_config_fund": "false", "npm_config_update_notifier": "false"}


@dataclass(frozen=True)
class CommandResult:
    """How a command ended, with both its streams in one text."""

    rc: int
    text: str
    timed_out: bool = False

    @property
    def end(self) -> str:
        return cause(self.text)


async def open_site(recipe: InstallRecipe, files: Mapping[str, bytes], pool: SandboxPool) -> Sandbox:
    """Raises InfraError, UserError."""
    env = {**QUIET, **NPM, **recipe.env}
    spec = SandboxSpec(
        files={path: data for path, data in files.items() if mode_of(data) == PLAIN},
        env=env,
        network=recipe.network,
        memory_mb=INSTALL_MEMORY_MB,
        disk_mb=INSTALL_DISK_MB,
        pids=INSTALL_PIDS,
        warm_python=False,
        labels={"install": recipe.project},
    )
    special = {path: data for path, data in files.items() if mode_of(data) != PLAIN}
    sandbox = await pool.create(with_toolchain(spec, recipe.language))
    try:
        await place_files(sandbox, special)
    except BaseException:
        await sandbox.kill()
        raise
    return sandbox


async def run_command(sandbox: Sandbox, command: str, timeout_s: float = STEP_TIMEOUT_S) -> CommandResult:
    """Raises InfraError, UserError."""
    result = await sandbox.run(command, timeout_s=timeout_s, max_output_bytes=OUTPUT_BYTES)
    text = (result.out + b"\n" + result.err).decode("utf-8", "replace").strip()
    return CommandResult(result.rc, text, result.timed_out)


async def first_failure(sandbox: Sandbox, steps: Sequence[str]) -> tuple[str, CommandResult] | None:
    """Runs steps in order up to the first that does not end with 0."""
    for step in steps:
        done = await run_command(sandbox, step)
        if done.rc != 0:
            return step, done
    return None

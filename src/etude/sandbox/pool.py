"""Opens a pool, found by making a sandbox and running a command in it; `auto` takes the first back end that works, and says why."""

from __future__ import annotations

import logging

from etude.core.plugins import is_import_path
from etude.sandbox import interpreter
from etude.sandbox.custom_backend import open_custom
from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.fake.pool import FakePool
from etude.sandbox.launch.bubblewrap import BubblewrapRuntime
from etude.sandbox.launch.docker import DockerRuntime
from etude.sandbox.launch.experimental.gvisor import GvisorRuntime
from etude.sandbox.launch.experimental.plain_process import ProcessRuntime
from etude.sandbox.launch.experimental.runc import RuncRuntime
from etude.sandbox.launch.launcher import Launcher
from etude.sandbox.launch.podman import PodmanRuntime
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SUPPORTED_BACKENDS, SandboxSettings, tier
from etude.sandbox.snapshots.cache import LayerCache, open_store
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.spec_validation import FOLDER_BACKENDS

# By speed; all three isolate by namespaces. No experimental backend is among them.
LADDER = ("local", "bubblewrap", "podman")
_LAUNCHED = {
    "bubblewrap": BubblewrapRuntime,
    "podman": PodmanRuntime,
    "runc": RuncRuntime,
    "docker": DockerRuntime,
    "gvisor": GvisorRuntime,
    "process": ProcessRuntime,
}


async def open_pool(settings: SandboxSettings) -> SandboxPool:
    """Raises Unsupported with what was tried and the remedy."""
    if settings.backend == "fake":
        return FakePool(max_live=settings.max_live, max_running=settings.max_running)
    if is_import_path(settings.backend):
        return await open_custom(settings)
    if settings.backend != "auto":
        if tier(settings.backend) == "experimental":
            logging.getLogger(__name__).warning(
                "sandbox.backend=%r is experimental: few machines have tested it; supported are %s",
                settings.backend,
                ", ".join(SUPPORTED_BACKENDS),
            )
        return await _opened(settings, settings.backend, "asked for by sandbox.backend")
    refusals: list[str] = []
    for backend in LADDER:
        try:
            why = "; ".join(["the first that works here", *refusals])
            return await _opened(settings, backend, why)
        except Unsupported as error:
            refusals.append(str(error))
    raise Unsupported(
        f"{' | '.join(refusals)}. Last resort, weaker: sandbox.backend='process' (Landlock, seccomp and rlimits only)"
    )


async def open_around(spec: SandboxSpec) -> tuple[SandboxPool, Sandbox, tuple[str, ...]]:
    """A sandbox around `spec.folder` in a pool of the first of `FOLDER_BACKENDS` that makes it, and why those before it did not. The caller
    closes the pool. Raises UserError for a folder that can't be a workspace, and Unsupported with what was tried."""
    refusals: list[str] = []
    for backend in FOLDER_BACKENDS:
        try:
            pool = await open_pool(SandboxSettings(backend=backend))
        except Unsupported as error:
            refusals.append(str(error))
            continue
        try:
            return pool, await pool.create(spec), tuple(refusals)
        except InfraError as error:
            await pool.close()
            refusals.append(str(error))
        except BaseException:
            await pool.close()
            raise
    raise Unsupported(" | ".join(refusals))


async def _opened(settings: SandboxSettings, backend: str, why: str) -> LocalPool:
    if backend != "local":
        python = interpreter.find()
        return await LocalPool.open(settings, Launcher(_LAUNCHED[backend](python), python), why)
    try:
        store = open_store(settings.layers)
    except OSError as error:  # sandboxes without snapshots are better than none; `probe` tells
        return await LocalPool.open(settings, ZygotePool(), f"{why}; {error}")
    return await LocalPool.open(
        settings, ZygotePool(tuple(str(medium.layers) for medium in store.backings)), why, LayerCache(store)
    )

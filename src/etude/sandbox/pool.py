"""Opens a pool, found by making a sandbox and running a command in it; `auto` takes the first back end that works, and says why."""

from __future__ import annotations

from etude.sandbox import interpreter
from etude.sandbox.errors import Unsupported
from etude.sandbox.fake.pool import FakePool
from etude.sandbox.launch.alone import Alone
from etude.sandbox.launch.bubblewrap import Bubble
from etude.sandbox.launch.gvisor import Gvisor
from etude.sandbox.launch.launcher import Launcher
from etude.sandbox.launch.podman import Podman
from etude.sandbox.launch.runc import Runc
from etude.sandbox.local.making import Cradle
from etude.sandbox.local.nursery import Nurseries
from etude.sandbox.local.pool import LocalPool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings

# By speed; all three isolate by namespaces. `process` is never among them.
LADDER = ("local", "bubblewrap", "podman")
_LAUNCHED = {"bubblewrap": Bubble, "podman": Podman, "runc": Runc, "gvisor": Gvisor, "process": Alone}


async def open_pool(settings: SandboxSettings) -> SandboxPool:
    """Raises Unsupported with what was tried and the remedy."""
    if settings.backend == "fake":
        return FakePool(max_live=settings.max_live, max_running=settings.max_running)
    if settings.backend != "auto":
        return await LocalPool.open(settings, _cradle(settings.backend), "asked for by sandbox.backend")
    refusals: list[str] = []
    for backend in LADDER:
        try:
            why = "; ".join(["the first that works here", *refusals])
            return await LocalPool.open(settings, _cradle(backend), why)
        except Unsupported as error:
            refusals.append(str(error))
    raise Unsupported(
        f"{' | '.join(refusals)}. Last resort, weaker: sandbox.backend='process' (Landlock, seccomp and rlimits only)"
    )


def _cradle(backend: str) -> Cradle:
    if backend == "local":
        return Nurseries()
    python = interpreter.find()
    return Launcher(_LAUNCHED[backend](python), python)

"""What this machine can be used for: the agent, a benchmark, a training run, a GPU. Each with what limits it and what it lacks.

Promise: the sandboxes are found by making them, by the same functions that the agent (`open_around`) and the stages (`open_pool`) call.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from etude.cli.extras import install_command
from etude.core.events.stopping import run_async

T = TypeVar("T")
State = Literal["works", "works with limits", "does not work"]
# Package managers by their program, in the order in which they are looked for.
_MANAGERS = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "pacman": "pacman -S",
    "zypper": "zypper install",
    "apk": "apk add",
}


@dataclass(frozen=True)
class Lack:
    """Something that is absent or too small, and the command or setting that changes it; an empty remedy: none is known."""

    what: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.what} ({self.remedy})" if self.remedy else self.what


@dataclass(frozen=True)
class Purpose:
    """`uses`: what serves it here. It does not work while something is in `missing`; `limits` only make it slower or smaller."""

    name: str
    uses: str
    limits: tuple[Lack, ...] = ()
    missing: tuple[Lack, ...] = ()

    @property
    def state(self) -> State:
        return "does not work" if self.missing else "works with limits" if self.limits else "works"

    def document(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "uses": self.uses,
            "limits": [asdict(lack) for lack in self.limits],
            "missing": [asdict(lack) for lack in self.missing],
        }

    def lines(self, width: int) -> list[str]:
        """The state, and a line for each lack."""
        head = f"{self.name:{width}}  {self.state}" + (f": {self.uses}" if self.uses else "")
        lacks = [*(("missing", lack) for lack in self.missing), *(("limit", lack) for lack in self.limits)]
        return [head, *(f"{'':{width}}    {kind}: {lack}" for kind, lack in lacks)]


@dataclass(frozen=True)
class Machine:
    """What decides. `pool`: the capabilities of the pool of sandboxes, `around`: the back end around a folder; or why there is none."""

    facts: dict[str, Any]
    versions: dict[str, str]
    free_bytes: int
    pool: dict[str, Any] | str
    around: Around | str


@dataclass(frozen=True)
class Around:
    """The back end around a folder of the host, and why the preferred one does not serve."""

    backend: str
    refusals: tuple[str, ...] = ()


def find_pool() -> dict[str, Any] | str:
    """The capabilities of the sandboxes of bench and run, or why none can be made."""
    from etude.cli.sandbox.probe import found
    from etude.sandbox.settings import SandboxSettings

    return _tried(lambda: found(SandboxSettings()))


def find_around() -> Around | str:
    """The back end that serves the agent, found by making its sandbox around an empty folder; or why there is none."""
    return _tried(_make_around)


async def _make_around() -> Around:
    from etude.sandbox.errors import Unsupported
    from etude.sandbox.pool import open_around
    from etude.sandbox.spec import SandboxSpec

    with tempfile.TemporaryDirectory() as made:
        folder = os.path.realpath(made)
        pool, box, refusals = await open_around(SandboxSpec(workdir=folder, folder=folder))
        try:
            done = await box.run("true")
            if done.rc:
                words = done.err.decode(errors="replace").strip()
                raise Unsupported(
                    f"a command in the agent's sandbox ended with exit status {done.rc}: {words or 'no output'}"
                )
            return Around(pool.probe().backend, refusals)
        finally:
            await pool.close()


def _tried(make: Callable[[], Coroutine[Any, Any, T]]) -> T | str:
    try:
        return run_async(make())
    except Exception as error:  # noqa: BLE001 - whatever keeps a sandbox from being made is the finding
        return str(error) or type(error).__name__


def purposes(machine: Machine, least_memory_bytes: int, least_disk_bytes: int) -> list[Purpose]:
    """In the order in which a newcomer meets them."""
    return [_agent(machine), _bench(machine), _run(machine, least_memory_bytes, least_disk_bytes), _gpu(machine)]


def _agent(machine: Machine) -> Purpose:
    """etude agent: a sandbox around the person's folder."""
    limits = [*_tools()]
    if isinstance(machine.around, str):
        remedy = "; or ".join([*_bubblewrap(), "work without protection: etude agent --sandbox none"])
        return Purpose("agent", "", tuple(limits), (Lack(f"no sandbox around a folder: {machine.around}", remedy),))
    uses = f"sandbox around the folder by {machine.around.backend}"
    if machine.around.refusals:
        uses += f", with the same rules as bubblewrap ({' | '.join(machine.around.refusals)})"
    return Purpose("agent", uses, tuple(limits))


def _bench(machine: Machine) -> Purpose:
    """etude bench: sandboxes, and a model behind an endpoint. Neither torch nor Ray."""
    uses, limits, missing = _sandboxes(machine)
    return Purpose("bench", uses, (*limits, *_tools()), missing)


def _run(machine: Machine, least_memory_bytes: int, least_disk_bytes: int) -> Purpose:
    """etude run: sandboxes, torch for every stage, Ray for RL."""
    uses, limits, missing = _sandboxes(machine)
    missing += tuple(
        Lack(f"the package {name} is absent", install_command(name))
        for name in ("torch", "ray")
        if name not in machine.versions
    )
    memory, cores = machine.facts["memory_bytes"], machine.facts["cores"]
    if memory < least_memory_bytes:
        limits += (Lack(f"{memory / 2**30:.1f} GiB of memory; the laptop recipe may need 8", "lower rl.slots"),)
    if machine.free_bytes < least_disk_bytes:
        limits += (Lack(f"{machine.free_bytes / 2**30:.1f} GiB of disk", "free 2 GiB, or give --out on another disk"),)
    if cores < 2:
        limits += (Lack(f"{cores:g} usable cores; two are assumed, so runs take longer"),)
    if not machine.facts["gpus"]:
        uses += (", " if uses else "") + "on the processor"
    return Purpose("run", uses, limits, missing)


def _gpu(machine: Machine) -> Purpose:
    gpus, torch = machine.facts["gpus"], machine.versions.get("torch", "")
    missing = []
    if not gpus:
        missing.append(
            Lack(
                "nvidia-smi names no GPU", "if the machine has one, install its driver; the laptop's recipes need none"
            )
        )
    elif torch.endswith("+cpu"):
        missing.append(Lack(f"torch {torch} has no CUDA", "pip install --force-reinstall torch"))
    elif not torch:
        missing.append(Lack("the package torch is absent", install_command("torch")))
    return Purpose("GPU", ", ".join(gpus), (), tuple(missing))


def _sandboxes(machine: Machine) -> tuple[str, tuple[Lack, ...], tuple[Lack, ...]]:
    """What serves, what limits it, what is missing."""
    if isinstance(machine.pool, str):
        return "", (), (Lack(f"no sandbox can be made: {machine.pool}", "".join(_bubblewrap())),)
    limits: list[Lack] = []
    if not machine.pool["snapshots"]:
        limits.append(Lack("no snapshots and images", "user namespaces that may mount an overlay give them"))
    if "cgroup" not in machine.pool["limits"]:
        limits.append(Lack("no control group: each process has separate limits", "etude sandbox probe says more"))
    return f"sandboxes by {machine.pool['backend']}", tuple(limits), ()


def _tools() -> list[Lack]:
    named = {
        "rg": ("ripgrep", "searches use Python, slower on large repositories"),
        "git": ("git", "no branches, no commits, no tasks from repositories"),
    }
    return [
        Lack(f"no {name}: {effect}", install(package))
        for name, (package, effect) in named.items()
        if shutil.which(name) is None
    ]


def _bubblewrap() -> list[str]:
    """Where it is there and fails, its own words say why."""
    return [] if shutil.which("bwrap") else [install("bubblewrap")]


def install(package: str) -> str:
    """The command of this machine's package manager; sudo for an ordinary user."""
    manager = next((words for name, words in _MANAGERS.items() if shutil.which(name)), "")
    if not manager:
        return f"install the package {package}"
    sudo = "sudo " if os.geteuid() and Path("/usr/bin/sudo").exists() else ""
    return f"{sudo}{manager} {package}"

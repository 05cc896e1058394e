"""`etude doctor`: what this machine serves for (`cli.purposes`), and what it has and lacks, each lack with its remedy."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.cli.answer import Answer
from etude.cli.extras import install_command
from etude.cli.option import Json
from etude.cli.purposes import Around, Machine, find_around, find_pool, purposes
from etude.core import allocator
from etude.learn.engine.vllm.found import VARIABLE, NoVllm, vllm_version
from etude.pipeline.run.machine import free_disk_bytes, machine, versions

# What `./etude run` needs: the laptop recipe's own bounds (8 GiB of memory, runs of under 2 GB).
MEMORY_BYTES = 8 << 30
DISK_BYTES = 2 << 30
OLDEST_PYTHON, NEWEST_TESTED = (3, 11), (3, 13)


@dataclass(frozen=True)
class MachineCheck:
    """One fact. `remedy` is empty where nothing is amiss; `required` says that Etude can't do without."""

    name: str
    value: str
    good: bool = True
    required: bool = False
    remedy: str = ""


def doctor(json: Json = False) -> Answer:
    """Check for each purpose whether this machine can serve it and what is missing; exit 1 if something required is missing."""
    facts, packages = machine(), versions()
    pool, around = find_pool(), find_around()
    serves = purposes(Machine(facts, packages, free_disk_bytes(Path("runs")), pool, around), MEMORY_BYTES, DISK_BYTES)
    findings = [*_machine(facts), *_kernel(pool), _runner(), *_sandboxes(pool, around), *_tools(), *_packages(facts)]
    missing = [f for f in findings if f.required and not f.good]
    document: dict[str, Any] = {
        "ready": not missing,
        "purposes": {purpose.name.lower(): purpose.document() for purpose in serves},
        "machine": facts,
        "versions": packages,
        "findings": [f.__dict__ for f in findings],
    }
    lines = [line for purpose in serves for line in purpose.lines(max(len(one.name) for one in serves))]
    width = max(len(f.name) for f in findings)
    lines += ["", *(_line(f, width) for f in findings)]
    lines.append("ready" if not missing else f"not ready: {', '.join(f.name for f in missing)}")
    return Answer(document, "\n".join(lines), int(bool(missing)))


def _line(finding: MachineCheck, width: int) -> str:
    mark = "ok" if finding.good else "NO" if finding.required else "--"
    return f"{mark}  {finding.name:{width}}  {finding.value}" + (f"; {finding.remedy}" if finding.remedy else "")


def _machine(facts: dict[str, Any]) -> list[MachineCheck]:
    cores, memory = facts["cores"], facts["memory_bytes"]
    free = free_disk_bytes(Path("runs"))
    python = sys.version_info[:2]
    system = f"{facts['system']} {facts['kernel']} {facts['architecture']}"
    few = _if(cores < 2, "two are assumed; runs take longer")
    small = _if(memory < MEMORY_BYTES, "the laptop recipe may need 8 GiB; lower rl.slots")
    full = _if(free < DISK_BYTES, "free 2 GiB, or give --out on another disk")
    untested = _if(not OLDEST_PYTHON <= python <= NEWEST_TESTED, "tested are 3.11, 3.12 and 3.13")
    no_gpu = _if(not facts["gpus"], "not needed; with one, larger recipes get faster")
    return [
        MachineCheck("system", system, facts["system"] == "Linux", True),
        MachineCheck("processor", f"{cores:g} usable cores, {facts['processor']}", cores >= 2, remedy=few),
        MachineCheck("memory", f"{memory / 2**30:.1f} GiB", memory >= MEMORY_BYTES, remedy=small),
        MachineCheck("disk", f"{free / 2**30:.1f} GiB free", free >= DISK_BYTES, remedy=full),
        MachineCheck("python", sys.version.split()[0], python >= OLDEST_PYTHON, True, untested),
        MachineCheck("gpu", ", ".join(facts["gpus"]) or "none", remedy=no_gpu),
    ]


def _kernel(pool: dict[str, Any] | str) -> list[MachineCheck]:
    by_namespaces = not isinstance(pool, str) and pool["backend"] == "local"  # the program unshare may be absent
    allowed = by_namespaces or _works(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "true"])
    overlay = "overlay" in _text("/proc/filesystems")
    groups = _text("/sys/fs/cgroup/cgroup.controllers")
    ours = os.access("/sys/fs/cgroup/cgroup.procs", os.W_OK)
    shown = f"v2, {groups}, {'writable' if ours else 'not ours'}" if groups else "v1 or hidden"
    unlimited = _if(not groups or not ours, "not needed; limits are rlimits and a watch")
    return [
        MachineCheck(
            "user namespaces", "allowed" if allowed else "refused", allowed, remedy=_if(not allowed, _namespaces())
        ),
        MachineCheck(
            "overlay", "in the kernel" if overlay else "absent", overlay, remedy=_if(not overlay, "not needed")
        ),
        MachineCheck("cgroup", shown, bool(groups), remedy=unlimited),
    ]


def _namespaces() -> str:
    if _text("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "ask an administrator for: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    return "in a container, start it with --security-opt seccomp=unconfined; on a host, raise user.max_user_namespaces"


def _sandboxes(pool: dict[str, Any] | str, around: Around | str) -> list[MachineCheck]:
    """Found by making them: no list of kernel features says as much."""
    from etude.sandbox.settings import tier

    if isinstance(pool, str):
        made = MachineCheck("sandbox", "can't be made", False, True, pool)
    else:
        found = f"{pool['backend']} ({tier(pool['backend'])}, {pool['isolation']}, {pool['limits']})"
        made = MachineCheck("sandbox", found, pool["available"], True)
    if isinstance(around, str):
        return [made, MachineCheck("around a folder", "can't be made", False, remedy=around)]
    return [made, MachineCheck("around a folder", f"{around.backend} ({tier(around.backend)})")]


def _runner() -> MachineCheck:
    """Where the program that serves commands inside sandboxes is from."""
    from etude.sandbox.native import build

    if isinstance(reason := build.program(), str):
        return MachineCheck("command runner", f"absent: {reason}", False, True, build.remedy())
    return MachineCheck("command runner", build.origin())


def _tools() -> list[MachineCheck]:
    optional = {
        "rg": "not needed; searches use Python instead (ripgrep is faster on large repositories)",
        "bwrap": "not needed where user namespaces work, which then serve the agent too",
        "podman": "not needed where user namespaces work",
        "git": "not needed; with it a run records the commit of the checkout",
    }
    findings = [
        MachineCheck(name, path or "absent", path is not None, remedy=_if(path is None, remedy))
        for name, remedy in optional.items()
        for path in [shutil.which(name)]
    ]
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    absent = "not needed where the wheel holds a command runner; torch.compile would need one"
    library = allocator.library()
    slower = _if(
        library is None,
        f"not needed; training of models from 50M parameters on is slower (Debian: {allocator.PACKAGE})",
    )
    return [
        *findings,
        MachineCheck("tcmalloc", library or "absent", library is not None, remedy=slower),
        MachineCheck("compiler", compiler or "absent", compiler is not None, remedy=_if(compiler is None, absent)),
    ]


def _packages(facts: dict[str, Any]) -> list[MachineCheck]:
    torch, ray = _version("torch"), _version("ray")
    idle = _if(
        bool(facts["gpus"]) and torch.endswith("+cpu"), "this build leaves the GPU idle; install the default one"
    )
    return [
        MachineCheck("torch", torch or "absent", bool(torch), remedy=_if(not torch, _needed_to_train("torch")) or idle),
        MachineCheck("ray", ray or "absent", bool(ray), remedy=_if(not ray, _needed_to_train("ray"))),
        _vllm(),
    ]


def _needed_to_train(package: str) -> str:
    return f"needed by `etude run` alone: {install_command(package)}"


def _vllm() -> MachineCheck:
    """Check the Python of a separate environment. Only a recipe names it, so this check reads the variable that the tests use."""
    python = os.environ.get(VARIABLE, "")
    if not python:
        return MachineCheck(
            "vllm", "not looked for", remedy=f"not needed; {VARIABLE} names a Python that may have it (docs/vllm.md)"
        )
    try:
        return MachineCheck("vllm", f"{vllm_version(python)} in {python}")
    except NoVllm as error:
        return MachineCheck("vllm", "absent", False, remedy=str(error))


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:  # this kernel does not have it
        return ""


def _if(condition: bool, text: str) -> str:
    return text if condition else ""

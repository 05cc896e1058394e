"""Facts about this machine and the versions in use, for `machine.json` and `etude doctor`. Nothing heavy is imported."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

PACKAGES = ("etude", "torch", "numpy", "tokenizers", "safetensors", "pydantic", "ray", "transformers")


def machine() -> dict[str, Any]:
    """Processor, memory, disk and system."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "gpus": gpus(),
    }


def versions() -> dict[str, str]:
    """Python and the packages that decide a run's numbers; one that is not installed is left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _commit()
    return found | ({"commit": commit} if commit else {})


def usable_cores() -> float:
    """Cores this process may use: its affinity, less where a control group allows less."""
    cores = float(len(os.sched_getaffinity(0)))
    limit = _read(Path("/sys/fs/cgroup/cpu.max")).split()  # "max 100000" or "200000 100000": microseconds per period
    return min(cores, int(limit[0]) / int(limit[1])) if len(limit) == 2 and limit[0].isdigit() else cores


def memory_bytes() -> int:
    """Memory this process may use: the machine's, less where a control group allows less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read(Path("/sys/fs/cgroup/memory.max"))
    return min(total, int(limit)) if limit.isdigit() else total


def free_disk_bytes(folder: Path) -> int:
    """Free space where a folder is, or would be made."""
    existing = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    return shutil.disk_usage(existing).free


def gpus() -> list[str]:
    """Names of NVIDIA GPUs; empty without the driver's tool."""
    lines = _nvidia_smi("-L")
    return [line.split(": ", 1)[1].split(" (UUID")[0] for line in lines if line.startswith("GPU ")]


def gpu_memory_bytes() -> list[int]:
    """Memory of each NVIDIA GPU; empty without the driver's tool."""
    lines = _nvidia_smi("--query-gpu=memory.total", "--format=csv,noheader,nounits")
    return [int(line) << 20 for line in lines if line.strip().isdigit()]


def _nvidia_smi(*arguments: str) -> list[str]:
    """Lines that NVIDIA's tool prints; none where it is not installed or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=10).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def _processor() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _commit() -> str:
    """The commit of a checkout, with a mark if files were changed since; empty outside of one."""
    root = Path(__file__).parents[4]
    if not (root / ".git").exists() or shutil.which("git") is None:
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # absent on this kernel or hidden from this user: no limit is known
        return ""

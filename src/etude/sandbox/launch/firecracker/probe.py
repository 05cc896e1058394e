"""Whether microVMs can run here: found by running a small one, within a time, and by asking the program firecracker."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from etude.sandbox.errors import Unsupported
from etude.sandbox.settings import FirecrackerSettings

LIMIT_S = 3.0  # 0.1 s where KVM works
_ELSEWHERE = "take sandbox.backend='gvisor' or 'local'"


def require(settings: FirecrackerSettings) -> None:
    """Raises Unsupported with what was found, in less than 5 s."""
    if problem := _kvm() or _program(settings) or _files(settings):
        raise Unsupported(f"back end firecracker: {problem}; {_ELSEWHERE}")


def _kvm() -> str:
    if platform.machine() != "x86_64":
        return f"what KVM can do is probed on x86_64 alone, and this is {platform.machine()}"
    words = [sys.executable, "-I", "-S", str(Path(__file__).with_name("guest.py"))]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, env={}, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"/dev/kvm is there, but a small 64-bit guest did not end within {LIMIT_S:g} s: this KVM runs none"
    if done.returncode:
        said = done.stdout.decode(errors="replace").strip() or done.stderr.decode(errors="replace").strip()[-200:]
        return f"KVM does not work here: {said}"
    return ""


def _program(settings: FirecrackerSettings) -> str:
    found = shutil.which(settings.program)
    if found is None:
        return f"KVM works, but there is no {settings.program}; install it, or set sandbox.firecracker.program"
    try:
        done = subprocess.run([found, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=1.0)
    except (OSError, subprocess.SubprocessError) as error:
        return f"`{found} --version`: {error}"
    return "" if b"irecracker" in done.stdout else f"{found} is no firecracker: `--version` says {done.stdout[:80]!r}"


def _files(settings: FirecrackerSettings) -> str:
    for name, path in (("kernel", settings.kernel), ("rootfs", settings.rootfs)):
        if not path:
            return f"sandbox.firecracker.{name} is not set"
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            return f"sandbox.firecracker.{name}: {path}: {error.strerror}"
    return ""

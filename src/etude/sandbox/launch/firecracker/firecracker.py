"""Back end `firecracker`: a machine of its own for each sandbox, with a kernel of its own, under KVM. Kernel and root from the settings.

What the root's init must do is in docs/sandbox.md: mount file systems in memory, listen on a vsock port, run what is on the second drive
for the one connection that comes, and power off after it. Its Python must be of the version that the pool uses. The API is spoken and the
refusal is tested; on a KVM that runs 64-bit guests it has not been tried yet. It is started without firecracker's jailer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup.undo import EndHelpers, RemoveFolder, Undo
from etude.sandbox.errors import Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle
from etude.sandbox.launch.firecracker import relay
from etude.sandbox.launch.firecracker.api import Api
from etude.sandbox.launch.launcher import LaunchCommand
from etude.sandbox.settings import FirecrackerSettings
from etude.sandbox.spec import Isolation, SandboxSpec

# Whether microVMs can run here: found by running a small one, within a time, and by asking the program firecracker.


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


PORT = 5252
_GUEST = 3  # the number of every machine on its own vsock; there is none below
_OVERHEAD_MB, _THREADS = 64, 16  # of the program itself and the guest's kernel
_SECTOR = 512
_PATIENCE_S = 20.0  # 0.2 s on a quiet machine
_LOOK_S = 0.005


class FirecrackerRuntime:
    """See `launcher.IsolationRuntime`."""

    backend = "firecracker"
    isolation: Isolation = "vm"
    end_signal: signal.Signals = signal.SIGKILL
    drops_root = False
    egress = False  # no descriptor of its own can come out

    def __init__(self, python: Interpreter, settings: FirecrackerSettings) -> None:
        require(settings)
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="etude-vm-"))
        self._numbers = itertools.count(1)
        code = bundle.code(python)
        (self._folder / "program").write_bytes(code + bytes(-len(code) % _SECTOR))

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return dataclasses.replace(spec, memory_mb=_memory_mb(spec) + _OVERHEAD_MB, pids=_cpus(spec) + _THREADS)

    def leftovers(self) -> tuple[Undo, ...]:
        return EndHelpers(str(self._folder)), RemoveFolder(str(self._folder))

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        if spec.read_only_binds:
            raise Unsupported("read_only_binds: back end firecracker has no folder of the host; put_tar, or local")
        return {"kind": "container"}

    def launch(self, spec: SandboxSpec, control: int, program: int, files: ExitStack) -> LaunchCommand:
        at = self._folder / f"vm-{next(self._numbers)}"
        at.mkdir(mode=0o700)
        words = [self._settings.program, "--api-sock", str(at / "api"), "--id", at.name]

        def after_start(process: subprocess.Popen[bytes]) -> None:
            self._boot(spec, at, process)
            line = relay.dial(at / "vsock", PORT, process, _PATIENCE_S)
            if line is not None:
                relay.between(control, line)

        return LaunchCommand(words, is_first_process=True, name=at.name, folder=at, after_start=after_start)

    def close(self) -> None:
        RemoveFolder(str(self._folder)).undo()

    def _boot(self, spec: SandboxSpec, at: Path, process: subprocess.Popen[bytes]) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        api = Api(at / "api")
        while not api.answers() and process.poll() is None and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
        api.machine(_cpus(spec), _memory_mb(spec))
        api.boot_source(self._settings.kernel, f"{self._settings.arguments} {_told(spec)}")
        api.drive("root", self._settings.rootfs, root=True)
        api.drive("program", str(self._folder / "program"))
        api.vsock(_GUEST, str(at / "vsock"))
        api.start()


def _told(spec: SandboxSpec) -> str:
    """The arguments of init on the kernel's command line."""
    if any(letter in spec.workdir for letter in " \t\n\"'"):
        raise Unsupported(f"workdir={spec.workdir!r}: back end firecracker can't have one with blanks or quotes")
    return f"etude.port={PORT} etude.workdir={spec.workdir} etude.disk_mb={spec.disk_mb}"


def _cpus(spec: SandboxSpec) -> int:
    return max(1, math.ceil(spec.cpus or 1))


def _memory_mb(spec: SandboxSpec) -> int:
    """Its two file systems are memory too."""
    return spec.memory_mb + 2 * spec.disk_mb

"""Back end `gvisor`: system calls of the inside are served by a kernel in user space (runsc), so that the host's own is out of its reach.

The control socket is the container's stdin, the only thing of the host that is handed in; the runner is read from a file of the root.
Slower to start (a Python in a slow kernel) and to run anything. As root only: Debian's runsc of 2022 can't otherwise have a bundle. Memory
of a sandbox is bounded with that of the runsc processes on the host; runsc itself sets up no control group.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup.undo import Undo
from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.inside import apart
from etude.sandbox.inside.root import INSIDE_UID
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle, rootfs
from etude.sandbox.launch.experimental import oci
from etude.sandbox.launch.launcher import LaunchCommand, Programs
from etude.sandbox.spec import Isolation, SandboxSpec

_PROGRAM = "/opt/etude/program"
_PATIENCE_S = 10.0
_SHOWN = 500
_MOST_PIDS = (1 << 21) - 1  # the kernel counts to 1 << 22 (PID_MAX_LIMIT), and the ladder doubles its argument
_KERNEL_MB, _KERNEL_PIDS = 256, 512  # of runsc itself: its kernel, its file server; a thread or more for each inside
# ptrace works everywhere, also without /dev/kvm; newer releases replace it by systrap, their default.
_FLAGS = ["--network=none", "--ignore-cgroups"]


class GvisorRuntime:
    """See `launcher.IsolationRuntime`."""

    backend = "gvisor"
    isolation: Isolation = "gvisor"
    end_signal: signal.Signals = signal.SIGKILL
    drops_root = False
    becomes_native = False
    egress = False  # its sockets are its own kernel's: none can be handed out

    def __init__(self, python: Interpreter) -> None:
        found = shutil.which("runsc")
        if found is None:
            raise Unsupported("back end gvisor: there is no runsc; install gVisor (Debian: the package runsc)")
        if os.geteuid() != 0:
            raise Unsupported(
                "back end gvisor: runsc needs root for a bundle; run as root, or take sandbox.backend='local'"
            )
        self._runsc, self._python = found, python
        self._platform = _platform(found)
        self._folder = Path(tempfile.mkdtemp(prefix="etude-gvisor-"))
        self._numbers = itertools.count(1)
        self._building = threading.Lock()  # launches come from threads

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        # A fork bomb inside takes that many threads of the host; it must meet its own bound first.
        threads = min(_KERNEL_PIDS + 60 * spec.pids + spec.pids**2, _MOST_PIDS)
        return dataclasses.replace(spec, memory_mb=spec.memory_mb + _KERNEL_MB, pids=threads)

    def leftovers(self) -> tuple[Undo, ...]:
        return oci.leftovers(self._folder, self._words(), "*_sandbox:*.state")

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kind": "container", "renews": True, "apart": True}

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand:
        name, at = self._bundle(spec)
        return LaunchCommand(
            [*self._words(), "run", "--bundle", str(at), name], is_first_process=True, name=name, folder=at
        )

    def save_memory(self, name: str) -> Path:
        """Of Debian's release: 0.1 s; it can't leave the container running. Files are in it too, since all that can be written is memory."""
        saved = self._folder / f"memory-{next(self._numbers)}"
        words = [*self._words(), "checkpoint", f"--image-path={saved}", name]
        try:
            saved.mkdir(mode=0o700)
            done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE_S)
        except (OSError, subprocess.SubprocessError) as error:
            self.delete_memory(saved)
            raise InfraError(f"runsc checkpoint: {error}") from None
        if done.returncode:
            self.delete_memory(saved)
            raise InfraError(f"runsc checkpoint ended with {done.returncode}: {_text(done.stderr)}")
        return saved

    def restore_memory(self, spec: SandboxSpec, saved: Path) -> LaunchCommand:
        name, at = self._bundle(spec)
        words = ["restore", "--bundle", str(at), f"--image-path={saved}", name]
        return LaunchCommand([*self._words(), *words], is_first_process=True, name=name, folder=at)

    def delete_memory(self, saved: Path) -> None:
        shutil.rmtree(saved, ignore_errors=True)  # it lies in a folder that goes with the pool

    def _bundle(self, spec: SandboxSpec) -> tuple[str, Path]:
        with self._building:
            base = self._root(spec.workdir)
            name = f"etude-{os.getpid()}-{self._folder.name[-8:]}-{next(self._numbers)}"
        binds = rootfs.binds(spec, self._python)
        binds += rootfs.covers([target for _, target in binds], self._python, self._folder / "empty")
        argv = [self._python.path, "-P", "-s", "-S", "-B", "-c", bundle.FROM_FILE.format(path=_PROGRAM)]
        at = self._folder / name
        oci.write(at, base, argv, binds, spec, outside=None, needs=apart.NEEDS, owner=INSIDE_UID)
        return name, at

    def close(self) -> None:
        state = self._folder / "state"
        for one in state.glob("*_sandbox:*.state") if state.is_dir() else ():
            name = one.name.split("_sandbox:")[0]
            subprocess.run([*self._words(), "delete", "--force", name], capture_output=True, timeout=_PATIENCE_S)
        shutil.rmtree(self._folder, ignore_errors=True)  # what is left lies in the temporary folder and holds nothing

    def _words(self) -> list[str]:
        return [self._runsc, "--root", str(self._folder / "state"), *self._platform, *_FLAGS]

    def _root(self, workdir: str) -> Path:
        base = self._folder / rootfs.name(workdir)
        if not base.exists():
            rootfs.build(base, workdir, self._python)
            (self._folder / "empty").mkdir(exist_ok=True)
            for path in (apart.COUNTED, apart.SUPERVISED):
                Path(f"{base}{path}").mkdir(parents=True)
            Path(f"{base}{_PROGRAM}").write_bytes(bundle.code(self._python))
        return base


def _text(words: bytes) -> str:
    return words.decode(errors="replace").strip()[-_SHOWN:]


def _platform(runsc: str) -> list[str]:
    """Releases before 2023 have no systrap, and their default wants more of the kernel than many a host has."""
    done = subprocess.run([runsc, "--version"], capture_output=True, timeout=_PATIENCE_S)
    version = done.stdout.decode(errors="replace")
    return (
        ["--platform=ptrace"]
        if any(f"0~{year}" in version or f"-{year}" in version for year in range(2019, 2023))
        else []
    )

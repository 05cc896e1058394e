"""Back end `runc`: a container by the OCI runtime itself, no engine, no image, no daemon; our runner as its first process.

runc wants uid 0 in the user namespace that it makes; the runner starts in one more, which has no uid 0 (`bundle.NESTED`). Differs from
namespaces of our own as podman does: the number of files is watched. Tried with runc 1.1, as root and as an ordinary user.
"""

from __future__ import annotations

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
from etude.sandbox.errors import Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle, rootfs
from etude.sandbox.launch.experimental import oci
from etude.sandbox.launch.handing import RENUMBER, duplicate_high, inherited_command
from etude.sandbox.launch.launcher import LaunchCommand, Programs
from etude.sandbox.spec import Isolation, SandboxSpec

_PATIENCE_S = 10.0


class RuncRuntime:
    """See `launcher.IsolationRuntime`."""

    backend = "runc"
    isolation: Isolation = "namespace"
    end_signal: signal.Signals = signal.SIGKILL
    drops_root = False  # it makes the user namespace, and maps uid 0 inside to an unprivileged one
    egress = True
    becomes_native = True

    def __init__(self, python: Interpreter) -> None:
        found = shutil.which("runc")
        if found is None:
            raise Unsupported("back end runc: there is no runc; install the package runc")
        self._runc, self._python = found, python
        self._folder = Path(tempfile.mkdtemp(prefix="etude-runc-"))
        self._folder.chmod(0o711)  # an unprivileged user inside must reach the root below it
        self._outside = os.geteuid()
        self._numbers = itertools.count(1)
        self._building = threading.Lock()  # launches come from threads

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leftovers(self) -> tuple[Undo, ...]:
        return oci.leftovers(self._folder, [self._runc, "--root", str(self._folder / "state")], "*")

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kind": "container"}

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand:
        with self._building:
            base = self._root(spec.workdir)
            name = f"etude-{os.getpid()}-{self._folder.name[-8:]}-{next(self._numbers)}"
        binds = rootfs.binds(spec, self._python)
        binds += rootfs.covers([target for _, target in binds], self._python, self._folder / "empty")
        start = inherited_command(programs)
        python = [self._python.path, "-P", "-s", "-S", "-B", "-c"]
        argv = [*python, bundle.NESTED, *python, start]
        at = self._folder / name
        oci.write(at, base, argv, binds, spec, self._outside, bundle.NEEDS)
        high = duplicate_high((control, *programs.open()), files)
        words = [
            self._runc,
            "--root",
            str(self._folder / "state"),
            "run",
            "--no-new-keyring",  # a user has 200 keys, kept for minutes; no command may ask for one anyway
            "--preserve-fds",
            str(len(high)),
            "--bundle",
            str(at),
            name,
        ]
        keep = [self._python.path, "-I", "-S", "-c", RENUMBER, ",".join(map(str, high)), *words]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "XDG_RUNTIME_DIR": str(self._folder)}
        return LaunchCommand(keep, high, environment)

    def close(self) -> None:
        """Containers have ended with their sandboxes; what runc could not remove by itself is removed here."""
        state = self._folder / "state"
        for one in state.iterdir() if state.is_dir() else ():
            words = [self._runc, "--root", str(state), "delete", "--force", one.name]
            subprocess.run(words, capture_output=True, timeout=_PATIENCE_S)
        shutil.rmtree(self._folder, ignore_errors=True)  # what is left lies in the temporary folder and holds nothing

    def _root(self, workdir: str) -> Path:
        base = self._folder / rootfs.name(workdir)
        if not base.exists():
            rootfs.build(base, workdir, self._python)
            (self._folder / "empty").mkdir(exist_ok=True)
            if os.geteuid() == 0:  # runc makes mount points as the user inside
                self._outside = rootfs.give_away(base, self.backend)
        return base

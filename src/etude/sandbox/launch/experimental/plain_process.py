"""Back end `process`: no namespace at all, only when asked for. What it does and what it can't is said in `inside.keeper`."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup.undo import RemoveFolder, Undo
from etude.sandbox.errors import Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle
from etude.sandbox.launch.launcher import LaunchCommand, Programs
from etude.sandbox.launch.zygotes import hidden
from etude.sandbox.spec import Isolation, SandboxSpec


class ProcessRuntime:
    """See `launcher.IsolationRuntime`. The keeper gives up root itself: it takes a uid of its own for each sandbox."""

    backend = "process"
    isolation: Isolation = "process"
    end_signal: signal.Signals = signal.SIGTERM  # the keeper must outlive what it keeps
    drops_root = False
    egress = False
    becomes_native = False

    def __init__(self, python: Interpreter) -> None:
        self._python = python
        self._folder = Path(tempfile.mkdtemp(prefix="etude-process-")).resolve()
        self._folder.chmod(
            0o1733
        )  # each keeper, as whichever user, makes one below it that the others can't look into or find

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leftovers(self) -> tuple[Undo, ...]:
        """A keeper that outlives this process removes its own folder; one that is killed leaves it in ours."""
        return (RemoveFolder(str(self._folder)),)

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        if any(host != inside for host, inside in spec.read_only_binds):
            raise Unsupported("read_only_binds to another path need a mount namespace; back end process has none")
        return {
            "kind": "process",
            "python": self._python.path,
            "binds": [*self._python.binds, *spec.read_only_binds],
            "hide": hidden(self._python),
            "scratch": str(self._folder),
        }

    def close(self) -> None:
        """What a killed keeper left goes too, folders that were closed to their owner among it; what won't go stays in the ledger."""
        if next(self._folder.iterdir(), None) is not None:
            subprocess.run(["chmod", "-R", "u+rwX", "--", str(self._folder)], capture_output=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand:
        start = bundle.COMMAND.format(code=programs.code, control=control, runner=programs.runner)
        return LaunchCommand([self._python.path, "-P", "-s", "-S", "-B", "-c", start])

"""Back end `process`: no namespace at all, only when asked for. What it does and what it can't is said in `inside.keeper`."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import ExitStack
from typing import Any

from etude.ledger.undo import Undo
from etude.sandbox.errors import Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle
from etude.sandbox.launch.launcher import Launch
from etude.sandbox.local.nursery import hidden
from etude.sandbox.spec import Isolation, SandboxSpec


class Alone:
    """See `launch.Surroundings`. The keeper gives up root itself: it takes a uid of its own for each sandbox."""

    backend = "process"
    isolation: Isolation = "process"
    end_signal: signal.Signals = signal.SIGTERM  # the keeper must outlive what it keeps
    drops_root = False
    egress = False

    def __init__(self, python: Interpreter) -> None:
        self._python = python

    def burden(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leavings(self) -> tuple[Undo, ...]:
        return ()  # a runner that outlives this process removes its folder itself

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        if any(host != inside for host, inside in spec.read_only_binds):
            raise Unsupported("read_only_binds to another path need a mount namespace; back end process has none")
        return {
            "kind": "process",
            "python": self._python.path,
            "binds": [*self._python.binds, *spec.read_only_binds],
            "hide": hidden(self._python),
            "scratch": os.path.realpath(tempfile.gettempdir()),
        }

    def close(self) -> None:
        """Nothing outlives its sandbox."""

    def launch(self, spec: SandboxSpec, control: int, program: int, files: ExitStack) -> Launch:
        start = bundle.COMMAND.format(program=program, control=control)
        return Launch([self._python.path, "-P", "-s", "-S", "-B", "-c", start])

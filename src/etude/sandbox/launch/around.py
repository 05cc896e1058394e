"""Sandboxes around a folder of the host by our own namespaces: a fresh interpreter that isolates itself (`inside.around`).

Serves back end `local`. A zygote can't: it has left the host's root, and the folder with it. Everything that bubblewrap does around a folder
happens here too, with the same steps; /tmp also has a bound on its number of files.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from etude.sandbox import folder
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle
from etude.sandbox.launch.launcher import Launch, OwnNamespaces
from etude.sandbox.spec import SandboxSpec


class Around(OwnNamespaces):
    """See `launcher.Surroundings`. Only for specs with a folder."""

    backend = "local"

    def __init__(self, python: Interpreter) -> None:
        self._python = python

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kind": "around", "network": spec.network.mode, "steps": folder.steps(spec)}

    def launch(self, spec: SandboxSpec, control: int, program: int, files: ExitStack) -> Launch:
        start = bundle.ISOLATING.format(program=program, control=control, network=spec.network.mode)
        argv = [self._python.path, "-P", "-s", "-S", "-B", "-c", start]
        return Launch(argv, user=folder.uid(spec))

"""Back end `bubblewrap`: namespaces and root made by `bwrap`, our runner as PID 1 inside.

For hosts whose policy lets only bubblewrap have user namespaces (a setuid bwrap, or an AppArmor profile for it). Nothing inside needs a
capability. Differs from namespaces of our own in speed (a program and an interpreter started for each sandbox) and in one limit: bwrap's
tmpfs knows a size but no number of inodes, so that number is watched. No --die-with-parent: it follows threads (see `nursery`).
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from etude.sandbox import folder
from etude.sandbox.errors import Unsupported
from etude.sandbox.inside import furnish, root
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle
from etude.sandbox.launch.launcher import LaunchCommand, NamespaceRuntime, Programs, in_memory
from etude.sandbox.launch.zygotes import hidden
from etude.sandbox.spec import SandboxSpec

_HIDDEN_FOLDER_BYTES = "4096"


class BubblewrapRuntime(NamespaceRuntime):
    """See `launcher.IsolationRuntime`."""

    backend = "bubblewrap"

    def __init__(self, python: Interpreter) -> None:
        self._python = python
        found = shutil.which("bwrap")
        if found is None:
            raise Unsupported("back end bubblewrap: there is no bwrap; install the package bubblewrap")
        self._bwrap = found

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kind": "bubblewrap"}

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand:
        start = bundle.COMMAND.format(code=programs.code, control=control, runner=programs.runner)
        python = [self._python.path, "-P", "-s", "-S", "-B", "-c", start]
        if spec.folder:
            argv = [self._bwrap, *_spaces(spec), *_steps(spec)]
            argv += ["--proc", "/proc", *_closed_proc(), "--remount-ro", "/"]
            return LaunchCommand([*argv, "--chdir", "/", "--", *python], user=folder.launcher_uid(spec))
        stubs = {path: in_memory(text.encode(), files) for path, text in root.STUBS.items()}
        binds = [*root.system_binds(), *self._python.binds, *spec.read_only_binds]
        for source, _ in (*self._python.binds, *spec.read_only_binds):
            _require_reachable(source)
        argv = [self._bwrap, *_spaces(spec), *_tree(binds)]
        for path, fd in stubs.items():
            argv += ["--file", str(fd), path]
        argv += _commands(self._python.path)
        argv += _covers([target for _, target in binds], hidden(self._python))
        argv += ["--proc", "/proc", *_closed_proc()]
        size = str(spec.disk_mb << 20)
        for path in (spec.workdir, "/tmp"):
            argv += ["--perms", "0755", "--size", size, "--tmpfs", path]
        argv += ["--remount-ro", "/"]  # last: until then mount points are made
        argv += ["--chdir", "/", "--", *python]
        return LaunchCommand(argv, [*stubs.values()])


def _steps(spec: SandboxSpec) -> list[str]:
    """The steps of a sandbox around a folder as words."""
    words: list[str] = []
    for step in folder.mount_steps(spec):
        match step.kind:
            case "read":
                words += ["--ro-bind", step.source, step.path]
            case "write":
                words += ["--bind", step.source, step.path]
            case "device":
                words += ["--dev-bind-try", step.source, step.path]
            case "link":
                words += ["--symlink", step.source, step.path]
            case "folder":
                words += ["--dir", step.path]
            case "memory":
                words += ["--perms", f"{step.mode:04o}", "--size", str(step.size_bytes), "--tmpfs", step.path]
    return words


def _require_reachable(source: str) -> None:
    """Root's bubblewrap runs as an unprivileged user, who needs a way to what is to be bound. Raises Unsupported."""
    closed = [path for path in Path(os.path.realpath(source)).parents if not path.stat().st_mode & 0o001]
    if os.geteuid() == 0 and closed:
        raise Unsupported(
            f"back end bubblewrap: {source} lies in {closed[-1]}, closed to the user who binds it; chmod o+x it"
        )


def _spaces(spec: SandboxSpec) -> list[str]:
    """Around a folder a person stays who they are; no process is root inside, or an exec would regain capabilities."""
    uid = str(folder.launcher_uid(spec) or root.INSIDE_UID) if spec.folder else str(root.INSIDE_UID)
    names = ("user", "ipc", "pid", "uts", "cgroup-try", *(("net",) if spec.network.mode != "host" else ()))
    spaces = [f"--unshare-{name}" for name in names]
    return [*spaces, "--uid", uid, "--gid", uid, "--hostname", "sandbox", "--as-pid-1", "--new-session"]


def _tree(binds: list[tuple[str, str]]) -> list[str]:
    argv: list[str] = []
    for path in ("/root", "/var/tmp", "/run", root.COMMANDS):
        argv += ["--dir", path]
    for source, target in binds:
        argv += ["--dev-bind" if source.startswith("/dev/") else "--ro-bind", source, target]
    for path in root.SYSTEM:
        if os.path.islink(path):
            argv += ["--symlink", os.readlink(path), path]
    for path, goal in root.LINKS.items():
        argv += ["--symlink", goal, path]
    return argv


def _commands(python: str) -> list[str]:
    names = ("python", "python3")
    return [word for name in names for word in ("--symlink", python, f"{root.COMMANDS}/{name}")]


def _covers(targets: list[str], paths: list[str]) -> list[str]:
    """Cover what must be absent but lies under a bound directory."""
    argv: list[str] = []
    for path in paths:
        if not any(path == target or path.startswith(target + "/") for target in targets):
            continue
        if os.path.isdir(path):
            argv += ["--perms", "0755", "--size", _HIDDEN_FOLDER_BYTES, "--tmpfs", path, "--remount-ro", path]
        elif os.path.exists(path):
            argv += ["--ro-bind", "/dev/null", path]
    return argv


def _closed_proc() -> list[str]:
    """As `furnish` hides them. bwrap itself makes /proc/sys read-only for its privileged self alone."""
    names = [name for name in furnish.HIDDEN if os.path.exists(f"/proc/{name}")]
    return ["--ro-bind", "/proc/sys", "/proc/sys"] + [
        word for name in names for word in ("--ro-bind", "/dev/null", f"/proc/{name}")
    ]

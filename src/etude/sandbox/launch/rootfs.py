"""A folder that container engines take for a root: mount points, links, and the few files of /etc; the host's system folders are bound
into it, read-only."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from etude.sandbox.errors import Unsupported
from etude.sandbox.inside import root
from etude.sandbox.inside.zygote import UNPRIVILEGED_UIDS
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch.zygotes import hidden
from etude.sandbox.spec import SandboxSpec

_FOLDERS = ("/proc", "/dev", "/sys", "/etc", "/tmp", "/root", "/var/tmp", "/run", "/usr", root.COMMANDS)


def name(workdir: str) -> str:
    """Of the folder for this workdir, in which an engine finds no marks of its own such as `:`."""
    return f"rootfs-{hashlib.sha256(os.fsencode(workdir)).hexdigest()[:16]}"


def build(base: Path, workdir: str, python: Interpreter) -> None:
    for path in (*_FOLDERS, workdir):
        Path(f"{base}{path}").mkdir(parents=True, exist_ok=True)
    for path in root.SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), f"{base}{path}")
    for path, text in root.STUBS.items():
        Path(f"{base}{path}").write_text(text)
    for word in ("python", "python3"):
        os.symlink(python.path, f"{base}{root.COMMANDS}/{word}")


def binds(spec: SandboxSpec, python: Interpreter) -> list[tuple[str, str]]:
    """(path of the host, path inside), all read-only; devices are the engine's own."""
    system = [pair for pair in root.system_binds() if not pair[0].startswith("/dev/")]
    return [*system, *python.binds, *spec.read_only_binds]


def covers(targets: list[str], python: Interpreter, empty: Path) -> list[tuple[str, str]]:
    """What to bind over paths that must be absent but lie under a bound folder: an empty folder, or nothing to read."""
    under = [path for path in hidden(python) if any(path == t or path.startswith(t + "/") for t in targets)]
    folders = [(str(empty), path) for path in under if os.path.isdir(path)]
    return folders + [("/dev/null", path) for path in under if os.path.isfile(path)]


def give_away(folder: Path, backend: str) -> int:
    """To the unprivileged user that root's containers belong to; returns who that is. Raises Unsupported."""
    for uid in UNPRIVILEGED_UIDS:
        try:
            for path, _, names in os.walk(folder):
                for name in (path, *(os.path.join(path, name) for name in names)):
                    os.chown(name, uid, uid, follow_symlinks=False)
        except OSError:
            continue  # not mapped here, so `launch` can't take it either
        return uid
    raise Unsupported(f"back end {backend}: root can't hand a folder to an unprivileged user here")

"""A bundle as runc and runsc take it: `config.json` of the OCI runtime specification (1.0.2) around a root folder of ours.

What is inside has no capability, but for those that its runner needs to close its cell, no network but its own loopback, read-only
system folders and two file systems in memory.
"""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup.undo import EndHelpers, RemoveFolder, RunCommand, Undo
from etude.sandbox.inside import furnish
from etude.sandbox.spec import SandboxSpec

_FILES = 4096  # as the runner's own limit
_HELD = ("bounding", "effective", "permitted")
_SPACES = ("pid", "network", "ipc", "uts", "mount")
_MASKED = ["/sys", "/dev/mqueue", *(f"/proc/{name}" for name in furnish.HIDDEN)]
_READ_ONLY = ["/proc/sys", "/proc/bus", "/proc/fs", "/proc/irq"]


def write(
    bundle: Path,
    root: Path,
    argv: list[str],
    binds: list[tuple[str, str]],
    spec: SandboxSpec,
    outside: int | None,
    needs: tuple[str, ...] = (),
    owner: int = 0,
) -> None:
    """`needs`: capabilities of the first process, which gives them up. `owner`: whose the folders are that can be written.
    `outside`: the host's user that everything inside is, in a user namespace; None: the runtime has users of its own (gVisor)."""
    bundle.mkdir(parents=True, exist_ok=True)
    (bundle / "config.json").write_text(json.dumps(config(root, argv, binds, spec, outside, needs, owner)))


def config(
    root: Path,
    argv: list[str],
    binds: list[tuple[str, str]],
    spec: SandboxSpec,
    outside: int | None,
    needs: tuple[str, ...] = (),
    owner: int = 0,
) -> dict[str, Any]:
    spaces = [{"type": kind} for kind in (*_SPACES, *(["user"] if outside is not None else []))]
    linux: dict[str, Any] = {"namespaces": spaces, "maskedPaths": _MASKED, "readonlyPaths": _READ_ONLY}
    if outside is not None:
        mapping = [{"containerID": 0, "hostID": outside, "size": 1}]
        linux |= {"uidMappings": mapping, "gidMappings": mapping}
    files = _at_most(_FILES, resource.RLIMIT_NOFILE)
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": argv,
            "env": ["PYTHONHASHSEED=0", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": {
                kind: list(needs) if kind in _HELD else []
                for kind in ("bounding", "effective", "permitted", "inheritable", "ambient")
            },
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": files, "soft": files}],
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "sandbox",
        "mounts": _mounts(binds, spec, owner),
        "linux": linux,
    }


def _mounts(binds: list[tuple[str, str]], spec: SandboxSpec, owner: int) -> list[dict[str, Any]]:
    quiet = ["nosuid", "nodev"]
    found = [
        _mount("/proc", "proc", "proc", [*quiet, "noexec"]),
        _mount("/dev", "tmpfs", "tmpfs", ["nosuid", "mode=755", "size=64k", "ro"]),
        _mount("/dev/pts", "devpts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
        _mount("/dev/shm", "tmpfs", "shm", [*quiet, "noexec", "mode=1777", f"size={spec.disk_mb}m"]),
    ]
    found += [_mount(target, "bind", source, ["rbind", "ro", "nosuid"]) for source, target in binds]
    options = [*quiet, "mode=755", f"size={spec.disk_mb}m", *([f"uid={owner}", f"gid={owner}"] if owner else [])]
    return found + [_mount(path, "tmpfs", "tmpfs", options) for path in (spec.workdir, "/tmp")]


def _mount(target: str, kind: str, source: str, options: list[str]) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": source, "options": options}


def _at_most(wanted: int, limit: int) -> int:
    hard = resource.getrlimit(limit)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


# $1: state folder; $2: pattern of its entries, one for each container, which is named by the text before "_sandbox:"; then the runtime.
_DELETE = """
state=$1 pattern=$2; shift 2
cd "$state" 2>/dev/null || exit 0
for entry in $pattern; do
    [ -e "$entry" ] || continue
    "$@" delete --force "${entry%%_sandbox:*}" || exit
done
"""


def leftovers(folder: Path, runtime: list[str], pattern: str) -> tuple[Undo, ...]:
    """`runtime`: its command line up to the verb, with its state in `folder`/state."""
    delete = RunCommand(("/bin/sh", "-c", _DELETE, "sh", str(folder / "state"), pattern, *runtime))
    return delete, EndHelpers(str(folder)), RemoveFolder(str(folder))

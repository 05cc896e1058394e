"""Validates a spec against a back end before anything is created, so that no demand is ever downgraded."""

from __future__ import annotations

import os
import posixpath

from etude.sandbox import folder
from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.network import rules
from etude.sandbox.spec import Isolation, SandboxSpec
from etude.sandbox.wire import request

_STRENGTH: tuple[Isolation, ...] = ("process", "namespace", "gvisor", "vm")
_LEAST_CPUS = 0.01  # the kernel's least quota, 1 ms of 100
_MOST_MB = _MOST_PIDS = 1 << 22  # 4 TiB, and what a kernel counts to
_SYSTEM_TREES = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/proc",
    "/dev",
    "/sys",
    "/tmp",
    "/opt/etude",
)


# Back ends that make a sandbox around a folder of the host, the first one preferred: bubblewrap also works where only its program may
# have user namespaces. Both build the same file system (`folder.steps`).
FOLDER_BACKENDS = ("bubblewrap", "local")


def require_supported(spec: SandboxSpec, backend: str, isolation: Isolation, egress: bool) -> None:
    """Raises Unsupported for what `backend` can't give here, UserError for what makes no sense. `egress`: it can have a policed way out."""
    if _STRENGTH.index(spec.isolation_min) > _STRENGTH.index(isolation):
        raise Unsupported(
            f"isolation_min={spec.isolation_min!r}: back end {backend} gives {isolation!r}; lower the demand"
        )
    _require_limits(spec)
    request.variables(spec.env)
    if spec.network.mode == "allowlist" and not egress:
        raise Unsupported(
            f"network 'allowlist': back end {backend} has no loopback of its own for it; take local or bubblewrap"
        )
    if spec.network.mode != "host" or not spec.folder:
        rules.require(spec.network)
    if spec.folder:
        _require_folder(spec, backend)
        return
    _require_root(spec)
    _require_paths(spec)


def _require_limits(spec: SandboxSpec) -> None:
    if spec.cpus is not None and not _LEAST_CPUS <= spec.cpus < float("inf"):
        raise UserError(f"cpus={spec.cpus}: cores' worth of time, at least {_LEAST_CPUS}; None for no bound")
    # None of them may be 0: to the kernel that is no limit at all.
    request.whole("memory_mb", spec.memory_mb, 1, _MOST_MB)
    request.whole("disk_mb", spec.disk_mb, 1, _MOST_MB)
    request.whole("pids", spec.pids, 1, _MOST_PIDS)


def _require_root(spec: SandboxSpec) -> None:
    """One root file system, and none that warm runs can't have."""
    if spec.image and spec.warm_python:
        raise Unsupported(
            f"image={spec.image!r} with warm_python=True: warm runs are forks of the host's interpreter; set warm_python=False"
        )
    if spec.image and spec.snapshot:
        raise UserError(f"image={spec.image!r} and snapshot={spec.snapshot!r}: a snapshot holds its own root; name one")
    if spec.hidden:
        raise Unsupported(f"hidden={spec.hidden!r}: paths of the host are in sight only around a folder of it")


def _require_paths(spec: SandboxSpec) -> None:
    """Folders inside are plain paths, and what is bound is there and open to the sandbox."""
    for path in (spec.workdir, *(inside for _, inside in spec.read_only_binds)):
        request.text("a folder inside", path)
        if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
            raise Unsupported(f"{path!r}: a folder inside must be an absolute, plain path below /")
    if any(spec.workdir == tree or spec.workdir.startswith(tree + "/") for tree in _SYSTEM_TREES):
        raise Unsupported(f"workdir={spec.workdir!r} is a system folder; take one such as /work or /testbed")
    for host, _ in spec.read_only_binds:
        if not os.path.exists(host):
            raise UserError(f"read_only_binds: {host} does not exist")
        needed = 0o005 if os.path.isdir(host) else 0o004
        if os.geteuid() == 0 and os.stat(host).st_mode & needed != needed:
            raise UserError(
                f"read_only_binds: {host} is closed to others, and a sandbox made by root is one; chmod o+rX it"
            )


def _require_folder(spec: SandboxSpec, backend: str) -> None:
    if backend not in FOLDER_BACKENDS:
        raise Unsupported(
            f"back end {backend} can't bind a folder of the host; take sandbox.backend='bubblewrap' or 'local', or work unconfined"
        )
    if spec.image or spec.snapshot or spec.read_only_binds or spec.uid_mode != "single":
        raise UserError(
            f"a sandbox around {spec.folder} shows the host's own files to one user; leave out image, snapshot, read_only_binds and uid_mode"
        )
    folder.require_folder(spec)

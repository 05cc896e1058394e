"""A sandbox around a folder of the host: that folder can be written, the rest of the host is read-only, secrets and sockets have no path.

What a person's own repository needs: its tools lie anywhere on the host, so system and home stay in sight. Out of sight are the known
places of keys (`SECRETS`), /tmp, /run and /var/tmp (sockets of other programs lie there), devices and /sys. The repository's `.git` is
read-only: a hook or a setting planted there would run outside, at the person's next commit. The network is absent unless asked for.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple

from etude.sandbox.errors import UserError
from etude.sandbox.inside import root
from etude.sandbox.spec import SandboxSpec

# Below the home: where programs keep what opens other doors. Folders are shown empty, files as empty files.
SECRETS = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store", ".mozilla", ".netrc", ".git-credentials", ".pypirc",
    ".npmrc", ".cargo/credentials.toml", ".cargo/credentials", ".config/gcloud", ".config/gh", ".config/google-chrome", ".config/chromium",
    ".config/hub", ".config/op", ".config/etude", ".local/share/keyrings", ".local/state/etude", ".claude", ".codex", ".bash_history", ".zsh_history",
    ".python_history",
)  # fmt: skip
_NOT_BOUND = frozenset({"proc", "dev", "sys", "tmp", "run"})
_EMPTY_BYTES = 4096


Kind = Literal["read", "write", "device", "link", "folder", "memory"]


class MountStep(NamedTuple):
    """One entry of the file system. read, write and device show `source` of the host at `path`, a device only where it exists; link points
    to `source`; folder is empty; memory is an empty file system of `mode` that holds `size_bytes`."""

    kind: Kind
    path: str
    source: str = ""
    mode: int = 0o755
    size_bytes: int = 0


def mount_steps(spec: SandboxSpec) -> list[MountStep]:
    """The file system but for /proc, in the order in which it is made. Every back end that offers such a sandbox builds this one."""
    made: list[MountStep] = []
    for name in sorted(os.listdir("/")):
        path = f"/{name}"
        if os.path.islink(path):
            made.append(MountStep("link", path, os.readlink(path)))
        elif name not in _NOT_BOUND and os.path.isdir(path):
            made.append(MountStep("read", path, path))
    made += [MountStep("device", f"/dev/{name}", f"/dev/{name}") for name in root.DEVICES]
    made += [MountStep("link", path, goal) for path, goal in root.LINKS.items()]
    made += [MountStep("memory", "/tmp", mode=0o1777, size_bytes=spec.disk_mb << 20), MountStep("folder", "/run")]
    made += [_cover(path) for path in _covered(spec)]
    made.append(MountStep("write", spec.folder, spec.folder))
    made += [MountStep("read", path, path) for path in _kept(spec.folder)]
    return [*made, *_name_servers(spec)]


def require_folder(spec: SandboxSpec) -> None:
    """Raises UserError for a folder that can't be one's workspace."""
    real = os.path.realpath(spec.folder)
    if not os.path.isdir(spec.folder) or real != spec.folder:
        raise UserError(f"{spec.folder} is no folder by its real path; give the folder to work in")
    closed = (
        "/",
        "/root",
        "/home",
        "/usr",
        "/bin",
        "/sbin",
        "/lib",
        "/etc",
        "/proc",
        "/dev",
        "/sys",
        "/run",
        "/tmp",
        "/var",
        "/opt",
    )
    if real in closed or real.startswith(("/proc/", "/dev/", "/sys/")) or real == os.path.realpath(Path.home()):
        raise UserError(f"{real} is no folder for an agent to write in: give a project's folder, or use --sandbox none")
    if spec.workdir != spec.folder or spec.files:
        raise UserError("a sandbox around a folder works in that folder, and brings no files of its own")


def launcher_uid(spec: SandboxSpec) -> int:
    """Who the launcher must be: the folder's owner where root starts it, else the current user."""
    return os.stat(spec.folder).st_uid if os.geteuid() == 0 else os.geteuid()


def _covered(spec: SandboxSpec) -> list[str]:
    home = os.path.realpath(Path.home())
    places = ["/var/tmp", *(os.path.join(home, name) for name in SECRETS), *spec.hidden]
    real = [os.path.realpath(path) for path in places if os.path.exists(path)]
    apart = [path for path in real if not (spec.folder + "/").startswith(path + "/")]
    return [path for path in apart if launcher_uid(spec) == os.geteuid() or _open_to_others(path)]


def _open_to_others(path: str) -> bool:
    """Where root starts a sandbox as somebody else: what that user can't get at needs no cover, and none can be put there."""
    return all(parent.stat().st_mode & 0o001 for parent in Path(path).parents)


def _cover(path: str) -> MountStep:
    if os.path.isdir(path):
        return MountStep("memory", path, size_bytes=_EMPTY_BYTES)
    return MountStep("read", path, "/dev/null")


def _kept(folder: str) -> list[str]:
    """Of the folder, what stays as it is: the repository's own data."""
    return [path for path in [os.path.join(folder, ".git")] if os.path.exists(path) and not os.path.islink(path)]


def _name_servers(spec: SandboxSpec) -> list[MountStep]:
    """The list of name servers often is a link into /run."""
    real = os.path.realpath("/etc/resolv.conf")
    if spec.network.mode != "host" or not real.startswith("/run/") or not os.path.exists(real):
        return []
    return [MountStep("read", real, real)]

"""A sandbox around a folder of the host: that folder can be written, the rest of the host is read-only, secrets and sockets have no path.

What a person's own repository needs: its tools lie anywhere on the host, so system and home stay in sight. Out of sight are the known
places of keys (`SECRETS`), /tmp, /run and /var/tmp (sockets of other programs lie there), devices and /sys. The repository's `.git` is
read-only: a hook or a setting planted there would run outside, at the person's next commit. The network is absent unless asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

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
_EMPTY_BYTES = "4096"


def tree(spec: SandboxSpec) -> list[str]:
    """The words for bwrap that lay out the file system, but for /proc."""
    words: list[str] = []
    for name in sorted(os.listdir("/")):
        path = f"/{name}"
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif name not in _NOT_BOUND and os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for name in root.DEVICES:
        words += ["--dev-bind-try", f"/dev/{name}", f"/dev/{name}"]
    for path, goal in root.LINKS.items():
        words += ["--symlink", goal, path]
    size = str(spec.disk_mb << 20)
    words += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp", "--dir", "/run"]
    words += [word for path in _covered(spec) for word in _cover(path)]
    words += ["--bind", spec.folder, spec.folder]
    words += [word for path in _kept(spec.folder) for word in ("--ro-bind", path, path)]
    return [*words, *_names(spec)]


def require(spec: SandboxSpec) -> None:
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


def uid(spec: SandboxSpec) -> int:
    """Who the launcher must be: the folder's owner where root starts it, else whoever we are."""
    return os.stat(spec.folder).st_uid if os.geteuid() == 0 else os.geteuid()


def _covered(spec: SandboxSpec) -> list[str]:
    home = os.path.realpath(Path.home())
    places = ["/var/tmp", *(os.path.join(home, name) for name in SECRETS), *spec.hidden]
    real = [os.path.realpath(path) for path in places if os.path.exists(path)]
    apart = [path for path in real if not (spec.folder + "/").startswith(path + "/")]
    return [path for path in apart if uid(spec) == os.geteuid() or _open_to_others(path)]


def _open_to_others(path: str) -> bool:
    """Where root starts a sandbox as somebody else: what that user can't get at needs no cover, and none can be put there."""
    return all(parent.stat().st_mode & 0o001 for parent in Path(path).parents)


def _cover(path: str) -> list[str]:
    if os.path.isdir(path):
        return ["--perms", "0755", "--size", _EMPTY_BYTES, "--tmpfs", path]
    return ["--ro-bind", "/dev/null", path]


def _kept(folder: str) -> list[str]:
    """Of the folder, what stays as it is: the repository's own data."""
    return [path for path in [os.path.join(folder, ".git")] if os.path.exists(path) and not os.path.islink(path)]


def _names(spec: SandboxSpec) -> list[str]:
    """The list of name servers often is a link into /run."""
    real = os.path.realpath("/etc/resolv.conf")
    if spec.network.mode != "host" or not real.startswith("/run/") or not os.path.exists(real):
        return []
    return ["--ro-bind", real, real]

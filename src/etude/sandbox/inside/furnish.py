"""The mounts of one sandbox, made by its own process 1 before the cell closes: ground, overlay, /proc, terminals, then the new root.

The ground is one tmpfs of `disk_mb`. What the sandbox writes lands in its folder `upper`: directly, or, over layers, through an overlay
of which it is the top. Around the host's system directories only the workdir and /tmp are folders of that (a layer's paths are relative
to /, so both cases write the same tree); an image's overlay is the whole root. Promise: after `furnish` no path leads to the ground,
the store of layers or the zygote's own root: they are detached with the old root.
"""

from __future__ import annotations

import os

from etude.sandbox.inside import files, ground, root
from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

HIDDEN = ("kcore", "keys", "key-users", "sysrq-trigger", "timer_list", "kallsyms", "kmsg", "kpagecgroup")
_QUIET = sys_.MS_NOSUID | sys_.MS_NODEV
_UPPER, _SCRATCH, _WHOLE = (f"{root.GROUND}/{name}" for name in ("upper", "scratch", "whole"))
_TMP_MODE = 0o1777
_MOST_OPTIONS = 4095  # what mount(2) takes: a page


def furnish(spec: dict[str, Any]) -> int:
    """All mounts and the new root. Returns a descriptor of `upper`."""
    place = spec["place"]
    layers: list[str] = place.get("layers", [])
    size = f"mode=755,size={spec['disk_mb']}m,nr_inodes={spec['disk_mb'] * ground.INODES_PER_MB}"
    sys_.mount("tmpfs", root.GROUND, "tmpfs", _QUIET, size)
    os.mkdir(_UPPER)
    upper = os.open(_UPPER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    whole = _over(layers) if layers else _UPPER
    if place.get("root", "host") == "image":
        base = whole
        _dress_image(base, spec["workdir"], place.get("binds", []))
    else:
        base = root.CELL
        sys_.mount(base, base, None, sys_.MS_BIND | sys_.MS_REC)  # ours, so that it may become the root
        for path in (spec["workdir"], "/tmp"):
            folder(whole, path, _TMP_MODE if path == "/tmp" else 0o755)
            sys_.mount(whole + path, base + path, None, sys_.MS_BIND)
    mount_proc(base)
    sys_.mount(
        "devpts", f"{base}/dev/pts", "devpts", sys_.MS_NOSUID | sys_.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"
    )
    sys_.enter_root(base)
    return upper


def _over(layers: list[str]) -> str:
    """Mount an overlay of layers, topmost first, under the ground; their names are short because they are relative to the store."""
    os.mkdir(_SCRATCH)
    os.mkdir(_WHOLE)
    options = f"lowerdir={':'.join(layers)},upperdir={_UPPER},workdir={_SCRATCH},userxattr"
    if len(options) > _MOST_OPTIONS:
        raise files.FileRequestError(
            "InfraError", f"{len(layers)} layers are more than one mount takes: flatten the chain"
        )
    os.chdir(root.STORE)
    sys_.mount("overlay", _WHOLE, "overlay", _QUIET, options)
    os.chdir("/")
    return _WHOLE


def _dress_image(base: str, workdir: str, binds: list[str]) -> None:
    """What every root must have, in an image's. Nothing is reached through a link of the image's."""
    for path, mode in (("/proc", 0o555), ("/dev", 0o755), ("/etc", 0o755), ("/tmp", _TMP_MODE), (workdir, 0o755)):
        folder(base, path, mode)
    for path in binds:
        source = f"{root.CELL}{path}"
        if os.path.isdir(source):
            folder(base, path, 0o755)
        else:
            folder(base, os.path.dirname(path), 0o755)
            _file(base + path)
        sys_.mount(source, base + path, None, sys_.MS_BIND | sys_.MS_REC)
    hosts = f"{base}/etc/hosts"  # engines leave it empty: they mount their own
    _file(hosts)
    if os.lstat(hosts).st_size == 0:
        sys_.mount(f"{root.CELL}/etc/hosts", hosts, None, sys_.MS_BIND)
    sys_.mount(f"{root.CELL}/dev", f"{base}/dev", None, sys_.MS_BIND | sys_.MS_REC)


def _file(path: str) -> None:
    """A regular file, made empty where there is none. Raises OSError for a link."""
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o644))


def folder(base: str, path: str, mode: int) -> None:
    """The folder base + path, made where it is missing; `mode` is a new last one's. Refused where a component is a link."""
    fd = os.open(base, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    parts = [part for part in path.split("/") if part]
    for count, part in enumerate(parts, 1):
        try:
            if _is_new(part, fd) and count == len(parts):
                os.chmod(part, mode, dir_fd=fd)
            below = _entered(part, fd, path)
        finally:
            os.close(fd)
        fd = below
    os.close(fd)


def _is_new(name: str, above: int) -> bool:
    """Make the folder, unless something of that name is there."""
    try:
        os.mkdir(name, 0o755, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _entered(name: str, above: int, path: str) -> int:
    try:
        return os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        message = f"{path} must be a folder of the root, not a link or a file: {error.strerror}"
        raise files.FileRequestError("UserError", message) from None


def mount_proc(base: str) -> None:
    """A fresh /proc of this process' namespaces, without what tells of the host or changes it."""
    sys_.mount("proc", f"{base}/proc", "proc", _QUIET | sys_.MS_NOEXEC)
    for name in HIDDEN:
        if os.path.exists(f"{base}/proc/{name}"):
            sys_.mount(f"{base}/dev/null", f"{base}/proc/{name}", None, sys_.MS_BIND)
    sys_.mount(f"{base}/proc/sys", f"{base}/proc/sys", None, sys_.MS_BIND | sys_.MS_REC)
    sys_.set_read_only(f"{base}/proc/sys", recursive=False)

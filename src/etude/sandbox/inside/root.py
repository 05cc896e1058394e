"""The read-only root every sandbox starts from, built once in the zygote's own mount namespace, at `CELL`.

Promise: after `build` the process sees system directories, the interpreter's prefix, the binds it was given and the store of layers,
nothing else: the old root is detached, so homes, repositories, runs, /tmp and pip settings have no path any more. A sandbox' first
process goes on into `CELL` (see `furnish`), where the store has no path either.
"""

from __future__ import annotations

import os

from etude.sandbox.inside import syscalls as sys_

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from typing import Any

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/mime.types")
DEVICES = ("null", "zero", "full", "random", "urandom")
INSIDE_UID = 1000  # what a person usually is; not 0, so an exec never regains capabilities
COMMANDS = "/opt/etude/bin"  # `python` and `python3` here are the interpreter that warm runs use
_SCRATCH = ("/tmp", "/mnt", "/run", "/var")  # any directory will do: the new root is assembled on top of it
# In the zygote's own root: what a sandbox' process 1 will pivot into, where its tmpfs goes, and the stores of layers, numbered.
CELL, GROUND, STORE = "/.cell", "/.ground", "/.layers"
STUBS = {
    "/etc/passwd": f"root:x:0:0::/root:/bin/sh\netude:x:{INSIDE_UID}:{INSIDE_UID}::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "/etc/group": f"root:x:0:\netude:x:{INSIDE_UID}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/shm": "/tmp",  # one tmpfs with one size limit for both
}


def build(config: dict[str, Any]) -> None:
    """Needs a mount namespace of its own. `config`: python, binds [(host, inside)], workdir, hide [paths], stores [folders of layers]."""
    sys_.mount("none", "/", None, sys_.MS_REC | sys_.MS_PRIVATE)
    binds = [(source, CELL + target) for source, target in system_binds() + [tuple(pair) for pair in config["binds"]]]
    binds += [(store, f"{STORE}/{number}") for number, store in enumerate(config["stores"])]
    opened = [(os.open(source, os.O_PATH | os.O_CLOEXEC), target) for source, target in binds]
    whole = next(path for path in _SCRATCH if os.path.isdir(path))
    sys_.mount("tmpfs", whole, "tmpfs", sys_.MS_NOSUID, "mode=755,size=1m")
    base = whole + CELL
    os.mkdir(base)
    os.mkdir(whole + GROUND)
    folders = ("/proc", "/dev/pts", "/etc", "/tmp", "/root", "/var/tmp", "/run", COMMANDS, config["workdir"])
    for path in folders:
        os.makedirs(base + path, exist_ok=True)
    for fd, target in opened:
        bind(fd, whole + target)
        os.close(fd)
    for path in SYSTEM:
        if os.path.islink(path):
            os.symlink(os.readlink(path), base + path)
    for path, text in STUBS.items():
        with open(base + path, "w") as file:
            file.write(text)
    for path, goal in {
        **LINKS,
        "/dev/ptmx": "pts/ptmx",
        f"{COMMANDS}/python": config["python"],
        f"{COMMANDS}/python3": config["python"],
    }.items():
        os.symlink(goal, base + path)
    for name in os.listdir(base):  # the zygote itself finds its modules and /proc by the usual names
        os.symlink(f"{CELL[1:]}/{name}", f"{whole}/{name}")
    _hide(base, config["hide"])
    sys_.set_read_only(whole, recursive=True)
    # Last and writable: the kernel lets a user namespace mount a fresh /proc only where a full one with equal rights is in sight.
    sys_.mount("/proc", f"{base}/proc", None, sys_.MS_BIND | sys_.MS_REC)
    sys_.enter_root(whole)


def system_binds() -> list[tuple[str, str]]:
    sources = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    sources += [path for path in ETC if os.path.exists(path)]
    sources += [f"/dev/{name}" for name in DEVICES if os.path.exists(f"/dev/{name}")]
    return [(path, path) for path in sources]


def bind(fd: int, target: str) -> None:
    """Bind what a descriptor is open on, with all mounts below it, at a path that is made where it is missing."""
    source = f"/proc/self/fd/{fd}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):  # else it covers a file of a bound folder
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "x").close()
    sys_.mount(source, target, None, sys_.MS_BIND | sys_.MS_REC)


def _hide(base: str, paths: list[str]) -> None:
    """Cover what must be absent but lies under a bound directory: an empty file system over folders, /dev/null over files."""
    for path in paths:
        if os.path.isdir(base + path):
            sys_.mount("tmpfs", base + path, "tmpfs", sys_.MS_NOSUID, "mode=755,size=4k")
        elif os.path.exists(base + path):
            sys_.mount(f"{base}/dev/null", base + path, None, sys_.MS_BIND)

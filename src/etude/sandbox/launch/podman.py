"""Back end `podman`: a rootless container on a root folder of our own, no image and no registry; our runner as PID 1 inside.

Slow (0.3 s and more for each sandbox) and the last of those that `auto` tries. Each container has a user namespace of its own, since
the kernel counts processes by it; runc wants uid 0 mapped there, so the runner starts in one more, which has no uid 0 (`bundle.NESTED`).
Storage, run directory and podman's pause process are this pool's own and go with it.
Differs from namespaces of our own in limits: the number of files is watched, and /dev is a writable file system in memory of podman's
size (64 MB). Tried with podman 4.3 and runc, as root and as an ordinary user without subordinate ids; untested with crun and with newer podman.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup.undo import EndHelpers, RemoveFolder, Undo
from etude.sandbox.errors import Unsupported
from etude.sandbox.inside import furnish
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle, engine, rootfs
from etude.sandbox.launch.handing import RENUMBER, duplicate_high, inherited_command
from etude.sandbox.launch.launcher import LaunchCommand, Programs
from etude.sandbox.spec import Isolation, SandboxSpec

_CLEANUP_S = 10.0  # 0.2 s on a quiet machine
_MASKED = "/sys:/dev/mqueue:" + ":".join(f"/proc/{name}" for name in furnish.HIDDEN)
# A session keyring for each container would be a key of the user's, who has 200 of them (kernel.keys.maxkeys).
_CONFIGURATION = "[containers]\nkeyring = false\n"
# crun refuses machines with both versions of cgroups mounted, runc does not.
_HYBRID = "/sys/fs/cgroup/unified"


class PodmanRuntime:
    """See `launcher.IsolationRuntime`."""

    backend = "podman"
    isolation: Isolation = "namespace"
    end_signal: signal.Signals = signal.SIGKILL
    drops_root = True
    egress = True
    becomes_native = True

    def __init__(self, python: Interpreter) -> None:
        found = shutil.which("podman")
        if found is None:
            raise Unsupported("back end podman: there is no podman; install the package podman")
        self._podman, self._python = found, python
        self._folder = Path(os.path.realpath(tempfile.gettempdir()), f"etude-podman-{os.urandom(8).hex()}")
        self._building = threading.Lock()  # launches come from threads

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leftovers(self) -> tuple[Undo, ...]:
        return EndHelpers(str(self._folder)), RemoveFolder(str(self._folder))

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kind": "container"}

    def close(self) -> None:
        """End podman's pause process, which holds the user namespace, and remove the folder."""
        if not self._folder.exists():
            return
        end_s = time.monotonic() + _CLEANUP_S
        while _mentioned(str(self._folder)) and time.monotonic() < end_s:
            time.sleep(0.02)
        for file in self._folder.rglob("pause.pid"):
            _end_pause(int(file.read_text()))
        shutil.rmtree(self._folder, ignore_errors=True)  # what is left lies in the temporary folder and holds nothing

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand:
        with self._building:
            base = self._root(spec.workdir)
        high = duplicate_high((control, *programs.open()), files)
        binds = rootfs.binds(spec, self._python)
        covers = rootfs.covers([target for _, target in binds], self._python, self._folder / "empty")
        start = inherited_command(programs)
        argv = [
            self._python.path,
            "-I",
            "-S",
            "-c",
            RENUMBER,
            ",".join(map(str, high)),
            self._podman,
            *self._storage(),
            "run",
            *_options(spec, len(high)),
        ]
        argv += [word for pair in (*binds, *covers) for word in ("--volume", engine.volume(self.backend, *pair))]
        python = [self._python.path, "-P", "-s", "-S", "-B", "-c"]
        argv += ["--rootfs", str(base), *python, bundle.NESTED, *python, start]
        environment = {name: str(self._folder / name.lower()) for name in ("HOME", "XDG_RUNTIME_DIR")}
        return LaunchCommand(argv, high, {**environment, "PATH": os.environ.get("PATH", os.defpath)})

    def _storage(self) -> list[str]:
        folders = {name: str(self._folder / name) for name in ("root", "runroot", "tmpdir")}
        argv = [word for name, folder in folders.items() for word in (f"--{name}", folder)]
        runc = shutil.which("runc") if os.path.isdir(_HYBRID) else None
        return [*argv, "--cgroup-manager", "cgroupfs", "--log-level", "error", *(["--runtime", runc] if runc else [])]

    def _root(self, workdir: str) -> Path:
        """The folder that is the container's root, one for each workdir."""
        base = self._folder / rootfs.name(workdir)
        if base.exists():
            return base
        self._folder.mkdir(mode=0o700, exist_ok=True)
        rootfs.build(base, workdir, self._python)
        for name in ("home", "xdg_runtime_dir", "empty"):
            (self._folder / name).mkdir(mode=0o700, exist_ok=True)
        configuration = self._folder / "home" / ".config" / "containers"
        configuration.mkdir(parents=True, exist_ok=True)
        (configuration / "containers.conf").write_text(_CONFIGURATION)
        if os.geteuid() == 0:
            rootfs.give_away(self._folder, self.backend)
        return base


def _options(spec: SandboxSpec, inherited: int) -> list[str]:
    argv = [
        "--rm",
        "--pull",
        "never",
        "--network",
        "none",
        "--no-hosts",
        "--hostname",
        "sandbox",
        "--uidmap",
        "0:0:1",
        "--gidmap",
        "0:0:1",
        "--user",
        "0:0",
        "--passwd=false",
    ]
    argv += ["--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
    # podman's own filter refuses the namespace that the runner starts in; ours is installed before any command runs.
    argv += [*(word for name in bundle.NEEDS for word in ("--cap-add", name)), "--security-opt", "seccomp=unconfined"]
    argv += [
        "--security-opt",
        f"mask={_MASKED}",
        "--shm-size",
        f"{spec.disk_mb}m",
        "--log-driver",
        "none",
        "--preserve-fds",
        str(inherited),
    ]
    argv += engine.ulimits()
    argv += ["--env", "PYTHONHASHSEED=0", "--env", "LANG=C.UTF-8"]  # of the interpreter that warm runs are forks of
    for path in (spec.workdir, "/tmp"):
        argv += ["--tmpfs", f"{path}:rw,nosuid,nodev,exec,size={spec.disk_mb}m,mode=0755"]
    return argv


def _mentioned(folder: str) -> bool:
    """Whether a process still works for it: conmon, or podman's own cleanup after a container, which would make the folder again."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if folder.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                return True
        except OSError:
            continue  # gone
    return False


def _end_pause(pid: int) -> None:
    try:
        if (
            b"podman" in Path(f"/proc/{pid}/cmdline").read_bytes()
            or b"catatonit" in Path(f"/proc/{pid}/comm").read_bytes()
        ):
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return  # it is gone

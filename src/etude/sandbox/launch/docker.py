"""Back end `docker`: a container by a docker engine, on an image of ours imported into it, no registry; our runner as its first process.

The engine hands on no descriptor, so a folder of its own is bound into each container, with a socket in it on which the control socket is
waiting; the first program inside fetches it, and the socket is gone before it says anything. Nothing of it can be reached later.
Everything inside is one unprivileged user of the host, another for each container (the kernel counts processes by user); for an ordinary
user it is that user. Differs from namespaces of our own in that /sys is the engine's, read-only, and in limits: the number of files is
watched. For an engine on this machine: docker 20.10, and podman 4.3 in its place.
"""

from __future__ import annotations

import io
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from etude.sandbox.cleanup.undo import RemoveFolder, RunCommand, Undo
from etude.sandbox.errors import Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle, engine, rootfs
from etude.sandbox.launch.handing import FOLDER, PROGRAM, RUNNER, START, SocketHandover, install_runner
from etude.sandbox.launch.launcher import LaunchCommand, Programs
from etude.sandbox.spec import Isolation, SandboxSpec

_FIRST_UID, _UIDS = 0x7D00_0000, 1 << 22  # unlike any person's, and any range handed out by useradd
_PATIENCE_S = 60.0  # for an import: a second on a quiet machine
_LABEL = "etude.pool"
_PREFIX = "etude-docker-"
# $1: label; $2: prefix of the images' names; then the engine. It ends with 0 where nothing is left. Removals are judged by what is left, since
# a container that was killed is being removed by the engine itself (--rm), which may be half-way or done when we ask.
_REMOVE = """
label=$1 images=$2; shift 2
containers() { left=$("$@" ps --all --quiet --filter "label=$label") || exit; [ -n "$left" ]; }
pictures() { left=$("$@" images --quiet "$images") || exit; [ -n "$left" ]; }
left=$("$@" ps --quiet --filter "label=$label") || exit
[ -z "$left" ] || "$@" kill $left >/dev/null 2>&1
for try in 1 2 3 4; do
    containers "$@" || break
    "$@" rm --force $left >/dev/null 2>&1 || sleep 0.2
done
for try in 1 2 3 4; do
    pictures "$@" || break
    "$@" rmi --force $left >/dev/null 2>&1 || sleep 0.2
done
! containers "$@" && ! pictures "$@" || { echo "left: $left" >&2; exit 1; }
"""


class DockerRuntime:
    """See `launcher.IsolationRuntime`. `words`: the engine's command line up to the verb."""

    backend = "docker"
    isolation: Isolation = "namespace"
    end_signal: signal.Signals = signal.SIGKILL
    drops_root = False  # only the engine's own users may ask it; processes inside run as an unprivileged user
    egress = True
    becomes_native = True

    def __init__(self, python: Interpreter, words: tuple[str, ...] = ("docker",)) -> None:
        self._words, self._python = words, python
        engine.require(words, self.backend)
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._folder.chmod(0o711)
        # In hexadecimal: the folder's own name may end in a character that no image's may.
        self._images = f"localhost/etude-docker-{self._folder.name.removeprefix(_PREFIX).encode().hex()}"
        self._numbers = itertools.count(1)
        self._building = threading.Lock()  # launches come from threads
        self._built: dict[str, str] = {}  # images by whether they hold the C runner, and workdir

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leftovers(self) -> tuple[Undo, ...]:
        kept = tuple(engine.environment().items())
        return RunCommand(("/bin/sh", "-c", *self._removal()), kept), RemoveFolder(str(self._folder))

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kind": "container"}

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand:
        with self._building:
            image = self._image(spec.workdir, programs.runner)
            name = f"{self._folder.name}-{next(self._numbers)}"
        uid = _FIRST_UID + secrets.randbelow(_UIDS) if os.geteuid() == 0 else os.geteuid()
        handing = SocketHandover(self._folder / name, uid, control, files)
        binds = rootfs.binds(spec, self._python)
        binds += rootfs.covers([target for _, target in binds], self._python, self._folder / "empty")
        argv = [*self._words, "run", "--name", name, "--label", f"{_LABEL}={self._folder.name}"]
        argv += [*_options(spec, uid), "--volume", f"{handing.folder}:{FOLDER}:ro"]
        argv += [word for pair in binds for word in ("--volume", engine.volume(self.backend, *pair))]
        argv += [
            image,
            self._python.path,
            "-P",
            "-s",
            "-S",
            "-B",
            "-c",
            START.format(runner=RUNNER if programs.runner >= 0 else -1),
        ]
        return LaunchCommand(
            argv,
            [],
            engine.environment(),
            name=name,
            inherits_descriptors=False,
            folder=handing.folder,
            after_start=handing.give,
        )

    def close(self) -> None:
        """Containers have ended with their sandboxes; what the engine did not remove by itself is removed here, and the images."""
        words = ["/bin/sh", "-c", *self._removal()]
        subprocess.run(words, env=engine.environment(), capture_output=True, timeout=_PATIENCE_S)
        shutil.rmtree(self._folder, ignore_errors=True)  # what is left lies in the temporary folder and holds nothing

    def _removal(self) -> tuple[str, ...]:
        return (_REMOVE, "sh", f"{_LABEL}={self._folder.name}", f"{self._images}*", *self._words)

    def _image(self, workdir: str, runner: int) -> str:
        """The root, imported once for each workdir, with the C runner in it if there is one."""
        key = f"{runner >= 0} {workdir}"
        if key in self._built:
            return self._built[key]
        base = self._folder / f"rootfs{len(self._built)}"
        rootfs.build(base, workdir, self._python)
        for path in (workdir, "/tmp"):
            Path(f"{base}{path}").chmod(0o777)  # what is mounted there may take it over
        Path(f"{base}{FOLDER}").mkdir(parents=True)
        Path(f"{base}{PROGRAM}").write_bytes(bundle.code(self._python))
        if runner >= 0:
            install_runner(runner, Path(f"{base}{RUNNER}"))
        (self._folder / "empty").mkdir(exist_ok=True)
        name = f"{self._images}:{len(self._built)}"
        done = subprocess.run(
            [*self._words, "import", "-", name],
            input=_packed(base),
            env=engine.environment(),
            capture_output=True,
            timeout=_PATIENCE_S,
        )
        shutil.rmtree(base)
        if done.returncode:
            raise Unsupported(f"back end {self.backend}: the engine can't import a root: {engine.engine_message(done)}")
        self._built[key] = name
        return name


def _packed(base: Path) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        tar.add(base, "/", filter=_of_root)
    return held.getvalue()


def _of_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def _options(spec: SandboxSpec, uid: int) -> list[str]:
    argv = ["--rm", "--pull", "never", "--network", "none", "--hostname", "sandbox", "--user", f"{uid}:{uid}"]
    argv += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    argv += ["--shm-size", f"{spec.disk_mb}m", "--log-driver", "none", *engine.ulimits()]
    argv += ["--env", "PYTHONHASHSEED=0", "--env", "LANG=C.UTF-8"]  # of the interpreter that warm runs are forks of
    for path in (spec.workdir, "/tmp"):
        argv += ["--tmpfs", f"{path}:rw,nosuid,nodev,exec,size={spec.disk_mb}m,mode=0777"]
    return argv

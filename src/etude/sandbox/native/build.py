"""The native runner as a program: taken from the wheel or compiled on first need, kept in the user's cache, used only after it has run a command.

Promise: `program` returns a runner that works on this machine, or the reason why there is none. Static, because it runs inside images
whose libraries are somebody else's, or missing.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

from etude.sandbox.inside import frames

_SOURCES = Path(__file__).resolve().parent
PREBUILT = _SOURCES / "runner"  # in a wheel that was built where a static program could be compiled (setup.py)
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-static", "-O2", "-Wall", "-Wextra", "-Werror")
_MACHINES = ("x86_64", "aarch64")
_COMPILE_S = 120.0  # 2 s on a quiet core
_TEST_S = 20.0
# Others may execute it and not read it: files in /proc of a process whose program is closed to it belong to root of the namespace that
# owns the program, and to root inside a sandbox (`uid_mode="range"`) the runner's descriptors and its oom_score_adj are closed.
RUNNER_MODE = 0o711
_TEST_SPEC = {"env": {}, "memory_mb": 512, "data_mb": 0, "address_mb": 0, "pids": 4096, "disk_mb": 64, "files": []}
_TEST_RUN = {
    "argv": ["/bin/true"],
    "cwd": None,
    "env": {},
    "timeout_s": _TEST_S / 2,
    "max_output_bytes": 4096,
    "warm": False,
}


class Unbuildable(Exception):
    """Why there is no native runner here."""


@functools.cache
def program() -> Path | str:
    """The runner, or why there is none. Compiles for some seconds the first time: call it off the event loop."""
    try:
        return _found_or_made()
    except Unbuildable as error:
        return str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return f"the native runner could not be built: {error}"


def origin() -> str:
    """Where this machine's runner is from: the wheel, or the compiler with this path. Raises `Unbuildable` where there is none."""
    return "in the wheel" if PREBUILT.is_file() else f"compiled by {_compiler()}"


def remedy() -> str:
    """What a machine without a runner needs."""
    return f"install a C compiler and the static C library (gcc, libc6-dev), or Etude's wheel for linux_{platform.machine()}"


def sources() -> list[Path]:
    return sorted(_SOURCES.glob("*.c"))


def compile_to(target: Path, *flags: str) -> None:
    """Raises `Unbuildable` with what the compiler said first."""
    command = [_compiler(), *flags, "-o", str(target), *map(str, sources()), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        static = "; for a static program the C library's own package is needed (libc.a)" if "-static" in flags else ""
        raise Unbuildable(f"{command[0]} failed: {said[0]}{static}")


def try_out(runner: Path) -> None:
    """Start it outside of any sandbox and run one command. Raises `Unbuildable` where that does not work."""
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryDirectory() as workdir, tempfile.TemporaryFile() as spec:
        spec.write(frames.pack(frames.SPEC, 0, {**_TEST_SPEC, "workdir": workdir}))
        spec.flush()
        descriptors = (theirs.fileno(), spec.fileno())
        process = subprocess.Popen(
            [str(runner), *map(str, descriptors), "--self-test"], pass_fds=descriptors, stdin=subprocess.DEVNULL
        )
        try:
            theirs.close()
            ours.settimeout(_TEST_S)
            ours.sendall(frames.pack(frames.RUN, 1, _TEST_RUN))
            _expect_success(ours)
        except TimeoutError:
            raise Unbuildable(f"the compiled runner did not answer within {_TEST_S:.0f} s") from None
        except (frames.FrameError, ConnectionError) as error:
            raise Unbuildable(f"the compiled runner failed its test: {error}") from None
        finally:
            process.kill()
            process.wait()


def _expect_success(control: socket.socket) -> None:
    splitter = frames.Splitter()
    heard: list[frames.Frame] = []
    while len(heard) < 2:
        data = control.recv(65536)
        if not data:
            raise Unbuildable(f"the compiled runner ended during its test: {[frame.head for frame in heard]}")
        heard += splitter.feed(data)
    if [frame.kind for frame in heard] != [frames.READY, frames.OK] or heard[1].head.get("rc") != 0:
        raise Unbuildable(f"the compiled runner failed its test: {[frame.head for frame in heard]}")


def _found_or_made() -> Path:
    if platform.machine() not in _MACHINES:
        raise Unbuildable(
            f"the native runner is written for {', '.join(_MACHINES)}; this machine is {platform.machine()}"
        )
    folder = _folder(_key())
    runner = folder / "runner"
    if runner.is_file():
        return runner
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        fresh = Path(scratch) / "runner"
        if PREBUILT.is_file():
            shutil.copyfile(PREBUILT, fresh)  # a copy, since installed files can be read by everyone
            fresh.chmod(0o700)
        else:
            compile_to(fresh, *FLAGS)
        try_out(fresh)
        fresh.chmod(RUNNER_MODE)
        fresh.replace(runner)  # a process that builds at the same time puts the same there
    return runner


def _folder(key: str) -> Path:
    """The folder of this program: in the user's cache, or for a user without a home directory among the temporary files, closed to others.
    Raises Unbuildable where that place belongs to somebody else."""
    folder = _cache() / key
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError:
        place = Path(tempfile.gettempdir()) / f"etude-native-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Unbuildable(
            f"{place} is not a folder of this user alone; remove it, or set XDG_CACHE_HOME to a folder that can be written"
        )
    folder = place / key
    folder.mkdir(exist_ok=True)
    return folder


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if home.startswith("/") else Path.home() / ".cache") / "etude" / "native"


def _key() -> str:
    """Other sources, flags, machines and compilers make other programs."""
    if PREBUILT.is_file():
        return hashlib.sha256(PREBUILT.read_bytes()).hexdigest()[:24]
    digest = hashlib.sha256()
    for path in [*sources(), *sorted(_SOURCES.glob("*.h"))]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    version = subprocess.run([_compiler(), "--version"], capture_output=True, timeout=_TEST_S, check=False).stdout
    digest.update(repr((FLAGS, platform.machine(), version)).encode())
    return digest.hexdigest()[:24]


def _compiler() -> str:
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise Unbuildable(f"no C compiler (looked for {', '.join(COMPILERS)})")
    return found

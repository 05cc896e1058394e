"""Archives of strangers, unpacked in a child process with limits. The parent never parses a byte of one.

Promises: the child writes only below the folder it is given, makes no links and no devices, inherits neither environment nor open
files, and stops at the limits of `UnpackLimits`; whatever ends it early is a ProjectRefused with the reason, and the half-unpacked folder
is gone. Run from the context of `unpacked`, which also removes the folder when the reading is done.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from etude.core.sources.project import ProjectRefused

# The child's program: it finds Etude in the folder that is its first argument, behind the standard library and without other packages.
IMPORT = (
    "import os, sys; sys.path.append(sys.argv[1]); from etude.core.sources.unpacker.child import main; "
    "os._exit(main(sys.argv[2:]))"  # not sys.exit: closing half-read decompressors at exit costs time and may raise
)
ROOT = Path(__file__).parents[3]
# The loader's only variable; without it an interpreter that links a shared libpython outside the system's path doesn't start.
KEPT_VARIABLES = ("LD_LIBRARY_PATH",)
# Of the child's messages; longer ones would be a child gone wrong.
ANSWER_BYTES = 64 * 1024
# What is unpacked lies in folders `open-<host>-<pid>-…`, so that those of a dead process can be recognised, also on a shared disk.
PREFIX = f"open-{os.uname().nodename}-"


@dataclass(frozen=True)
class UnpackLimits:
    """What one archive may cost. The defaults let the largest usual projects in and stop everything that is made to hurt."""

    total_bytes: int = 4 * 1024**3  # the largest C++ code bases are half of it
    file_bytes: int = 16 * 1024**2  # a larger file is data; it is left out, its project is not refused
    entries: int = 250_000  # three times a kernel's source tree
    path_bytes: int = 1024  # a quarter of what Linux allows, the rest is for the folder it lies in
    memory_bytes: int = 512 * 1024**2  # xz at its highest preset needs 65 MiB, the interpreter 60
    cpu_s: int = 300  # 4 GiB at 15 MB/s, the slowest xz seen


@dataclass
class Unpacked:
    """What one or more archives left in a folder. `skipped` counts entries that were left out, by reason."""

    files: int = 0
    bytes: int = 0
    skipped: Counter[str] = field(default_factory=Counter)


def unpack(
    archive: Path | IO[bytes], into: Path, limits: UnpackLimits = UnpackLimits(), *, diff: bool = False
) -> Unpacked:
    """Unpacks a .tar(.gz|.bz2|.xz|.lzma), a .zip or a tar stream below `into`, which exists. `diff`: it is the (compressed) diff of a
    Debian source of format 1.0. Raises ProjectRefused, or OSError if the machine failed; `into` is then for the caller to remove."""
    if isinstance(archive, Path):
        with archive.open("rb") as stream:
            return unpack(stream, into, limits, diff=diff)
    command = [sys.executable, "-I", "-S", "-X", "utf8", "-c", IMPORT, str(ROOT), json.dumps(asdict(limits))]
    try:
        child = subprocess.run(
            command + ["diff"] * diff,
            stdin=archive,
            capture_output=True,
            cwd=into,
            env={name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ},
            # A child that sleeps uses no CPU time: on a slow pipe or disk it may take ten times as long, not for ever.
            timeout=limits.cpu_s * 10,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        raise ProjectRefused(f"unpacking took more than {limits.cpu_s * 10} s") from None
    answer = _answer(child.stdout)
    if child.returncode == 0 and answer:
        return Unpacked(answer["files"], answer["bytes"], Counter(answer["skipped"]))
    if child.returncode == 3 and answer:
        raise ProjectRefused(answer["reason"])
    if child.returncode == 4 and answer:
        raise OSError(f"can't unpack into {into}: {answer['reason']}")
    if child.returncode < 0:
        # SIGXCPU or SIGKILL from the CPU limit, SIGSEGV from a library that met the memory limit or a fault.
        raise ProjectRefused(f"unpacking was ended by signal {-child.returncode} ({limits.cpu_s} s of CPU allowed)")
    raise RuntimeError(f"the unpacker ended with status {child.returncode}: {_tail(child.stderr)}")


@contextmanager
def work_folder(scratch: Path) -> Iterator[Path]:
    """A new folder below `scratch` that is gone after the context. A process that died in such a context left one: it is removed too."""
    scratch.mkdir(parents=True, exist_ok=True)
    for old in scratch.glob(f"{PREFIX}*"):
        pid = old.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(old, ignore_errors=True)  # another process may be removing it as well
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def top(folder: Path) -> Path:
    """The only folder in `folder`, by custom `name-version`, or `folder` itself if there is more."""
    entries = list(folder.iterdir())
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def _answer(line: bytes) -> dict[str, Any] | None:
    try:
        return json.loads(line[:ANSWER_BYTES])
    except (ValueError, RecursionError):
        return None


def _tail(text: bytes) -> str:
    return text[-500:].decode(errors="replace").strip() or "no message"

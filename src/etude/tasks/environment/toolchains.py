"""Compilers of this machine that lie where a sandbox does not look: bound read-only, and found by PATH.

Whatever lies below /usr every sandbox has. Rust and further Pythons are mostly in a person's home (rustup; uv, pyenv), and Debian's Java
keeps its settings in /etc.
A language that has nothing here gets nothing: its build then says that there is no such command.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

from etude.sandbox.spec import SandboxSpec

INSIDE = "/opt/toolchains"
SYSTEM = ("/usr/", "/bin/", "/lib/")
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"
PYTHONS = (13, 12, 14, 11, 10, 9, 8)  # minor versions, those that most releases are made for first
_PATIENCE_S = 30.0

Bind = tuple[str, str]


def with_toolchain(spec: SandboxSpec, language: str) -> SandboxSpec:
    """`spec` with what the language's programs need beyond the system's folders. PATH names it last: a project's own comes first."""
    binds, path = toolchain(language)
    there = {inside for _, inside in spec.read_only_binds}
    more = tuple(bind for bind in binds if bind[1] not in there)
    if not path:
        return replace(spec, read_only_binds=(*spec.read_only_binds, *more))
    had = spec.env.get("PATH", PLAIN_PATH)
    env = {**spec.env, "PATH": had if path in had.split(":") else f"{had}:{path}"}
    return replace(spec, env=env, read_only_binds=(*spec.read_only_binds, *more))


@cache
def toolchain(language: str) -> tuple[tuple[Bind, ...], str]:
    """What to bind, and the folder of its programs (empty: they are where every sandbox has them)."""
    if language == "rust":
        return _rust()
    if language == "python":
        return _pythons(), ""
    return (_java(), "") if language == "java" else ((), "")


def _rust() -> tuple[tuple[Bind, ...], str]:
    try:
        done = subprocess.run(
            ["rustc", "--print", "sysroot"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return (), ""
    root = done.stdout.strip()
    if root.startswith(SYSTEM) or not (Path(root) / "bin" / "cargo").is_file():
        return (), ""
    inside = f"{INSIDE}/rust"
    return ((root, inside),), f"{inside}/bin"


def _pythons() -> tuple[Bind, ...]:
    """Installations of uv and pyenv, of each minor version the newest. They are found by their place, nothing is run; no folder of theirs
    is on PATH, since it may hold any program of that person."""
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or _data() / "uv" / "python")
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    binds: list[Bind] = []
    for minor in PYTHONS:
        there = [*uv.glob(f"cpython-3.{minor}.*"), *pyenv.glob(f"3.{minor}.*")]
        good = [one.resolve() for one in there if (one / "bin" / f"python3.{minor}").is_file()]
        if good:
            binds.append((str(max(good, key=_patch)), f"{INSIDE}/python3.{minor}"))
    return tuple(binds)


def _patch(folder: Path) -> int:
    found = re.search(r"3\.\d+\.(\d+)", folder.name)
    return int(found[1]) if found else -1


def _data() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def _java() -> tuple[Bind, ...]:
    """Folders of /etc that the installation's own settings are links to."""
    found: dict[str, None] = {}
    for settings in sorted(Path("/usr/lib/jvm").glob("*/conf/*.properties")):
        target = settings.resolve().parent
        if settings.is_symlink() and target.is_dir() and len(target.parts) == 3 and target.parts[1] == "etc":
            found[str(target)] = None
    return tuple((place, place) for place in found)

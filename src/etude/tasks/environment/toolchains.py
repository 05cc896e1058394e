"""Compilers of this machine that lie where a sandbox does not look: bound read-only, and found by PATH.

Whatever lies below /usr every sandbox has. Rust is mostly in a person's home (rustup), and Debian's Java keeps its settings in /etc.
A language that has nothing here gets nothing: its build then says that there is no such command.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

from etude.sandbox.spec import SandboxSpec

INSIDE = "/opt/toolchains"
SYSTEM = ("/usr/", "/bin/", "/lib/")
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"
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


def _java() -> tuple[Bind, ...]:
    """Folders of /etc that the installation's own settings are links to."""
    found: dict[str, None] = {}
    for settings in sorted(Path("/usr/lib/jvm").glob("*/conf/*.properties")):
        target = settings.resolve().parent
        if settings.is_symlink() and target.is_dir() and len(target.parts) == 3 and target.parts[1] == "etc":
            found[str(target)] = None
    return tuple((place, place) for place in found)

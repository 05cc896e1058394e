"""The pinned pytest, bound read-only into a sandbox: tests run by the same runner wherever they run."""

from __future__ import annotations

import compileall
import py_compile
import tomllib
from dataclasses import replace
from functools import cache as once
from importlib.resources import files
from pathlib import Path

from etude.sandbox.spec import WORKDIR, SandboxSpec
from etude.tasks.running.pin import Pin, unpack_release
from etude.tasks.running.supervised import supervised_spec

PYTEST_FLAGS = ("-q", "-p", "no:cacheprovider", "--no-header", "--tb=short")
TOOLS_INSIDE = "/opt/tools"  # where the pinned pytest is bound inside the sandbox
SOURCE_INSIDE = f"{WORKDIR}/src"  # packages with a src folder are imported from it; for the others it doesn't exist


@once
def tools() -> tuple[Pin, ...]:
    """The pinned pytest with what it needs, as wheels."""
    table = tomllib.loads((files("etude.tasks.running") / "tools.toml").read_text())
    return tuple(Pin(name, entry["version"], entry["sha256"]) for name, entry in table.items())


@once
def _compiled(folder: Path) -> Path:
    """The folder with byte code next to its sources: nothing inside can write there, and each run would compile all of pytest again.
    Where it can't be written here either, runs take 0.3 s longer and say the same."""
    if not any(folder.rglob("*.pyc")):
        compileall.compile_dir(
            folder, quiet=2, workers=1, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    return folder


def with_pytest(spec: SandboxSpec, cache: Path) -> SandboxSpec:
    """`spec` with the pinned pytest bound read-only and found by the interpreter inside. Raises PackagesUnavailable."""
    inside = {pin: f"{TOOLS_INSIDE}/{pin.name}" for pin in tools()}
    binds = tuple((str(_compiled(unpack_release(pin, cache))), path) for pin, path in inside.items())
    path = ":".join([*inside.values(), SOURCE_INSIDE, *filter(None, [spec.env.get("PYTHONPATH", "")])])
    env = {**spec.env, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return supervised_spec(replace(spec, read_only_binds=(*spec.read_only_binds, *binds), env=env))

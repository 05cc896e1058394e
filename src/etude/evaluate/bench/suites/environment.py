"""What the sandboxes of a suite's tasks need in addition to the files: pytest, packages, folders to import from, an image.

Both the agent's sandbox and the grader's pass through `Equipment.fit`, so that tests run for the one as for the other.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.suites.manifest import SuiteEnvironment
from etude.sandbox.errors import Unsupported
from etude.sandbox.spec import WORKDIR, SandboxSpec
from etude.tasks.running.pytest_tools import with_pytest

INSTALL_TIMEOUT_S = 1200.0
SITE_INSIDE = "/opt/suite"
MIB = 1 << 20
# Tests write their own caches, reports and temporary files next to the workspace.
DISK_TIMES, LEAST_DISK_MB = 4, 64


class Equipment:
    """The environment of one suite on this machine."""

    def __init__(self, environment: SuiteEnvironment, root: Path, cache: Path) -> None:
        self._environment, self._root, self._cache = environment, root, cache
        self._refused: SuiteError | None = None  # what can't be installed is tried once, not for every task

    def fit(self, spec: SandboxSpec, task_id: str, metadata: dict[str, Any]) -> SandboxSpec:
        """`spec` for a task. Raises Unsupported for a task whose image is not named, PackagesUnavailable, SuiteError."""
        wanted = self._environment
        disk_mb = DISK_TIMES * sum(map(len, spec.files.values())) // MIB
        spec = replace(
            spec, disk_mb=max(spec.disk_mb, LEAST_DISK_MB, disk_mb), workdir=metadata.get("workdir", spec.workdir)
        )
        image = next((name for glob, name in wanted.images.items() if fnmatchcase(task_id, glob)), "")
        if not image and metadata.get("image"):
            raise Unsupported(
                f"task {task_id} runs in an image of its own ({metadata['image']}), and the suite names none for it: make it "
                f'with `etude sandbox image add` or `build`, and write `"{task_id}" = "IMAGE"` under [environment.images] '
                f"of {self._root / 'suite.toml'}"
            )
        if image:  # its interpreter, if it has one, is its own
            spec = replace(spec, image=image, warm_python=False)
        if wanted.pytest:
            spec = with_pytest(spec, self._cache)
        return self._importing(spec)

    def prepare(self) -> None:
        """Downloads what is missing, once. Raises SuiteError, PackagesUnavailable."""
        if self._environment.requirements:
            self._site()
        if self._environment.pytest:
            with_pytest(SandboxSpec(), self._cache)

    def _importing(self, spec: SandboxSpec) -> SandboxSpec:
        paths = [f"{WORKDIR}/{folder}".rstrip("/.") for folder in self._environment.python_path]
        binds = spec.read_only_binds
        paths += [spec.env["PYTHONPATH"]] if "PYTHONPATH" in spec.env else []
        if self._environment.requirements:
            binds = (*binds, (str(self._site()), SITE_INSIDE))
            paths.append(SITE_INSIDE)
        env = {**spec.env, "PYTHONPATH": ":".join(paths), "PYTHONDONTWRITEBYTECODE": "1"} if paths else spec.env
        return replace(spec, read_only_binds=binds, env=env)

    def _site(self) -> Path:
        """The folder of installed requirements, named by what they are and for which Python."""
        file = self._root / self._environment.requirements
        try:
            asked = file.read_bytes()
        except OSError as error:
            raise SuiteError(f"{file} can't be read ({error.strerror}); suite.toml names it as requirements") from error
        known = hashlib.sha256(asked + repr(sys.version_info[:2]).encode()).hexdigest()[:16]
        folder = self._cache / "suites" / known
        if self._refused is not None:
            raise self._refused
        try:
            if not folder.is_dir():
                install(file, folder)
        except SuiteError as error:
            self._refused = error
            raise
        return folder


def install(requirements: Path, folder: Path) -> None:
    """Installs pinned requirements into a folder, whole or not at all. Raises SuiteError with pip's reason."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        made = Path(scratch) / "site"
        command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--no-compile", "--only-binary", ":all:"]
        command += ["--target", str(made), "--requirement", str(requirements)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise SuiteError(f"{requirements}: not installed within {INSTALL_TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            raise SuiteError(f"{requirements} can't be installed: {said[-1] if said else 'pip gave no reason'}")
        made.mkdir(exist_ok=True)
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first: the same requirements
                raise

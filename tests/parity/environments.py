"""Pythons that have a published package of a pinned version, for nightly tests that compare this package with it.

Each package has a virtual environment below the cache folder, which is made on first use from `requirements-NAME.txt` and made again when that
file or the Python changes. A stamp, written last, marks a finished one. `ETUDE_NAME_PYTHON` names a Python that has the package already.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import site
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STAMP = "etude-parity"
PIP_TIMEOUT_S = 600
# What pip prints when it reaches no index; a version that an index lacks is printed otherwise.
UNREACHABLE = ("Retrying (Retry(", "Temporary failure in name resolution", "Network is unreachable")


class NoEnvironment(Exception):
    """This machine can't make the environment: no suitable Python, or no index in reach."""


@dataclass(frozen=True)
class PublishedPackage:
    """`python`: the lowest version that the package supports. `shares_packages`: imports what it lacks from the tests' environment."""

    name: str
    python: tuple[int, int] = (3, 11)
    shares_packages: bool = False

    @property
    def requirements(self) -> Path:
        return HERE / f"requirements-{self.name}.txt"


PACKAGES = {
    package.name: package
    for package in (
        PublishedPackage("swebench"),
        PublishedPackage("harbor", python=(3, 12)),
        PublishedPackage("transformers", shares_packages=True),
        PublishedPackage("mistral", shares_packages=True),
        PublishedPackage("peft", shares_packages=True),
    )
}


def require_python(name: str) -> str:
    """The path of a Python that has this package. Skips the test where this machine can't have one."""
    if chosen := os.environ.get(f"ETUDE_{name.upper()}_PYTHON"):
        return chosen
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etude" / "parity"
    package = PACKAGES[name]
    try:
        return str(make_environment(package, package.requirements, cache / name, find_python(package.python)))
    except NoEnvironment as reason:
        pytest.skip(str(reason))


def find_python(lowest: tuple[int, int]) -> Path:
    """The first interpreter of this version or a newer one: the tests' own, on PATH, of pyenv, of uv. Raises NoEnvironment."""
    own = Path(sys.executable)
    if sys.version_info >= lowest:
        return own
    home = Path.home()
    places = [Path(found) for minor in (12, 13) if (found := shutil.which(f"python3.{minor}"))]
    places += sorted((home / ".pyenv" / "versions").glob("3.*/bin/python3"))
    places += sorted((home / ".local" / "share" / "uv" / "python").glob("cpython-3.*/bin/python3"))
    for place in places:
        code = f"import sys; sys.exit(sys.version_info < {lowest})"
        if subprocess.run([place, "-c", code], capture_output=True).returncode == 0:
            return place
    raise NoEnvironment(f"no Python {lowest[0]}.{lowest[1]} or newer is on this machine; install one")


def make_environment(package: PublishedPackage, requirements: Path, folder: Path, python: Path) -> Path:
    """The environment's Python. One process makes it, others wait. Raises NoEnvironment without an index in reach."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = folder / "bin" / "python"
    stamp = f"{python.resolve()}\n{sys.prefix if package.shares_packages else ''}\n{requirements.read_text()}"
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        finished = folder / STAMP
        if made.exists() and finished.is_file() and finished.read_text() == stamp:
            return made
        shutil.rmtree(folder, ignore_errors=True)
        _create(folder, python)
        _install(made, requirements)
        if package.shares_packages:
            _share_packages(made)
        finished.write_text(stamp)
    return made


def _create(folder: Path, python: Path) -> None:
    """Without pip: the tests' own pip installs into it, which saves seconds and a version that differs."""
    if python == Path(sys.executable):
        venv.create(folder, symlinks=True, with_pip=False)
    else:
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True, capture_output=True)


def _install(python: Path, requirements: Path) -> None:
    words = ["-m", "pip", "--python", python, "--disable-pip-version-check", "--no-input"]
    words += ["install", "--no-deps", "--retries", "1", "-r", requirements]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=PIP_TIMEOUT_S)
    if done.returncode == 0:
        return
    output = done.stdout + done.stderr
    if any(mark in output for mark in UNREACHABLE):
        raise NoEnvironment(
            f"no package index can be reached for {requirements.name}; check the network and pip's index"
        )
    pytest.fail(f"pip can't install {requirements.name}: {output[-1000:]}")


def _share_packages(python: Path) -> None:
    """Appends the packages of this process to the path of that Python, after its own ones."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    shared = [path for path in site.getsitepackages() if Path(path).is_dir()]
    shared += [path for path in sys.path if path.endswith("site-packages") and path not in shared]
    (Path(folder) / "etude-shared.pth").write_text("\n".join(shared) + "\n")

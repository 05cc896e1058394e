"""The launcher: refusals are one clear line, a finished set-up is not made again, nothing that is not ours is emptied."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("etude", "pyproject.toml", "constraints.txt", "requirements.txt", "requirements-test.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def fake(folder: Path, name: str, script: str) -> None:
    """A program that replaces one of the system's."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def launch(checkout: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout / 'fakes'}:{os.environ['PATH']}"
    without = {k: v for k, v in os.environ.items() if not k.startswith("ETUDE_")}
    return subprocess.run(
        [str(checkout / "etude"), *words], env=without | {"PATH": path} | environment, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("program", "script", "named"),
    [
        ("uname", "echo Darwin", "Linux VM"),
        ("uname", "echo MINGW64_NT", "WSL2"),
        ("uname", 'case "$1" in -m) echo armv7l;; *) echo Linux;; esac', "use an x86_64 or aarch64 machine"),
        ("ldd", "echo musl libc >&2; exit 1", "glibc"),
    ],
)
def test_a_system_that_lacks_what_is_needed_gets_one_line_with_the_remedy(
    checkout: Path, program: str, script: str, named: str
) -> None:
    fake(checkout / "fakes", program, script)
    done = launch(checkout, "run")
    assert done.returncode == 1 and named in done.stderr and len(done.stderr.splitlines()) == 1
    assert done.stdout == "" and not (checkout / ".venv").exists()


def test_an_old_python_is_refused_with_the_remedy(checkout: Path) -> None:
    fake(checkout / "fakes", "old", "exit 1")
    done = launch(checkout, "run", ETUDE_PYTHON="old")
    assert done.returncode == 1 and "ETUDE_PYTHON=old is not a Python 3.11" in done.stderr
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        fake(checkout / "fakes", name, "exit 1")
    done = launch(checkout, "run")
    assert done.returncode == 1 and "no Python with the venv module found; supported are 3.11" in done.stderr


@pytest.mark.parametrize("precious", ["thesis", "pyvenv.cfg"])
def test_a_folder_or_environment_that_is_not_ours_is_never_emptied(checkout: Path, precious: str) -> None:
    home = checkout / "home"
    home.mkdir()
    (home / precious).write_text("x")
    done = launch(checkout, "run", ETUDE_VENV=str(home))
    assert done.returncode == 1 and "was not made by this launcher" in done.stderr
    assert (home / precious).read_text() == "x"


SPREAD = f"-n {min(8, len(os.sched_getaffinity(0)) * 3 // 2)} --dist loadfile "


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("", SPREAD),
        ("--all -x", f"{SPREAD}--all -x"),
        ("rl", f"{SPREAD}tests/rl"),
        ("--all rl core/trace", f"{SPREAD}--all tests/rl tests/core/trace"),
        ("tests/rl", f"{SPREAD}tests/rl"),
        ("rl -k core", f"{SPREAD}tests/rl -k core"),
        ("rl -n0", "tests/rl -n0"),
        ("rl -n 2", "tests/rl -n 2"),
        ("rl --pdb", "tests/rl --pdb"),
        ("tests/rl/test_a.py -k core", "tests/rl/test_a.py -k core"),
        ("rl tests/rl/test_a.py::test_b", "tests/rl tests/rl/test_a.py::test_b"),
        ("unknown", "unknown"),
    ],
)
def test_a_package_is_named_by_its_folder_of_tests(checkout: Path, words: str, arguments: str) -> None:
    for name in ("rl", "core/trace"):
        (checkout / "tests" / name).mkdir(parents=True)
    set_up(checkout)
    done = launch(checkout, "test", *words.split())
    assert done.returncode == 0, done.stderr
    last = (checkout / "calls").read_text().splitlines()[-1]
    assert last.rstrip() == f"python -m pytest {arguments}".rstrip()


def set_up(checkout: Path) -> None:
    """Programs that replace those of an environment; `calls` lists what the launcher asks of Python."""
    python = 'case "$*" in *"pip show"*) echo "Version: $(sed -n s/^torch==//p constraints.txt)";; esac'
    fake(checkout / ".venv" / "bin", "python", f"cd {checkout}; echo python $* >>calls; {python}")
    fake(checkout / ".venv" / "bin", "etude", 'echo ran "$@"')
    (checkout / ".venv" / "pyvenv.cfg").touch()
    (checkout / ".venv" / "etude-place").write_text(f"{checkout} {checkout}/.venv/bin/python\n")


def test_after_set_up_the_command_starts_at_once_and_a_changed_pin_sets_up_again(checkout: Path) -> None:
    set_up(checkout)
    first = launch(checkout, "run", "a b")
    assert first.stdout == "ran run a b\n" and "ready after" in first.stderr, first.stderr
    calls = (checkout / "calls").read_text()
    assert "pip install" in calls

    began = time.perf_counter()
    again = launch(checkout, "doctor")
    print(
        f"the launcher adds {1000 * (time.perf_counter() - began):.0f} ms"
    )  # shown with -s; a busy machine may be slow
    assert (again.stdout, again.stderr) == ("ran doctor\n", "")
    assert (checkout / "calls").read_text() == calls, "a finished set-up starts no Python and no pip"

    with (checkout / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    assert "ready after" in launch(checkout, "doctor").stderr

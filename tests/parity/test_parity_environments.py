"""An environment is made once, again when its pins change or a set-up was cut off, and its absence has a plain reason."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from environments import PACKAGES, STAMP, NoEnvironment, PublishedPackage, find_python, make_environment

OWN = Path(sys.executable)
PACKAGE = PublishedPackage("tally")
Pins = Callable[[str], Path]


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    """Writes the requirements of `tally` in this version, which is found in a folder."""
    index = tmp_path / "index"
    index.mkdir()
    for version in ("1.0", "2.0"):
        info = f"tally-{version}.dist-info"
        with zipfile.ZipFile(index / f"tally-{version}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("tally.py", f"VERSION = {version!r}\n")
            wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tally\nVersion: {version}\n")
            wheel.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            wheel.writestr(f"{info}/RECORD", f"tally.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")

    def write(version: str) -> Path:
        requirements = tmp_path / "requirements-tally.txt"
        requirements.write_text(f"--no-index\n--find-links {index}\ntally=={version}\n")
        return requirements

    return write


def version_in(python: Path) -> str:
    code = "import tally; print(tally.VERSION)"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_an_environment_is_made_once_and_again_when_its_pins_change(pins: Pins, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "tally"
    python = make_environment(PACKAGE, pins("1.0"), folder, OWN)
    assert version_in(python) == "1.0"
    (folder / "mark").touch()
    assert make_environment(PACKAGE, pins("1.0"), folder, OWN) == python and (folder / "mark").exists()
    assert version_in(make_environment(PACKAGE, pins("2.0"), folder, OWN)) == "2.0" and not (folder / "mark").exists()


def test_a_set_up_that_was_cut_off_is_made_again(pins: Pins, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "tally"
    make_environment(PACKAGE, pins("1.0"), folder, OWN)
    (folder / STAMP).unlink()
    (folder / "mark").touch()
    make_environment(PACKAGE, pins("1.0"), folder, OWN)
    assert not (folder / "mark").exists() and (folder / STAMP).exists()


def test_a_package_that_shares_imports_those_of_the_tests_after_its_own(pins: Pins, tmp_path: Path) -> None:
    shares = PublishedPackage("tally", shares_packages=True)
    python = make_environment(shares, pins("1.0"), tmp_path / "cache" / "tally", OWN)
    code = "import tally, pytest; print(tally.__file__, pytest.__file__, sep='\\n')"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    own, shared = map(Path, done.stdout.split())
    assert own.is_relative_to(tmp_path) and shared == Path(pytest.__file__)


def test_without_an_index_the_reason_is_plain_and_nothing_is_finished(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements-tally.txt"
    requirements.write_text("--index-url http://127.0.0.1:9/simple\ntally==1.0\n")
    with pytest.raises(NoEnvironment, match="no package index can be reached for requirements-tally.txt"):
        make_environment(PACKAGE, requirements, tmp_path / "cache" / "tally", OWN)
    assert not (tmp_path / "cache" / "tally" / STAMP).exists()


def test_a_version_that_the_index_lacks_fails_and_is_no_skip(pins: Pins, tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="pip can't install requirements-tally.txt"):
        make_environment(PACKAGE, pins("3.0"), tmp_path / "cache" / "tally", OWN)


def test_a_python_that_is_too_new_for_this_machine_is_named() -> None:
    assert find_python((3, 11)) == OWN
    with pytest.raises(NoEnvironment, match=r"no Python 3\.99 or newer is on this machine"):
        find_python((3, 99))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_requirement_is_pinned(name: str) -> None:
    lines = [line for line in PACKAGES[name].requirements.read_text().splitlines() if not line.startswith("#")]
    assert lines and all("==" in line for line in lines)

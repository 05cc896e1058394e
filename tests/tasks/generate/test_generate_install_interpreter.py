"""The Python that a project's environment is made with: what the project declares, what a failed try asks for, and the step that finds it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from etude.sandbox.interpreter import Interpreter
from etude.tasks.generate.install.rules import python_interpreter
from etude.tasks.generate.install.rules.python_interpreter import declared_versions, learn_demand, venv
from etude.tasks.generate.install.rules.python_rules import steps
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.generate.sources.projects import CatalogueProject


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox's own Python is 3.11.2."""
    monkeypatch.setattr(
        python_interpreter.interpreter, "find", lambda: Interpreter("/usr/bin/python3", "/usr", (3, 11, 2))
    )


@pytest.mark.parametrize(
    ("files", "asked"),
    [
        ({"pyproject.toml": '[project]\nrequires-python = ">=3.12"'}, ">=3.12"),
        ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.12"'}, "<4,>=3.12"),
        ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "~3.12"'}, "<3.13,>=3.12"),
        ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.9 || ^3.12"'}, "<4,>=3.9"),
        ({"pyproject.toml": "[project]\nrequires-python = 3"}, ""),
        ({"pyproject.toml": '[project]\nrequires-python = "the newest"'}, ""),
        ({"PKG-INFO": "Name: x\nRequires-Python: >=3.10, <3.13\n"}, "<3.13,>=3.10"),
        ({"setup.cfg": "[options]\npython_requires = >=3.8\n"}, ">=3.8"),
        ({"setup.py": "setup(python_requires='>=3.6')"}, ">=3.6"),
        ({}, ""),
    ],
)
def test_what_a_project_asks_of_the_interpreter_is_read_wherever_it_is_written(
    files: dict[str, str], asked: str
) -> None:
    assert declared_versions(files) == SpecifierSet(asked)


@given(st.text(max_size=30))
def test_no_text_in_place_of_a_version_ends_the_rules(text: str) -> None:
    assert isinstance(declared_versions({"PKG-INFO": f"Requires-Python: {text}"}), SpecifierSet)
    assert isinstance(python_interpreter._specifier(text), SpecifierSet)


def test_the_sandbox_s_own_python_is_taken_where_it_will_do() -> None:
    assert venv({"PKG-INFO": "Requires-Python: >=3.8"}, (), "/v") == "python3 -m venv /v"
    assert "python3.13" in venv({"PKG-INFO": "Requires-Python: >=3.11.5"}, (), "/v")  # its own is 3.11.2
    old = venv({"PKG-INFO": "Requires-Python: <3.11"}, (), "/v")
    assert "python3.10" in old and "python3.12" not in old


def shell(step: str, bin_: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["/bin/sh", "-c", step], env={"PATH": str(bin_)}, capture_output=True, text=True)


def test_the_step_takes_the_first_python_that_is_there_and_else_says_what_to_install(tmp_path: Path) -> None:
    step = venv({"PKG-INFO": "Requires-Python: >=3.12"}, (), str(tmp_path / "v"))
    nothing = shell(step, tmp_path)
    assert nothing.returncode != 0
    assert "no Python >=3.12" in nothing.stderr and "the sandbox has 3.11.2" in nothing.stderr
    program = tmp_path / "python3.12"
    program.write_text('#!/bin/sh\necho "$@"\n')
    os.chmod(program, 0o755)
    found = shell(step, tmp_path)
    assert (found.returncode, found.stdout) == (0, f"-m venv {tmp_path / 'v'}\n")
    program.write_text("#!/bin/sh\nexit 7\n")
    assert shell(step, tmp_path).returncode == 7


PIP = """ERROR: Ignored the following versions that require a different python version: 1.1.0 Requires-Python >=3.12; 1.2.0 Requires-Python >=3.12
ERROR: Could not find a version that satisfies the requirement thing>=1.1 (from versions: 1.0)
ERROR: No matching distribution found for thing>=1.1"""


def test_a_requirement_that_has_releases_for_a_newer_python_alone_asks_for_it_once() -> None:
    assert learn_demand(PIP) == ["python>=3.12"]
    assert learn_demand(PIP.replace(">=3.12", ">=3.8")) == []  # the sandbox's own would do: another cause
    assert learn_demand(PIP.splitlines()[0]) == []  # versions were passed over, and another one was found
    project = Fetched(CatalogueProject("x", "sdist", "1.0"), {"test_x.py": b"def test_x(): pass\n"}, "sdist x")
    made = steps(project, ["requests", "python>=3.12"])
    assert any("python3.12" in step and "venv" in step for step in made)
    guess = next(step for step in made if "'requests'" in step)
    assert (
        shell(guess.replace("/tmp/deps/venv/bin/python3", "/bin/false"), Path("/")).returncode == 0
    )  # a guess may be none
    assert not any("'python>=3.12'" in step for step in made)


def test_a_name_of_a_newer_standard_library_asks_for_its_version() -> None:
    assert learn_demand("ImportError: cannot import name 'override' from 'typing' (/usr/lib/x)") == ["python>=3.12"]
    assert learn_demand("ImportError: cannot import name 'deprecated' from 'warnings' (/usr/lib/x)") == ["python>=3.13"]
    assert learn_demand("ImportError: cannot import name 'other' from 'typing' (/usr/lib/x)") == []

"""Compilers that lie outside of the system's folders reach sandboxes: bound read-only, PATH names them last."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment import toolchains
from etude.tasks.environment.toolchains import with_toolchain
from etude.tasks.running.channel import Tests
from etude.tasks.running.channels.appended import CHANNELS
from etude.tasks.running.channels.canaries import with_canary


def rustc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    program = tmp_path / "rustc"
    program.write_text(f"#!/bin/sh\necho {root}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    toolchains.toolchain.cache_clear()


def test_a_toolchain_in_a_home_is_bound_and_found_behind_the_project_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "root" / "bin").mkdir(parents=True)
    (tmp_path / "root" / "bin" / "cargo").touch()
    rustc(tmp_path, monkeypatch, tmp_path / "root")
    found = with_toolchain(SandboxSpec(env={"PATH": "/own:/usr/bin"}), "rust")
    assert found.read_only_binds == ((str(tmp_path / "root"), f"{toolchains.INSIDE}/rust"),)
    assert found.env["PATH"] == f"/own:/usr/bin:{toolchains.INSIDE}/rust/bin"
    assert with_toolchain(found, "rust") == found  # once is enough
    toolchains.toolchain.cache_clear()


def pythons(monkeypatch: pytest.MonkeyPatch, *, pyenv: Path, uv: Path) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(uv))
    toolchains.toolchain.cache_clear()


def test_of_each_python_of_uv_and_pyenv_the_newest_patch_is_bound_and_none_is_on_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyenv, uv = tmp_path / "pyenv", tmp_path / "uv"
    for folder, minor in (
        (pyenv / "versions/3.12.9", 12),
        (pyenv / "versions/3.12.10", 12),
        (uv / "cpython-3.13.1-linux-x86_64-gnu", 13),
    ):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / f"python3.{minor}").touch()
    (pyenv / "versions/3.14.0").mkdir()  # an installation that was broken off
    pythons(monkeypatch, pyenv=pyenv, uv=uv)
    found = with_toolchain(SandboxSpec(env={"PATH": "/usr/bin"}), "python")
    assert set(found.read_only_binds) == {
        (str(pyenv / "versions/3.12.10"), f"{toolchains.INSIDE}/python3.12"),
        (str(uv / "cpython-3.13.1-linux-x86_64-gnu"), f"{toolchains.INSIDE}/python3.13"),
    }
    assert found.env == {"PATH": "/usr/bin"}
    toolchains.toolchain.cache_clear()


def test_what_lies_below_usr_every_sandbox_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rustc(tmp_path, monkeypatch, Path("/usr"))
    pythons(monkeypatch, pyenv=tmp_path, uv=tmp_path)
    assert with_toolchain(SandboxSpec(), "rust") == SandboxSpec()
    assert with_toolchain(SandboxSpec(), "python") == SandboxSpec() == with_toolchain(SandboxSpec(), "go")
    toolchains.toolchain.cache_clear()


def test_cargo_is_asked_for_the_binaries_of_the_files_and_runs_them_all() -> None:
    files = ("tests/a.rs", "src/lib.rs", "src/parse.rs", "src/bin/tool.rs")
    argv = CHANNELS["cargo"].prepare(Tests(files, (), "cargo"), {}, "x", "/w").argv
    assert argv == ["cargo", "test", "--no-fail-fast", "--offline", "--test", "a", "--lib", "--bins"]


def test_a_junit_3_test_case_gets_its_canary_unless_it_lists_its_tests_itself() -> None:
    text = "import junit.framework.TestCase;\n\npublic class ATest extends TestCase {\n}\n"
    assert "public void testCanary_x()" in (with_canary("ATest.java", text, "x", "junit") or "")
    listed = text.replace("{\n}", "{\n    public static Test suite() { return null; }\n}")
    assert with_canary("ATest.java", listed, "x", "junit") is None

"""Whatever a repository's files and outputs hold, the rules read it: no number, name or repetition ends a making or takes minutes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.generate.install import left_out as left_out_module
from etude.tasks.generate.install.goal import Goal, counts
from etude.tasks.generate.install.left_out import left_out
from etude.tasks.generate.install.rules import go_rules, node_build, node_script, python_interpreter, python_needs
from etude.tasks.generate.install.rules.python_version import version, version_files
from etude.tasks.generate.sources.fetched import Fetched, fetch
from etude.tasks.generate.sources.projects import CatalogueProject

DIGITS = "9" * 5000  # more than Python reads as a number


@pytest.mark.parametrize(
    "output",
    [
        f"{DIGITS} passed",
        f"{DIGITS} failed",
        f"# pass {DIGITS}",
        f"{DIGITS} specs, {DIGITS} failures",
        f"test result: ok. {DIGITS} passed; {DIGITS} failed",
        f"Tests run: {DIGITS}, Failures: {DIGITS}, Errors: {DIGITS}",
    ],
)
def test_a_number_that_no_test_run_has_is_no_count(output: str) -> None:
    assert counts(output) == (0, 0)
    assert "0 tests passed" in Goal("make test", "passes", "", None, tests=True).objection(1, output)


def test_counts_of_a_long_row_of_digits_take_no_time() -> None:
    assert counts("9" * 1_000_000 + "\n3 passed") == (3, 0)


def test_a_file_whose_name_is_no_text_is_no_part_of_a_project(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    Path(os.fsdecode(bytes(tmp_path) + b"/caf\xe9.txt")).write_text("x")
    found = fetch(CatalogueProject("x", "folder", "", path=str(tmp_path)), tmp_path)
    assert set(found.files) == {"a.py"} and len(found.digest) == 64


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("**/" * 11 + "zz", "a/" * 24 + "x"), ("**/a/" * 11 + "zz", "a/" * 60 + "x"), ("*a" * 30 + "b", "a" * 255)],
)
def test_a_glob_with_many_stars_is_matched_at_once(pattern: str, path: str) -> None:
    assert not node_script.glob(pattern).fullmatch(path)
    assert node_script.glob(pattern).fullmatch(path[:-1] + ("zz" if "/" in path else "b"))


def test_a_glob_that_no_person_writes_matches_nothing() -> None:
    assert not node_script.glob("a" * 501).fullmatch("a" * 501)
    assert not node_script.glob("{a,b}" * 7).fullmatch("a" * 7)
    assert node_script.glob("{a,b}" * 6).fullmatch("abbaab")


def test_braces_and_stars_of_a_glob_keep_their_meaning() -> None:
    shape = node_script.glob("{packages,apps}/**/{test,spec}/**/*.{test,spec}.[jt]s")
    assert shape.fullmatch("apps/test/a.spec.[jt]s") and shape.fullmatch("packages/x/spec/y/z/a.test.[jt]s")
    assert not shape.fullmatch("packages/x/a.test.[jt]s") and node_script.glob("test/**").fullmatch("test/a/b.js")
    assert node_script.glob("*a*b/?").fullmatch("xaabb/c") and not node_script.glob("*b").fullmatch("a/b")


def test_imports_and_requirements_are_found_behind_any_repetition() -> None:
    assert node_build.imports("import" + " " * 200_000 + "x\nimport( 'a')\nimport 'b'\nimport c from 'd'") == [
        "a",
        "b",
        "d",
    ]
    setup = "install_requires=[" * 100_000
    assert python_needs.own_requirements({"setup.py": setup}) == []
    many = "install_requires = ['a>=1',\n 'b'] install_requires=['c'] extras_require" + "extras_require=" * 50_000
    assert python_needs.own_requirements({"setup.py": many}) == ["a>=1", "b", "c"]
    assert python_needs.extras({"setup.py": many + "{'test': [], \"dev\" : []}"}) == ["test", "dev"]
    assert python_needs.own_requirements(
        {"requirements.txt": "a" + " " * 100_000 + "x\nb == 1.0 ; python_version > '3'"}
    ) == [
        "a x",
        "b; python_version > '3'",
    ]


@pytest.mark.parametrize("text", [f">=3.{DIGITS}", f"^{DIGITS}", f"^3.{DIGITS}", f"=={DIGITS}"])
def test_a_demand_with_thousands_of_digits_asks_for_nothing(text: str) -> None:
    assert python_interpreter.declared_versions({"PKG-INFO": f"Requires-Python: {text}"}) == SpecifierSet()


def test_a_version_with_thousands_of_digits_is_unknown() -> None:
    project = Fetched(CatalogueProject("x", "sdist", "1.0"), {"PKG-INFO": f"Version: 1.{DIGITS}\n".encode()}, "sdist x")
    assert len(version(project)) <= 200
    assert version_files({"pyproject.toml": "tool = 5\n"}) == []


def test_a_quote_in_a_demand_stays_a_quote_in_the_shell() -> None:
    step = python_interpreter.venv({"PKG-INFO": "Requires-Python: ===3.8'x"}, (), "/v")
    done = subprocess.run(["sh", "-c", step], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no Python ===3.8'x for this project" in done.stderr


@pytest.fixture
def goproxy(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    answer = subprocess.CompletedProcess([], 0, f"{request.param}\n", "")
    monkeypatch.setattr(go_rules.subprocess, "run", lambda *args, **options: answer)
    go_rules.own_proxy.cache_clear()
    request.addfinalizer(go_rules.own_proxy.cache_clear)


GO = Fetched(CatalogueProject("x", "git", "v1", "go"), {"go.mod": b"module a\n"}, "git")


@pytest.mark.parametrize("goproxy", ["https://user:token@go.corp:8443/x,direct"], indirect=True)
def test_a_mirror_of_go_modules_is_the_sandboxs_too_and_its_password_is_not(goproxy: None) -> None:
    assert go_rules.hosts() == ("go.corp:8443",)
    assert go_rules.env(GO)["GOPROXY"] == "https://go.corp:8443/x,direct"


@pytest.mark.parametrize("goproxy", [""], indirect=True)
def test_without_a_setting_of_go_there_is_none_in_the_sandbox(goproxy: None) -> None:
    assert go_rules.hosts() == () and "GOPROXY" not in go_rules.env(GO)


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, ()),
        (b"", ()),
        (b"\n \n", ()),
        (b"a\nb\n", ("left out, since they can't be had: a, b",)),
        (b"".join(b"p%d\n" % n for n in range(20)) + b"q\n" * 40_000, ("and at least",)),
    ],
)
async def test_what_was_left_out_is_named_however_long_the_list_is(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch, content: bytes | None, said: tuple[str, ...]
) -> None:
    monkeypatch.setattr(left_out_module, "LEFT_OUT", "left-out")
    box = await pool.create(SandboxSpec(files={} if content is None else {"left-out": content}))
    await box.snapshot("names-1")
    await box.kill()
    found = await left_out("names-1", pool)
    assert found == said or (len(found) == 1 and "p0, p1" in found[0] and said[0] in found[0])

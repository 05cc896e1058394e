"""The standard library as projects: whole modules with the library's licence, nothing of its tests, what is left out with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.core.licence import LicenceBook
from etude.core.sources.project import ProjectRefused, Ref
from etude.core.sources.stdlib import LICENCE, StdlibSource, licence


def files(source: StdlibSource, ref: Ref) -> set[str]:
    with source.open(ref) as project:
        return {path.relative_to(project.root).as_posix() for path in project.root.rglob("*") if path.is_file()}


def test_a_module_and_a_package_are_a_project_each_under_the_library_s_licence(tmp_path: Path) -> None:
    source = StdlibSource("std", ["textwrap", "json"], tmp_path)
    json, textwrap = source.refs()
    assert json.id.startswith("std/json@3.") and textwrap.project == "textwrap"
    assert files(source, textwrap) == {"PKG-INFO", "textwrap.py"}
    assert {"json/__init__.py", "json/decoder.py"} <= files(source, json)
    with source.open(json) as project:
        found = LicenceBook.of_project(project.root, "stdlib").of("json/decoder.py", "")
        assert (found.expression, found.evidence) == (LICENCE, "metadata")
        first = project.origin
    with source.open(json) as project:
        assert project.origin == first and first.startswith("sha256:")
    assert not list(tmp_path.iterdir()), "nothing stays behind"


def test_all_modules_come_once_in_order_and_nothing_that_is_installed_next_to_them(tmp_path: Path) -> None:
    names = [ref.name for ref in StdlibSource("std", [], tmp_path).refs()]
    assert names == sorted(set(names)) and {"abc", "asyncio", "zipfile"} <= set(names)
    assert not {"site-packages", "lib-dynload", "__pycache__", "pytest"} & set(names)


def test_what_is_left_out_is_listed_with_its_reason(tmp_path: Path) -> None:
    source = StdlibSource("std", ["encodings"], tmp_path)
    (ref,) = source.refs()
    with pytest.raises(ProjectRefused, match="tables"), source.open(ref):
        pass
    with pytest.raises(ValueError, match="source 'std' names requests: no module of the standard library"):
        list(StdlibSource("std", ["requests", "json"], tmp_path).refs())


def test_tests_inside_a_package_are_counted_and_left_out(tmp_path: Path) -> None:
    root = tmp_path / "lib"
    (root / "json" / "tests").mkdir(parents=True)
    (root / "json" / "__init__.py").write_text("VALUE = 1\n")
    (root / "json" / "tests" / "test_json.py").write_text("assert True\n")
    source = StdlibSource("std", [], tmp_path / "scratch")
    source.root = root
    (ref,) = source.refs()
    with source.open(ref) as project:
        assert not list(project.root.rglob("test_json.py"))
        assert project.skipped == {"tests of the standard library": 1}


def test_a_library_of_other_terms_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "LICENSE").write_text((Path(__file__).parents[3] / "LICENSE").read_text())
    assert licence(tmp_path) == "Apache-2.0"

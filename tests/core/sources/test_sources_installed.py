"""The distributions of this interpreter as projects: laid out as released, licences readable, nothing of the installer."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.core.licence import LicenceBook
from etude.core.sources.installed import InstalledSource
from etude.core.sources.project import ProjectRefused, Ref


def test_a_distribution_looks_like_its_source_release(tmp_path: Path) -> None:
    source = InstalledSource("here", ["pytest"], tmp_path)
    (ref,) = source.refs()
    assert ref.id == f"here/pytest@{ref.version}"
    with source.open(ref) as project:
        names = {path.relative_to(project.root).as_posix() for path in project.root.rglob("*") if path.is_file()}
        assert {"PKG-INFO", "LICENSE", "_pytest/python.py"} <= names
        assert not [name for name in names if "dist-info" in name or "__pycache__" in name or ".." in name]
        assert LicenceBook.of_project(project.root, "installed").of("_pytest/python.py", "").expression == "MIT"
        assert project.origin.startswith("sha256:") and project.skipped["package metadata"] > 0
    assert not list(tmp_path.iterdir()), "nothing stays behind"


def test_all_distributions_come_in_the_order_of_their_names_but_not_this_checkout(tmp_path: Path) -> None:
    names = [ref.name for ref in InstalledSource("here", [], tmp_path).refs()]
    assert names == sorted(names) and "pytest" in names and "typing-extensions" in names
    assert "etude" not in names, "an editable install is somebody's working tree: name it as a folder or a repository"


def test_a_name_that_is_not_installed_is_left_out_with_the_reason(tmp_path: Path) -> None:
    source = InstalledSource("here", ["Not_There.at-all", "pytest"], tmp_path)
    missing, there = source.refs()
    assert there.name == "pytest" and missing.name == "not-there-at-all"
    with pytest.raises(ProjectRefused, match="not installed here"), source.open(missing):
        pass
    gone = Ref("here", "installed", "pytest", "0.0.1", "", str(tmp_path))
    with (
        pytest.raises(ProjectRefused, match="pytest 0.0.1 is not installed"),
        InstalledSource("here", [], tmp_path).open(gone),
    ):
        pass

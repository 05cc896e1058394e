"""A package of an extra that is not installed is an error with the command that installs it, before anything is written."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etude.cli.answer import give
from etude.cli.extras import EXTRAS, MissingPackage, require_packages
from etude.cli.main import app
from etude.cli.run import WITHOUT_TORCH
from etude.pipeline.run.graph import GRAPH


def failing(name: str) -> Callable[[], Any]:
    def verb() -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    return verb


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Hides a package from `find_spec`, as if it were not installed."""

    def hide(package: str) -> None:
        real = importlib.util.find_spec
        monkeypatch.setattr("etude.cli.extras.find_spec", lambda name: None if name == package else real(name))

    return hide


@pytest.mark.parametrize("name", [*EXTRAS, "torch.distributed", "ray.util"])
def test_an_import_that_fails_in_a_verb_names_the_extra(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    package = name.partition(".")[0]
    assert give(failing(name), as_json=True) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["type"] == "MissingPackage"
    assert package in error["message"] and f"pip install 'etude[{EXTRAS[package]}]'" in error["message"]


def test_an_import_of_any_other_package_stays_a_fault_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert give(failing("etude.absent"), as_json=True) == 1
    found = capsys.readouterr()
    assert json.loads(found.out)["error"]["type"] == "ModuleNotFoundError" and "Traceback" in found.err


def test_required_packages_are_looked_for_and_not_imported(without: Callable[[str], None]) -> None:
    require_packages("torch", "ray")
    without("ray")
    require_packages("torch")
    with pytest.raises(MissingPackage, match=r"needs ray.*etude\[rl\]"):
        require_packages("torch", "ray")


@pytest.mark.parametrize("package", ["torch", "ray"])
def test_a_run_without_its_packages_ends_before_it_writes(
    package: str, without: Callable[[str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without(package)
    words = ["run", "laptop", "--out", str(tmp_path / "run"), "--json"]
    assert give(lambda: app(words, standalone_mode=False), as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "MissingPackage"
    assert list(tmp_path.iterdir()) == []


def test_the_stages_that_run_without_torch_are_stages() -> None:
    assert {stage.name for stage in GRAPH} >= WITHOUT_TORCH

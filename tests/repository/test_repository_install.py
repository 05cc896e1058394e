"""`pip install .`, then the command from a folder that knows nothing of the repository."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def etude(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The console script of a fresh environment; the other packages are lent by the one that runs the tests."""
    folder = tmp_path_factory.mktemp("install")
    source = folder / "source"
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
    for name in ("src", "recipes"):
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    lent = sysconfig.get_paths()["purelib"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q", "--no-deps"]
    # The build back end comes from pip's index unless this environment has one that is new enough (see pyproject.toml).
    pip += ["--no-build-isolation"] * (setuptools_major() >= 77)
    subprocess.run([*pip, str(source), "-w", str(folder / "dist")], check=True)
    shutil.rmtree(source)
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    install = ["-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", str(wheel)]
    subprocess.run([str(folder / "venv" / "bin" / "python"), *install], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text(lent + "\n")
    return folder / "venv" / "bin" / "etude"


def setuptools_major() -> int:
    try:
        return int(importlib.metadata.version("setuptools").split(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return 0


def run(etude: Path, folder: Path, *words: str) -> tuple[int, dict]:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([str(etude), *words, "--json"], cwd=folder, capture_output=True, text=True, env=clean)
    return done.returncode, json.loads(done.stdout)


def test_it_is_the_installed_package_that_runs(etude: Path, tmp_path: Path) -> None:
    code = "import etude; print(etude.__file__)"
    done = subprocess.run([str(etude.with_name("python")), "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith(str(etude.parents[1])), done.stdout
    assert subprocess.run([str(etude), "--help"], cwd=tmp_path, capture_output=True).returncode == 0


def test_a_run_without_arguments_finds_the_laptop_recipe(etude: Path, tmp_path: Path) -> None:
    code, found = run(etude, tmp_path, "run", "--dry-run")
    assert code == 0 and found["recipe"]["run"]["name"] == "laptop" and found["run"] == "runs/laptop"
    assert {step["action"] for step in found["plan"]} == {"run"}
    assert list(tmp_path.iterdir()) == []


def test_every_shipped_recipe_is_there(etude: Path, tmp_path: Path) -> None:
    _, refused = run(etude, tmp_path, "run", "absent", "--dry-run")
    for recipe in (ROOT / "recipes").glob("*.toml"):
        assert recipe.stem in refused["error"]["message"]


def test_the_checkpoint_that_stays_in_the_repository_is_named_as_lost_before_anything_runs(
    etude: Path, tmp_path: Path
) -> None:
    code, refused = run(etude, tmp_path, "run", "ci")
    assert code == 1 and refused["error"]["type"] == "RecipeError"
    assert "checkpoints/sft-nano" in refused["error"]["message"] and "clone" in refused["error"]["message"]
    assert list(tmp_path.iterdir()) == []
    assert run(etude, tmp_path, "run", "ci", "--set", "run.sft_checkpoint=", "--dry-run")[0] == 0


def test_doctor_sandboxes_and_tools_work_with_the_files_next_to_the_code(etude: Path, tmp_path: Path) -> None:
    code, found = run(etude, tmp_path, "doctor")
    assert code == 0 and found["ready"], found
    code, found = run(etude, tmp_path, "tasks", "show", "one-bug/train/000001")
    assert code == 0 and found["instruction"]
    texts = "from etude.agent.harness.presets.preset import preset; print(len(preset('full').system), len(preset('full').schemas))"
    done = subprocess.run([str(etude.with_name("python")), "-c", texts], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "0" not in done.stdout.split(), done.stderr

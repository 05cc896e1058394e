"""What is left of a project in its own environment after the build: nothing that tells its code or its README (promise 10)."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

import pytest

from etude.tasks.generate.install.rules.node_install import PLACE, WITHOUT_TESTS
from etude.tasks.generate.install.rules.python_rules import remove_copies

METADATA = """Metadata-Version: 2.1
Name: thing
Version: 1.0
Description: kept by old tools
        over two lines
Requires-Dist: other

# thing

Call `thing.answer()`.
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The site-packages of a fresh environment at tmp_path/venv."""
    venv.create(tmp_path / "venv", with_pip=False)
    return next((tmp_path / "venv" / "lib").glob("python*/site-packages"))


def _write(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def _run(tmp_path: Path) -> None:
    for step in remove_copies(
        f"{tmp_path}/venv/bin/python3", ["thing", "thing-of-another-name"], ["thing"], f"{tmp_path}/w"
    ):
        subprocess.run(["sh", "-c", step], check=True, cwd=tmp_path)


def test_its_modules_and_its_readme_go_and_what_tools_ask_for_stays(tmp_path: Path, site: Path) -> None:
    record = "thing/__init__.py,,\nthing-1.0.dist-info/METADATA,,\nthing-1.0.dist-info/RECORD,,\n"
    _write(site, {"thing/__init__.py": "ANSWER = 42\n", "other.py": "kept = 1\n"})
    _write(site, {"thing-1.0.dist-info/METADATA": METADATA, "thing-1.0.dist-info/RECORD": record})
    _run(tmp_path)
    assert not (site / "thing" / "__init__.py").exists() and (site / "other.py").exists()
    dist_info = (site / "thing-1.0.dist-info" / "METADATA").read_text()
    assert dist_info == "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\nRequires-Dist: other\n\n"
    asked = "from importlib.metadata import version, requires; print(version('thing'), requires('thing'))"
    said = subprocess.run([f"{tmp_path}/venv/bin/python3", "-I", "-c", asked], capture_output=True, text=True)
    assert said.stdout == "1.0 ['other']\n"


def test_compiled_modules_that_the_tree_has_no_python_for_move_into_it(tmp_path: Path, site: Path) -> None:
    tree = {"thing/__init__.py": "", "thing/_slow.pyx": "", "thing/part.py": "", "thing/own.so": "the tree's"}
    moved = ["thing/_fast.cpython-311-x86_64-linux-gnu.so", "thing/libs/libfast.so.1.2", "_alone.abi3.so"]
    gone = ["thing/part.cpython-311-x86_64-linux-gnu.so", "thing/__init__.cpython-311-x86_64-linux-gnu.so"]
    left = ["thing/own.so", "thing/data.json", "thing/made.py"]
    record = "".join(f"{path},,\n" for path in (*moved, *gone, *left, "thing-1.0.dist-info/RECORD"))
    _write(tmp_path / "w", tree)
    _write(site, {path: "built" for path in (*moved, *gone, *left)})
    _write(site, {"thing-1.0.dist-info/METADATA": METADATA, "thing-1.0.dist-info/RECORD": record})
    _run(tmp_path)
    found = {str(path.relative_to(tmp_path / "w")) for path in (tmp_path / "w").rglob("*") if path.is_file()}
    assert found == {*tree, *moved}
    assert (tmp_path / "w" / "thing" / "own.so").read_text() == "the tree's"
    assert not [path for path in (*moved, *gone, *left) if (site / path).exists()]


def test_what_another_package_carries_of_it_becomes_the_workdir_s(tmp_path: Path, site: Path) -> None:
    _write(tmp_path / "w", {"thing/__init__.py": "ANSWER = 'the tree'\n"})
    _write(site, {"tool/_vendor/thing/__init__.py": "ANSWER = 'a copy'\n", "tool/thing/__init__.py": "own = 1\n"})
    _write(site, {"tool/_vendor/thinglike.py": "kept = 1\n"})
    _run(tmp_path)
    _run(tmp_path)  # as a repair of a recipe would
    assert (site / "tool/_vendor/thing/__init__.py").read_text() == "ANSWER = 'the tree'\n"
    assert (site / "tool/thing/__init__.py").read_text() == "own = 1\n"
    assert (site / "tool/_vendor/thinglike.py").exists()


def test_tests_of_dependencies_go_and_folders_called_test_that_are_no_package_s_own_stay(tmp_path: Path) -> None:
    root = tmp_path / "node_modules"
    _write(root, {f"{name}/package.json": "{}" for name in ("a", "@s/b", "a/node_modules/c")})
    gone = ["a/test/index.js", "@s/b/test/deep/er.js", "a/node_modules/c/test/x.js"]
    _write(root, {"@types/node/package.json": "{}", "d/package.json": '{"exports": {"./test": "./test/x.js"}}'})
    kept = ["a/lib/test/run.js", "a/tested/y.js", "a/index.js", "@types/node/test/reporters.d.ts", "d/test/x.js"]
    _write(root, dict.fromkeys([*gone, *kept], "1"))
    subprocess.run(["sh", "-c", WITHOUT_TESTS.replace(PLACE, str(tmp_path))], check=True)
    assert [path for path in [*gone, *kept] if (root / path).exists()] == kept

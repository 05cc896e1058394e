"""An agent's sandbox does not see the host's own copy of the project that its task was made of."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment import copies
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.task import Task

TEXT = "def greeting(name):\n    return f'hello, dear {name}'\n\n\nBOUND_OF_ALL = 3\n"


def task(**solution: str) -> Task:
    files = {"shapes/words.py": "BOUND_OF_ALL = 3\n", "shapes/__init__.py": "", "other.py": "x = 1\n"}
    return Task(
        "t",
        "features",
        "small",
        "",
        files,
        (),
        "commands",
        solution=solution,
        metadata={KEY: Environment("shapes", "1").to_record()},
    )


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("vendor/shapes", "unlike/shapes", "shapes"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "vendor/shapes/words.py").write_text(TEXT)
    (tmp_path / "vendor/shapes/__init__.py").write_text("from shapes.words import greeting\n")
    (tmp_path / "vendor/shapes/else.py").write_text("y = 2\n")
    (tmp_path / "unlike/shapes/words.py").write_text("BOUND_OF_ALL = 3\nsomething_else_entirely = 4\n")
    (tmp_path / "shapes/words.js").write_text(TEXT)
    monkeypatch.setattr(copies, "ROOTS", (str(tmp_path),))
    copies._host.cache_clear()
    yield tmp_path  # type: ignore[misc]
    copies._host.cache_clear()


def test_a_copy_is_what_holds_lines_that_the_workspace_lacks_and_all_that_lies_next_to_it(host: Path) -> None:
    found = copies.covers(task(**{"shapes/words.py": TEXT}))
    assert [inside for _, inside in found] == [f"{host}/vendor/shapes/__init__.py", f"{host}/vendor/shapes/words.py"]


def test_what_python_compiled_of_a_copy_goes_with_it(host: Path) -> None:
    kept = host / "vendor/shapes/__pycache__"
    kept.mkdir()
    for name in ("words.cpython-311.pyc", "words.cpython-311.opt-1.pyc", "else.cpython-311.pyc"):
        (kept / name).write_bytes(b"\0")
    found = [inside for _, inside in copies.covers(task(**{"shapes/words.py": TEXT}))]
    assert [path for path in found if path.endswith(".pyc")] == [
        f"{kept}/words.cpython-311.opt-1.pyc",
        f"{kept}/words.cpython-311.pyc",
    ]


def test_a_task_whose_reference_is_nowhere_hides_nothing(host: Path) -> None:
    assert copies.covers(task(**{"shapes/words.py": "def never_seen_before():\n    return 'anything'\n"})) == ()
    assert copies.covers(task(**{"notes.txt": TEXT})) == ()


async def test_an_agent_finds_nothing_in_its_place_and_a_grader_is_left_alone(pool: SandboxPool) -> None:
    library = Path("/usr/lib/python3/dist-packages")
    if not str(sysconfig.get_paths()["stdlib"]).startswith("/usr") and not library.is_dir():
        pytest.skip("this host has no packages of its own in /usr")
    source = next((one for one in sorted(library.glob("*/__init__.py")) if one.stat().st_size > 400), None)
    if source is None:
        pytest.skip(f"{library} has no package of more than a few lines")
    path = f"{source.parent.name}/__init__.py"
    made = Task("t", "features", "small", "", {path: ""}, (), "commands", solution={path: source.read_text()},
                metadata={KEY: Environment("own", "1").to_record()})  # fmt: skip
    for history, seen in ((True, False), (False, True)):
        sandbox = await open_workspace(made, pool, SandboxSpec(), history=history)
        try:
            assert bool((await sandbox.run(["cat", str(source)])).out) is seen
        finally:
            await sandbox.kill()

"""What the structure of a tree must show after a rename and a move, and what is left to the agent."""

from __future__ import annotations

import pytest

from etude.tasks.cheats.refactored import REFACTORED
from etude.tasks.graders.canonical import UnparsableModule
from etude.tasks.graders.refactor import objection
from etude.tasks.solved import reference_files
from etude.tasks.task import Task

BEFORE = {
    "p/__init__.py": "from p.a import old\n",
    "p/a.py": '"""A."""\nimport re\n\nN = 1\n\n\ndef old(x):\n    """Old."""\n    return re.sub(x, x, x) + N\n',
    "p/b.py": "from p.a import old\n\n\ndef use():\n    return old(1)\n",
    "p/c.py": "M = 2\n",
    "data.json": "{}",
}
RENAMED = {path: BEFORE[path].replace("old", "new") for path in ("p/__init__.py", "p/a.py", "p/b.py")}
MOVED = {
    "p/__init__.py": "from p.c import old\n",
    "p/a.py": '"""A."""\nimport re\n\nN = 1\n',
    "p/b.py": "from p.c import old\n\n\ndef use():\n    return old(1)\n",
    "p/c.py": "import re\n\nfrom p.a import N\n\nM = 2\n\n\ndef old(x):\n    return re.sub(x, x, x) + N\n",
}
MODULES = {"p/__init__.py": "p", "p/a.py": "p.a", "p/b.py": "p.b", "p/c.py": "p.c"}


def task(operation: str) -> Task:
    new, target = ("new", "p.a") if operation == "rename" else ("old", "p.c")
    asked = {"operation": operation, "module": "p.a", "old": "old", "new": new, "target": target}
    solution = RENAMED if operation == "rename" else MOVED
    return Task("t", "refactors", "l", "", BEFORE, (), "refactor", {"refactor": asked, "modules": MODULES}, solution)


def said(operation: str, **changed: str) -> str:
    """By stem of the module: `a` is p/a.py."""
    made = task(operation)
    return objection(made, reference_files(made) | {f"p/{name}.py": text.encode() for name, text in changed.items()})


@pytest.mark.parametrize("operation", ["rename", "move"])
def test_the_reference_is_what_was_asked_for_and_every_cheat_is_not(operation: str) -> None:
    assert said(operation) == ""
    made = task(operation)
    for name, cheat in REFACTORED.items():
        assert objection(made, cheat(made)), name


def test_ways_to_import_order_layout_and_docstrings_are_free() -> None:
    assert said("rename", b='"""Doc."""\nfrom . import a\n\n\ndef use():\n    return a.new( 1 )\n') == ""
    assert said("rename", b="def use():\n    from .a import new\n    return new(1)\n") == ""
    assert (
        said("move", c="import re\nfrom . import a\n\n\ndef old(x):\n    return re.sub(x, x, x) + a.N\n\n\nM = 2\n")
        == ""
    )
    assert said("move", b="import p.c\n\n\ndef use():\n    return p.c.old(1)\n") == ""
    assert said("move", b="from p import old\n\n\ndef use():\n    return old(1)\n") == ""
    assert said("move", a='"""A."""\nN = 1\n') == ""  # the import that nothing needs any more may go


@pytest.mark.parametrize(
    ("operation", "changed", "why"),
    [
        ("rename", {"b": "from p.a import new as old\n\n\ndef use():\n    return old(1)\n"}, "still in p.b"),
        ("rename", {"b": "from p.a import new as other\n\n\ndef use():\n    return other(1)\n"}, "under another name"),
        ("rename", {"a": RENAMED["p/a.py"].replace("x, x, x", "x, x")}, "not asked for"),
        ("rename", {"a": RENAMED["p/a.py"] + "\n__all__ = list(globals())\n"}, "not asked for"),
        ("rename", {"__init__": ""}, "no longer offers"),
        ("rename", {"c": "M = 3\n"}, "not asked for"),
        ("rename", {"c": "M = 2\n\n\ndef new():\n    return 1\n"}, "not in p.a alone"),
        ("move", {"a": MOVED["p/a.py"] + "from p.c import old\n"}, "re-exported"),
        ("move", {"a": MOVED["p/a.py"] + "from p.c import *\n"}, "re-exported"),
        ("move", {"a": MOVED["p/a.py"] + "import p.c\ndef __getattr__(n):\n    return p.c.old\n"}, "not asked for"),
        ("move", {"b": "def use():\n    from p.c import old as o\n    return o(1)\n"}, "imports `p.c.old` as `o`"),
    ],
)
def test_what_was_not_asked_for_is_named(operation: str, changed: dict[str, str], why: str) -> None:
    assert why in said(operation, **changed)


def test_other_files_stay_as_they_are_and_prose_is_free() -> None:
    made = task("rename")
    assert "data.json has no business" in objection(made, reference_files(made) | {"data.json": b"{1}"})
    assert "q.py was not asked" in objection(made, reference_files(made) | {"q.py": b""})
    assert objection(made, reference_files(made) | {"README.md": b"new"}) == ""


def test_a_tree_that_cannot_be_read_is_reported() -> None:
    with pytest.raises(UnparsableModule, match="p/b.py is no Python"):
        said("rename", b="def (")

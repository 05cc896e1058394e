"""Deprecated generics go from all modules, annotations stay, and a hidden test tells who did it from who did not."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from etude.sandbox.errors import InfraError
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.environment.environment import Environment
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject, ProofContext
from etude.tasks.generate.generators.migration.generator import (
    HIDDEN,
    Migration,
    draft_migration,
    rewrite_modules,
    scopes,
)
from etude.tasks.generate.generators.migration.generics import migrate_source
from etude.tasks.generate.generators.migration.stale import MOVED, stale
from etude.tasks.generate.install.installing import Installer
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.registry import grade
from etude.tasks.running.pin import default_cache
from etude.tasks.solved import reference_files

BAG = '''"""Bags."""

from typing import Callable, Dict, List, Optional, cast

Rule = Callable[[str], bool]


class Bag:
    rows: "List[Bag]" = []

    def kept(self, rule: Optional[Rule] = None, seen: Dict[str, List[int]] = {}) -> "Dict[str, Bag]":
        return cast("Dict[str, Bag]", {"List[int]": self, "a List": rule})
'''
DONE = '''"""Bags."""

from collections.abc import Callable
from typing import Optional, cast

Rule = Callable[[str], bool]


class Bag:
    rows: "list[Bag]" = []

    def kept(self, rule: Optional[Rule] = None, seen: dict[str, list[int]] = {}) -> "dict[str, Bag]":
        return cast("dict[str, Bag]", {"List[int]": self, "a List": rule})
'''
TAGS = "import typing as t\n\n\ndef tags(words: t.Iterable[str]) -> t.Tuple[str, ...]:\n    return tuple(words)\n"
SHADOWED = "from typing import List\n\n\nclass Box:\n    def list(self) -> List[int]:\n        return [1]\n"
TEST = "from bags import bag, tags\n\n\ndef test_tags():\n    assert tags.tags('ab') == ('a', 'b') and bag.Bag().rows == []\n"
FILES = {"bags/__init__.py": "", "bags/bag.py": BAG, "bags/tags.py": TAGS, "bags/box.py": SHADOWED, "tests/test_bags.py": TEST}  # fmt: skip
BAGS = InstalledProject(
    Environment("bags", "1"), FILES, Baseline(frozenset(), by_file={"tests/test_bags.py": ()}), "test"
)


def test_what_pep_585_names_is_replaced_in_quotes_too_and_all_else_stays():
    assert migrate_source(BAG) == DONE


def test_a_string_is_a_type_only_where_types_stand():
    text = "from typing import List, TypeVar, cast\n\nT = TypeVar('T', bound='List[int]')\n"
    said = "print('List[int]', cast(T, 'List[int]'))\nnames = {'List[str]': 'List[str]'}\n"
    assert migrate_source(text + said) == text.replace("List, ", "").replace("List[int]", "list[int]") + said


def test_where_typing_goes_by_another_name_what_is_needed_is_imported_and_the_import_goes_when_nothing_needs_it():
    assert (
        migrate_source(TAGS)
        == "from collections.abc import Iterable\n\n\ndef tags(words: Iterable[str]) -> tuple[str, ...]:\n    return tuple(words)\n"
    )
    assert "import typing as t\n" in migrate_source(TAGS + "\n\nANY: t.Any = 1\n")


@pytest.mark.parametrize("name", sorted(MOVED))
def test_every_name_that_moved_is_where_it_is_said_to_be_and_is_rewritten(name: str):
    code = migrate_source(f"from typing import {name}\n\nx = {name}\n")
    exec(code, scope := {})
    assert stale(ast.parse(code)) == [] and getattr(scope["x"], "__name__", "")
    assert migrate_source(code) == code


def test_a_method_of_the_new_name_keeps_a_module_as_it_is():
    with pytest.raises(CandidateRejected, match="`list` means something else"):
        migrate_source(SHADOWED)


def test_a_project_is_migrated_whole_by_folder_and_by_module_and_the_request_names_what_stays():
    found = scopes(BAGS, rewrite_modules(BAGS))
    assert [(one.name, one.paths, one.kept) for one in found] == [
        ("all", ("bags/bag.py", "bags/tags.py"), ("bags/box.py",)),
    ]
    draft = draft_migration(BAGS, found[0], rewrite_modules(BAGS), "migrations/bags-1/x")
    assert set(draft.solution) == {"bags/bag.py", "bags/tags.py"} and draft.tests == [
        f"tests/{HIDDEN}",
        "tests/test_bags.py",
    ]
    assert "`bags/box.py`" in draft.prompts["terse"] and draft.metadata["must_say"] == ["typing"]
    assert [one.id for one in Migration().candidates(BAGS, None, 0)] == ["migrations/bags-1/typing-generics/all"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("files", "passes"),
    [
        ({}, False),
        ({"bags/bag.py": DONE, "bags/tags.py": migrate_source(TAGS)}, True),
        ({"bags/bag.py": DONE}, False),
        ({"bags/bag.py": DONE, "bags/tags.py": "def tags(words):\n    return tuple(words)\n"}, False),  # no annotations
        ({"bags/bag.py": DONE, "bags/tags.py": TAGS.replace("t.Tuple", '"t.Tuple').replace("...]:", '...]":')}, False),
        ({"bags/bag.py": DONE, "bags/tags.py": TAGS.replace("typing as t", "typing as u").replace("t.", "u.")}, False),
    ],
)
def test_the_hidden_test_tells_a_migration_from_what_looks_like_one(
    tmp_path: Path, files: Mapping[str, str], passes: bool
):
    draft = draft_migration(BAGS, scopes(BAGS, rewrite_modules(BAGS))[0], rewrite_modules(BAGS), "migrations/bags-1/x")
    for path, text in {**FILES, **files, **draft.hidden}.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    words = [sys.executable, "-m", "unittest", f"tests/{HIDDEN}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == passes, done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_a_real_project_is_migrated_and_dropped_annotations_are_no_migration():
    pool = await open_pool(SandboxSettings())
    try:
        built = await Installer(pool, default_cache()).install(CatalogueProject("natsort", "sdist", "8.4.0"))
        found = {one.id: one for one in Migration().candidates(built.installed, ProofContext(pool), 0)}
        task = await found["migrations/natsort-8.4.0/typing-generics/natsort.utils"].build()
        bare = ast.parse(task.solution["natsort/utils.py"])
        for node in ast.walk(bare):
            if isinstance(node, ast.FunctionDef):
                node.returns = None
        assert (await grade(task, reference_files(task), pool)).passed
        assert not (
            await grade(task, reference_files(task) | {"natsort/utils.py": ast.unparse(bare).encode()}, pool)
        ).passed
    except InfraError as error:
        pytest.skip(f"natsort can't be installed here: {error}")
    finally:
        await pool.close()

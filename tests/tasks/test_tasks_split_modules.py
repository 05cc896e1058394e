"""Within one project, modules are held out: no task that is trained on changes one, and every split with a share has some."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.tasks.errors import TaskError
from etude.tasks.generate.run.split_assignment import changed_modules, decide_split, modules_of, split_modules
from etude.tasks.splits import Shares
from etude.tasks.store.source import require_apart
from etude.tasks.task import SPLITS, Split
from etude.tasks.task_row import TaskRow

NAMES = st.text("abcdef/", min_size=1, max_size=8)
SHARES = st.sampled_from([Shares(), Shares(0.0, 0.5), Shares(0.5, 0.0), Shares(0.3, 0.3), Shares(0.0, 0.0)])


@given(st.sets(NAMES, min_size=3, max_size=30), SHARES)
def test_every_split_with_a_share_has_a_module_where_there_are_three(modules: set[str], shares: Shares) -> None:
    found = split_modules("thing", modules, shares)
    assert set(found) == modules
    there = set(found.values())
    assert ("heldout" in there) == (shares.heldout > 0) and ("validation" in there) == (shares.validation > 0)
    assert "train" in there
    assert found == split_modules("thing", modules, shares)


@given(
    st.dictionaries(NAMES, st.sampled_from(get_args(Split)), max_size=10),
    st.sets(NAMES, min_size=1, max_size=20),
    SHARES,
)
def test_a_module_that_is_settled_keeps_its_split(settled: dict[str, Split], modules: set[str], shares: Shares) -> None:
    found = split_modules("thing", modules, shares, settled)
    assert all(found[name] == split for name, split in settled.items())


@given(st.sets(NAMES, min_size=3, max_size=20), st.data())
def test_no_task_that_is_trained_on_changes_a_module_that_is_held_out(modules: set[str], data: st.DataObject) -> None:
    splits = split_modules("thing", modules, Shares(0.2, 0.2))
    rows = []
    for number in range(8):
        own = data.draw(st.sets(st.sampled_from(sorted(modules)), min_size=1))
        split, part = decide_split(own, splits)
        rows.append(TaskRow(str(number), "c", "l", split, project="thing-1.0", part=part))
        assert split == max((splits[one] for one in own), key=SPLITS.index) and part in own
        assert split != "train" or all(splits[one] == "train" for one in own)
    require_apart(rows, "folder")


def test_modules_are_folders_where_there_are_six_and_files_where_there_are_fewer() -> None:
    few = modules_of(["a/x.py", "a/y.py", "tests/test_x.py", "README.md"])
    assert few == {"a/x.py": "a/x.py", "a/y.py": "a/y.py"}
    many = modules_of([f"pkg{number}/x.py" for number in range(6)])
    assert set(many.values()) == {f"pkg{number}" for number in range(6)}


def test_a_test_belongs_to_the_module_that_it_is_named_after() -> None:
    modules = modules_of(["a/x.py", "a/y.py"])
    assert changed_modules(["tests/test_x.py"], modules) == {"a/x.py"}
    assert changed_modules(["tests/test_other.py", "docs/a.md"], modules) == {"tests/test_other.py", "docs/a.md"}


def test_a_module_in_two_splits_and_a_project_split_both_ways_are_refused() -> None:
    row = lambda name, split, part: TaskRow(name, "c", "l", split, project="thing-1.0", part=part)
    require_apart([row("a", "train", "x"), row("b", "heldout", "y")], "folder")
    with pytest.raises(TaskError, match="the module x of thing has tasks to be trained on and measured by"):
        require_apart([row("a", "train", "x"), row("b", "heldout", "x")], "folder")
    with pytest.raises(TaskError, match="split by project and by module"):
        require_apart([row("a", "train", "x"), row("b", "heldout", "")], "folder")

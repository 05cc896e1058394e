"""A link that an agent leaves is graded as a link, and never leads to a file in the place of a protected one."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.sandbox.errors import UserError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.content import EXECUTABLE, LINK, FileBytes, FileText, laid_over, mode_of
from etude.tasks.environment import special
from etude.tasks.environment.environment import KEY, Environment
from etude.tasks.environment.workspace import OVERLAY, open_workspace, read_workspace, special_of
from etude.tasks.graders.judged import graded_files
from etude.tasks.restore import restore_files
from etude.tasks.task import Task

HIDDEN = {"files": {"tests/test_a.py": "import tests.helpers\n"}, "removed": []}
PROJECT = {"a.py": "x = 1\n", "tests/helpers.py": "GOOD = 1\n", "pkg/old.py": "old\n", "lnk": FileText("a.py", LINK)}


def a_task(**metadata: object) -> Task:
    return Task("t", "features", "made", "", PROJECT, (), "commands", hidden=HIDDEN, metadata=metadata)


def test_a_link_in_the_place_of_a_protected_folder_is_not_graded() -> None:
    files = {"a.py": b"x = 1\n", "evil/helpers.py": b"EVIL = 1\n", "tests": FileBytes(b"../evil", LINK)}
    graded = graded_files(a_task(), files)
    assert "tests" not in graded and graded["tests/helpers.py"] == b"GOOD = 1\n"


def test_a_tree_over_another_wins_over_its_parents_and_what_is_below_its_paths() -> None:
    under = {"a": b"file", "b/c/d": b"below", "b/x": b"kept", "ab": b"kept"}
    assert laid_over(under, {"a/b": b"1", "b/c": b"2"}) == {"b/x": b"kept", "ab": b"kept", "a/b": b"1", "b/c": b"2"}


def test_a_restored_tree_has_no_editable_link_in_the_place_of_a_folder() -> None:
    task = Task("t", "code", "made", "", {"d/test_a.py": "a\n"}, (), "commands", metadata={"editable": ["d", "b.py"]})
    assert restore_files(task, {"d": FileBytes(b"e", LINK), "b.py": b"b\n"}) == {"d/test_a.py": b"a\n", "b.py": b"b\n"}


async def test_a_tree_with_a_link_in_the_place_of_a_folder_opens_no_sandbox(pool: SandboxPool) -> None:
    with pytest.raises(UserError, match="tests in the place of its folder"):
        await open_workspace(a_task(), pool, SandboxSpec(), files={"tests": FileBytes(b"e", LINK), "tests/a.py": b"a"})


@pytest.mark.parametrize("snapshot", [False, True])
async def test_folders_files_and_links_take_each_others_place(tmp_path: Path, snapshot: bool) -> None:
    pool = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    metadata: dict[str, object] = {}
    if snapshot:
        box = await open_workspace(a_task(), pool, SandboxSpec())
        await box.snapshot("way-1")  # type: ignore[attr-defined]
        await box.kill()
        metadata = {
            KEY: Environment("way", "1", snapshot="way-1").to_record(),
            OVERLAY: {"changed": [], "special": ["lnk"]},
        }
    tree = {
        "a.py/inner.py": b"a file becomes a folder\n",
        "tests": b"a folder becomes a file\n",
        "pkg": FileBytes(b"other", LINK),
        "other/old.py": FileBytes(b"new\n", EXECUTABLE),
        "lnk/inner.py": b"a link becomes a folder\n",
    }
    box = await open_workspace(a_task(**metadata), pool, SandboxSpec(), files=tree)
    try:
        done = await box.run(["sh", "-c", "cat pkg/old.py && readlink -n pkg && test -d lnk && test ! -L lnk"])
        found = await read_workspace(box, a_task(**metadata))
    finally:
        await box.kill()
        await pool.close()
    assert (done.rc, done.out) == (0, b"new\nother")
    assert found == tree and {path: mode_of(data) for path, data in found.items()} == {
        path: mode_of(data) for path, data in tree.items()
    }


async def test_many_links_are_read_by_few_commands_and_too_many_are_refused(
    pool: SandboxPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await open_workspace(a_task(), pool, SandboxSpec())
    calls = 0
    run = type(box).run

    async def counted(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        return await run(*args, **options)  # type: ignore[arg-type]

    try:
        make = 'i=0; while [ $i -lt 300 ]; do ln -s "t $i\n" "l $i"; i=$((i+1)); done'
        assert (await box.run(["sh", "-c", make])).rc == 0
        monkeypatch.setattr(type(box), "run", counted)
        found = await read_workspace(box, a_task())
        assert calls == 1
        assert found["l 299"] == FileBytes(b"t 299\n", LINK) and found["lnk"] == FileBytes(b"a.py", LINK)
        monkeypatch.setattr(special, "MAX_LINKS", 100)
        with pytest.raises(UserError, match="301 links, at most 100"):
            await read_workspace(box, a_task())
    finally:
        await box.kill()


@pytest.mark.parametrize("readlink", ["", 'readlink() { [ $# = 3 ] && command readlink "$@"; }\n'])
async def test_links_are_read_by_a_readlink_that_reads_only_one(
    pool: SandboxPool, readlink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(special, "READ", readlink + special.READ)
    box = await pool.create(SandboxSpec())
    try:
        await box.run("ln -s a b; ln -s 'c d' e")
        assert await special.targets(box, ["b", "e"]) == {"b": FileBytes(b"a", LINK), "e": FileBytes(b"c d", LINK)}
    finally:
        await box.kill()


def test_plain_files_in_folders_are_there_when_the_sandbox_is_made() -> None:
    task = a_task()
    files = {path: text.encode() for path, text in PROJECT.items()}
    assert special_of(task, {**files, "pkg/new.py": b"x"}).keys() == {"lnk"}
    assert special_of(task, {"pkg": b"x", "a.py/x": b"x", "lnk/x": b"x", "new/x": b"x"}).keys() == {
        "pkg",
        "a.py/x",
        "lnk/x",
    }

"""The walk gives the same files in the same order everywhere, and stays inside the folder."""

import os
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etude.core.sources.folder import FolderSource, walk
from etude.core.sources.project import ProjectRefused


def walked(root, skipped=None):
    return [path.relative_to(root).as_posix() for path in walk(root, skipped)]


def test_what_is_not_the_project_is_left_out_and_counted(tmp_path):
    root = tmp_path / "project"
    for name in (
        ".git/config",
        "node_modules/x/i.js",
        "src/__pycache__/a.pyc",
        "env/pyvenv.cfg",
        "target/CACHEDIR.TAG",
    ):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("x")
    for name in ("src/a.py", "README", ".gitignore", "src/environment.py"):
        (root / name).write_text("x")
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "pipe")
    (root / "a\nb").write_text("x")
    (root / os.fsdecode(b"caf\xe9")).write_text("x")
    skipped = Counter()
    assert walked(root, skipped) == [".gitignore", "README", "src/a.py", "src/environment.py"]
    assert skipped == {
        "hidden folder": 1, "cache folder": 4, "link": 2, "special file": 1, "unprintable name": 2,
    }  # fmt: skip


def test_a_folder_that_no_one_may_read_is_counted(tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    (tmp_path / "z").write_text("x")
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("shut"):
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    skipped = Counter()
    assert walked(tmp_path, skipped) == ["z"]
    assert skipped == {"unreadable folder": 1}


PATHS = st.lists(st.lists(st.sampled_from(["a", "b", "a.b", "B", "é", "a-b"]), min_size=1, max_size=3), max_size=8)


@given(paths=PATHS, seed=st.integers(0, 100))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_order_is_that_of_the_paths_however_the_files_were_made(tmp_path_factory, paths, seed):
    found = []
    for order in range(2):
        root = tmp_path_factory.mktemp("walk")
        shuffled = sorted(paths)
        if order:
            random.Random(seed).shuffle(shuffled)
        for parts in shuffled:
            # Folders end in "_", so that no file is where a folder should be.
            file = root.joinpath(*(part + "_" for part in parts[:-1]), parts[-1])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("x")
        found.append(walked(root))
    assert found[0] == found[1] == sorted(found[0], key=lambda name: name.split("/"))


def test_a_folder_is_one_project_named_after_it(tmp_path):
    (tmp_path / "My_Tool").mkdir()
    (tmp_path / "My_Tool" / "a.py").write_text("x")
    source = FolderSource("mine", tmp_path / "My_Tool")
    (ref,) = source.refs()
    assert (ref.id, ref.kind, ref.project, ref.version) == ("mine/My_Tool", "folder", "my-tool", "")
    with source.open(ref) as project:
        assert walked(project.root) == ["a.py"]
        assert project.origin == ""
    assert (tmp_path / "My_Tool" / "a.py").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NotADirectoryError, match="source 'mine' names .*nowhere.*correct or remove"):
        list(FolderSource("mine", tmp_path / "nowhere").refs())
    (tmp_path / "soon").mkdir()
    source = FolderSource("mine", tmp_path / "soon")
    (ref,) = source.refs()
    (tmp_path / "soon").rmdir()
    with pytest.raises(ProjectRefused, match="is gone"), source.open(ref):
        pass

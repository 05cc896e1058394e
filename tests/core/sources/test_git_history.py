"""A file's versions are those it had along the first parents, oldest first."""

import os

import pytest
from git_lab import commit, git

from etude.core.sources.git_history import history


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "tool"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, "2024-01-01", a="one\n", b="b\n", c="c\n")
    commit(path, "2024-01-02", a="two\n")
    commit(path, "2024-01-03", a="three\n", b="b2\n")
    return path


def texts(path):
    with history(path) as found:
        return {name: [found.read(blob, 100) for blob in ids] for name, ids in found.versions.items()}


def test_versions_come_oldest_first_and_a_file_that_never_changed_has_none(repository):
    assert texts(repository) == {"a.py": [b"one\n", b"two\n", b"three\n"], "b.py": [b"b\n", b"b2\n"]}


def test_a_file_made_again_begins_again(repository):
    (repository / "a.py").unlink()
    commit(repository, "2024-01-04")
    commit(repository, "2024-01-05", a="four\n")
    assert "a.py" not in texts(repository)
    commit(repository, "2024-01-06", a="five\n")
    assert texts(repository)["a.py"] == [b"four\n", b"five\n"]


def test_what_a_merge_brought_is_one_change(repository):
    git(repository, "switch", "-qc", "side")
    commit(repository, "2024-01-04", c="side one\n")
    commit(repository, "2024-01-05", c="side two\n")
    git(repository, "switch", "-q", "main")
    commit(repository, "2024-01-06", a="four\n")
    git(repository, "merge", "-q", "--no-ff", "-m", "x", "side")
    assert texts(repository)["c.py"] == [b"c\n", b"side two\n"]


def test_a_change_of_mode_alone_is_none(repository):
    os.chmod(repository / "a.py", 0o755)
    commit(repository, "2024-01-04")
    assert len(texts(repository)["a.py"]) == 3


def test_a_link_is_no_version(repository):
    (repository / "b.py").unlink()
    (repository / "b.py").symlink_to("a.py")
    commit(repository, "2024-01-04")
    assert "b.py" not in texts(repository)


def test_of_a_folder_inside_a_repository_only_what_lies_in_it(repository):
    (repository / "part").mkdir()
    for day, text in (("2024-01-04", "x\n"), ("2024-01-05", "y\n")):
        (repository / "part" / "deep näme.py").write_text(text)
        commit(repository, day)
    assert texts(repository / "part") == {"part/deep näme.py": [b"x\n", b"y\n"]}


def test_a_large_object_is_not_taken_and_reading_goes_on(repository):
    commit(repository, "2024-01-04", a="x" * 1000)
    with history(repository) as found:
        ids = found.versions["a.py"]
        assert found.read(ids[-1], 100) is None and found.read(ids[0], 100) == b"one\n"
        with pytest.raises(ChildProcessError, match="git fsck"):
            found.read("0" * 40, 100)


def test_no_repository_and_no_commit_have_no_history(tmp_path):
    with history(tmp_path) as found:
        assert found is None
    git(tmp_path, "init", "-q")
    with history(tmp_path) as found:
        assert found is None

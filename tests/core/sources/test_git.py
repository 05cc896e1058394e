"""A commit comes out as it was committed, and nothing that the repository says is run."""

import hashlib

import pytest
from git_lab import commit, git

from etude.core.sources.folder import walk
from etude.core.sources.git import GitSource
from etude.core.sources.project import ProjectRefused, SourceOffline


@pytest.fixture
def repository(tmp_path):
    path = tmp_path / "tool"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    commit(path, "2024-01-10", a="one\n")
    git(path, "tag", "v1.0")
    commit(path, "2024-02-10", a="two\n", b="new\n")
    git(path, "tag", "-a", "-m", "x", "v1.1", day="2024-02-11")
    git(path, "tag", "v1.2-rc1")
    commit(path, "2024-03-10", a="three\n")
    git(path, "tag", "v1.10")
    git(path, "tag", "nightly-2024")
    commit(path, "2024-04-10", a="four\n")
    return path


def source(repository, **options):
    return GitSource("mine", repository, repository.parent / "scratch", **options)


def contents(opened, ref):
    with opened.open(ref) as project:
        assert project.origin == f"git:{ref.location}"
        return {path.relative_to(project.root).as_posix(): path.read_text() for path in walk(project.root)}


def test_head_is_what_is_committed_not_what_lies_there(repository):
    (repository / "a.py").write_text("not committed\n")
    (ref,) = source(repository).refs()
    assert (ref.project, ref.version, ref.released[:10]) == (
        "tool",
        git(repository, "rev-parse", "HEAD").strip(),
        "2024-04-10",
    )
    assert contents(source(repository), ref) == {"a.py": "four\n", "b.py": "new\n"}
    assert list((repository.parent / "scratch").iterdir()) == []


def test_releases_come_newest_first_without_early_ones(repository):
    refs = list(source(repository, releases=10).refs())
    assert [ref.version for ref in refs[1:]] == ["v1.10", "v1.1", "v1.0"]
    assert [contents(source(repository), ref)["a.py"] for ref in refs] == ["four\n", "three\n", "two\n", "one\n"]
    assert [ref.version for ref in source(repository, releases=2).refs()][1:] == ["v1.10"]


def test_before_takes_the_last_commit_and_the_releases_of_earlier_days(repository):
    refs = list(source(repository, before="2024-03-10", releases=9).refs())
    assert [(ref.version, ref.released[:10]) for ref in refs[1:]] == [
        ("v1.0", "2024-01-10")
    ]  # v1.1 is the commit itself
    assert contents(source(repository), refs[0])["a.py"] == "two\n"
    assert contents(source(repository), next(source(repository, before="2024-03-11").refs()))["a.py"] == "three\n"
    (nothing,) = source(repository, before="2020-01-01").refs()
    with pytest.raises(ProjectRefused, match="no commit before 2020-01-01"), source(repository).open(nothing):
        pass


def test_one_series_of_tags_is_taken(repository):
    git(repository, "tag", "-a", "-m", "x", "docs-9.9", "v1.0", day="2024-02-01")
    assert [ref.version for ref in source(repository, releases=10).refs()][1:] == ["v1.10", "v1.1", "v1.0"]


def test_a_bad_date_is_named():
    with pytest.raises(ValueError, match="before='10 May' is not a date; write it as YYYY-MM-DD"):
        GitSource("mine", "x", "y", before="10 May")


def test_nothing_of_the_repository_runs_and_no_file_is_hidden_or_changed(repository):
    trap = repository.parent / "ran"
    command = f"sh -c 'touch {trap}; cat'"
    for setting in (
        "filter.trap.smudge",
        "filter.trap.process",
        "core.fsmonitor",
        "gpg.program",
        "core.pager",
        "tar.tar.command",
    ):
        git(repository, "config", setting, command)
    git(repository, "config", "log.showSignature", "true")
    (repository / ".gitattributes").write_text(
        "*.py filter=trap ident export-subst\nb.py export-ignore\nc.py text eol=crlf\n"
    )
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    (repository / "c.py").write_text("$Id$ $Format:%H$\n")
    # Written without the filter, as from elsewhere.
    blob = git(repository, "hash-object", "-w", "--no-filters", "c.py").strip()
    attributes = git(repository, "hash-object", "-w", "--no-filters", ".gitattributes").strip()
    for name, object in (("c.py", blob), (".gitattributes", attributes)):
        git(repository, "update-index", "--add", "--cacheinfo", f"100644,{object},{name}")
    git(repository, "-c", "core.fsmonitor=false", "commit", "-qm", "x")
    trap.unlink(missing_ok=True)
    ref = next(source(repository, releases=3).refs())
    found = contents(source(repository), ref)
    assert found["c.py"] == "$Id$ $Format:%H$\n"
    assert found["b.py"] == "new\n"
    assert not trap.exists()


def test_links_in_a_commit_are_left_out(repository):
    (repository / "link").symlink_to("/etc/passwd")
    git(repository, "add", "link")
    git(repository, "commit", "-qm", "x")
    (ref,) = source(repository).refs()
    with source(repository).open(ref) as project:
        assert project.skipped == {"link": 1}
        assert not (project.root / "link").is_symlink()


def test_a_bare_repository_does_as_well(repository):
    bare = repository.parent / "bare.git"
    git(repository.parent, "clone", "-q", "--bare", "tool", "bare.git")
    opened = GitSource("mine", bare, repository.parent / "scratch")
    (ref,) = opened.refs()
    assert ref.project == "bare"
    assert contents(opened, ref)["a.py"] == "four\n"


def test_a_damaged_repository_is_refused_with_what_git_says(repository):
    (ref,) = source(repository).refs()
    blob = hashlib.sha1(b"blob 5\0four\n").hexdigest()
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(ProjectRefused, match=f"git archive: .*{blob}"), source(repository).open(ref):
        pass
    assert list((repository.parent / "scratch").iterdir()) == []


def test_a_folder_without_a_repository_is_named(tmp_path):
    with pytest.raises(NotADirectoryError, match="source 'mine' names .* not a git repository"):
        list(GitSource("mine", tmp_path, tmp_path).refs())


def test_without_git_the_source_is_offline(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    with pytest.raises(SourceOffline, match="install it"):
        list(source(repository).refs())


def test_a_repository_without_commits_is_a_refused_project(tmp_path):
    git(tmp_path, "init", "-q")
    opened = GitSource("mine", tmp_path, tmp_path / "scratch")
    (ref,) = opened.refs()
    with pytest.raises(ProjectRefused, match="no commits"), opened.open(ref):
        pass

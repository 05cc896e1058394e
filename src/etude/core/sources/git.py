"""Local git repositories: a commit is a project, exported without running anything that the repository says.

The objects are read through an empty repository next to the user's (git's alternates), so the configuration of neither the
repository nor the user counts: no filters, hooks, signature programs or lazy fetches. In it, attributes that change or leave out
files (export-ignore hides tests) are switched off, so a file is the blob. Submodules are empty folders.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from etude.core.sources.archive import check, refused_ref
from etude.core.sources.project import ProjectRefused, Ref, SourceOffline, SourceProject
from etude.core.sources.release import checked_day, is_before, tag_release
from etude.core.sources.unpack import Unpacked, UnpackLimits, unpack, work_folder

# A listing answers in milliseconds; only a disk that hangs takes this long.
LIST_S = 120
# Highest precedence of all attributes (gitattributes(5), $GIT_DIR/info/attributes): the archive holds exactly what was committed.
ATTRIBUTES = "* -export-ignore -export-subst -filter -ident -text -eol -working-tree-encoding\n"
ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


class _Tag(NamedTuple):
    numbers: tuple[int, ...]
    name: str
    commit: str
    released: str


class GitSource:
    """The repository's HEAD, or its last commit before the day `before`, and as many tagged releases from before that day, newest first,
    as make it `releases` projects in all. Unpacks into `scratch`."""

    def __init__(
        self,
        name: str,
        path: Path,
        scratch: Path,
        *,
        before: str = "",
        releases: int = 1,
        limits: UnpackLimits = UnpackLimits(),
    ) -> None:
        self.name, self.path, self.scratch, self.limits = name, path, scratch, limits
        self.before, self.releases = checked_day(before), releases

    def refs(self) -> Iterator[Ref]:
        """Versions are full commit ids for HEAD, tags for releases. Raises SourceOffline (no git) or NotADirectoryError (no repository)."""
        path = self.path.resolve()
        name = path.name.removesuffix(".git") or self.name
        head = self.head()
        if head is None:
            reason = f"no commit before {self.before}" if self.before else "no commits"
            yield refused_ref(self.name, "git", name, f"{path} has {reason}")
            return
        commit, released = head
        yield Ref(self.name, "git", name, commit, released, commit)
        other_tags = [tag for tag in self._tags() if tag.commit != commit] if self.releases > 1 else []
        for tag in other_tags[: self.releases - 1]:
            yield Ref(self.name, "git", name, tag.name, tag.released, tag.commit)

    @contextmanager
    def open(self, ref: Ref) -> Iterator[SourceProject]:
        """The commit's files. Raises ProjectRefused."""
        check(ref)
        with work_folder(self.scratch) as folder:
            view, root = folder / "view", folder / "root"
            root.mkdir()
            self.view(view)
            unpacked = self._export(view, ref.location, root)
            yield SourceProject(ref, root, f"git:{ref.location}", dict(unpacked.skipped))

    def head(self) -> tuple[str, str] | None:
        """(id, ISO time) of the last commit, before the day if there is one. Raises NotADirectoryError (no repository) or SourceOffline."""
        self._git("rev-parse", "--git-dir")
        if not self._git("rev-parse", "--verify", "--quiet", "HEAD^{commit}", may_fail=True):
            return None
        bound = [f"--before={self.before}T00:00:00Z"] if self.before else []
        # rev-list, for the friendlier commands obey settings that run programs.
        answer = self._git("rev-list", "--max-count=1", "--format=%H %cI", *bound, "HEAD").split()
        return (answer[-2], answer[-1]) if answer else None  # "commit <id>", then the format

    def _tags(self) -> list[_Tag]:
        """Tagged releases, newest first by number. Of several series of tags in one repository ("core-1.2", "ui-0.3"), the one that
        was tagged last."""
        # A tag that is an object of its own has its commit behind "*", a plain one is the commit.
        form = (
            "%(refname:lstrip=2) %(objectname) %(committerdate:iso-strict) %(*objectname) %(*committerdate:iso-strict)"
        )
        found: list[_Tag] = []
        series: str | None = None
        for line in self._git("for-each-ref", "--sort=-creatordate", f"--format={form}", "refs/tags").splitlines():
            tag, *commit = line.split()
            release = tag_release(tag)
            # Two words, once: a tag of a tag, of a tree or of a file has no date in either place.
            if release is None or len(commit) not in (2, 3) or not is_before(commit[-1], self.before):
                continue
            series = release[0] if series is None else series
            if release[0] == series:
                found.append(_Tag(release[1], tag, commit[-2], commit[-1]))
        return sorted(found, reverse=True)

    def prefix(self) -> str:
        """Where in its repository the path is: "" at the top, else `folder/`."""
        return self._git("rev-parse", "--show-prefix")

    def view(self, view: Path) -> None:
        """An empty repository that borrows the objects of the user's."""
        form = self._git("rev-parse", "--show-object-format")
        objects = self._git("rev-parse", "--path-format=absolute", "--git-path", "objects")
        run_git("init", "--quiet", "--bare", f"--object-format={form}", "--template=", str(view))
        (view / "objects" / "info").mkdir(exist_ok=True)
        (view / "objects" / "info" / "alternates").write_text(objects + "\n")
        (view / "info").mkdir(exist_ok=True)
        (view / "info" / "attributes").write_text(ATTRIBUTES)

    def _export(self, view: Path, commit: str, root: Path) -> Unpacked:
        """The tar goes from git to the unpacker without lying on disk."""
        command = ["git", f"--git-dir={view}", "archive", "--format=tar", commit]
        with (
            tempfile.TemporaryFile() as errors,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=git_environment()) as git,
        ):
            assert git.stdout is not None
            try:
                unpacked = unpack(git.stdout, root, self.limits)
            except ProjectRefused as refusal:
                git.stdout.close()  # git ends at its next write
                git.wait()
                # If it was git that failed, the unpacker only saw an end, and what git says is the reason.
                raise ProjectRefused(
                    f"git archive: {_error_text(errors)}" if git.returncode > 0 else str(refusal)
                ) from None
            if git.wait() != 0:
                raise ProjectRefused(f"git archive: {_error_text(errors)}")
            return unpacked

    def _git(self, *arguments: str, may_fail: bool = False) -> str:
        """What a listing in the user's repository prints, without the last newline."""
        try:
            # Whose repository it is doesn't matter: nothing of it is run, see above.
            return run_git("-c", "safe.directory=*", "-C", str(self.path), *arguments)
        except ChildProcessError as error:
            if may_fail:
                return ""
            raise NotADirectoryError(f"source {self.name!r} names {self.path}, which git can't read: {error}") from None


def run_git(*arguments: str, stdin: str = "") -> str:
    """What git prints, without the last newline. Raises ChildProcessError with what it said, or SourceOffline where there is no git."""
    try:
        done = subprocess.run(
            ["git", *arguments], input=stdin.encode(), capture_output=True, env=git_environment(), timeout=LIST_S
        )
    except FileNotFoundError:
        raise SourceOffline("git is not installed; install it, or leave git sources out of the recipe") from None
    if done.returncode != 0:
        raise ChildProcessError(done.stderr.decode(errors="replace").strip() or f"status {done.returncode}")
    return done.stdout.decode(errors="replace").rstrip("\n")


def _error_text(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read(500).decode(errors="replace").strip()


def git_environment() -> dict[str, str]:
    """Nothing of the user's own configuration."""
    return {"PATH": os.environ.get("PATH", os.defpath), **ENVIRONMENT}

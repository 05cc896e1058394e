"""A project's tree as it was released: fetched by the corpus' sources, read into memory, nothing of it run.

Caches, builds and histories that a release carries by accident stay out (`tasks.leftovers`): they are no part of the project, and
may hold what a task takes away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from etude.agent.git_links.git import GitError, git
from etude.core.sources.debian import DebianSource
from etude.core.sources.fetch import Fetcher
from etude.core.sources.npm import NpmSource
from etude.core.sources.project import ProjectRefused, Ref
from etude.core.sources.sdist import SdistSource
from etude.tasks.content import PLAIN, file_text, files_below, is_text, mode_of, read_file, texts_of
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.leftovers import leftovers
from etude.tasks.tree import TreeTooLarge, tree

MOST_RELEASES = 10_000  # all there are
MAX_FILE_BYTES = 4 << 20
MAX_TREE_BYTES = 64 << 20


@dataclass(frozen=True)
class Fetched:
    """`files`: every file, with its mode, and links (`tasks.content`). `origin`: the artefact by content; `released`: the day, or empty;
    `described`: of a commit, the nearest tag before it with a number in it, or empty."""

    wanted: CatalogueProject
    files: Mapping[str, bytes]
    origin: str
    released: str = ""
    described: str = ""

    @property
    def digest(self) -> str:
        """Of names and contents, whatever archive they came in."""
        return files_digest(self.files)

    def tree(self) -> dict[str, str]:
        """The files as a task holds them."""
        return {path: file_text(data) for path, data in self.files.items()}

    def texts(self) -> dict[str, str]:
        """The files that are UTF-8 texts, for readers of text."""
        return {path: str(text) for path, text in texts_of(self.tree()).items()}


def files_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 over names, contents and modes."""
    whole = hashlib.sha256()
    for path, data in sorted(files.items()):
        kind = "" if mode_of(data) == PLAIN else f" {mode_of(data)}"
        whole.update(f"{len(path)} {path} {hashlib.sha256(data).hexdigest()}{kind}\n".encode())
    return whole.hexdigest()


def fetch(wanted: CatalogueProject, cache: Path) -> Fetched:
    """Raises Discarded with the reason, SourceOffline if there is no answer."""
    if wanted.kind == "git":
        return _of_git(wanted)
    if wanted.kind == "folder":
        return Fetched(wanted, _read(Path(wanted.path), wanted), f"folder {wanted.name}")
    fetcher = Fetcher(cache / "sources")
    try:
        with _opened(wanted, fetcher) as (ref, root, origin):
            return Fetched(wanted, _read(root, wanted), f"{wanted.kind} {origin}", ref.released[:10])
    except ProjectRefused as error:
        raise ProjectDiscarded(f"it can't be fetched: {error}") from error
    finally:
        fetcher.close()


def versions(wanted: CatalogueProject, cache: Path) -> list[str]:
    """Of a project in a registry, the newest first. Raises SourceOffline."""
    fetcher = Fetcher(cache / "sources")
    try:
        return [ref.version for ref in _source(wanted, fetcher).refs()]
    finally:
        fetcher.close()


def patches(wanted: CatalogueProject, cache: Path) -> dict[str, str]:
    """A Debian package's `debian/patches` by name, the series among them; its tree as tasks see it has none of them. Raises Discarded,
    SourceOffline."""
    fetcher = Fetcher(cache / "sources")
    try:
        with _opened(wanted, fetcher) as (_, root, _):
            folder = root / "debian" / "patches"
            plain = [place for place in sorted(folder.rglob("*")) if not place.is_symlink() and place.is_file()]
            return {place.relative_to(folder).as_posix(): place.read_text("utf-8", "replace") for place in plain}
    except ProjectRefused as error:
        raise ProjectDiscarded(f"its patches can't be fetched: {error}") from error
    finally:
        fetcher.close()


@contextmanager
def _opened(wanted: CatalogueProject, fetcher: Fetcher) -> Iterator[tuple[Ref, Path, str]]:
    source = _source(wanted, fetcher)
    listed = list(source.refs())
    refs = [ref for ref in listed if ref.version == wanted.version]
    if not refs:
        near = ", ".join(ref.version for ref in listed[:5] if ref.version)
        raise ProjectDiscarded(
            f"{wanted.in_registry} has no version {wanted.version!r} there; the newest are {near or 'none at all'}"
        )
    with source.open(refs[0]) as project:
        yield refs[0], project.root, f"{wanted.in_registry} {wanted.version} {project.origin}"


def _source(wanted: CatalogueProject, fetcher: Fetcher) -> SdistSource | NpmSource | DebianSource:
    packages = [wanted.in_registry]
    if wanted.kind == "npm":
        return NpmSource("projects", packages, fetcher, releases=MOST_RELEASES)
    if wanted.kind == "debian":
        return DebianSource("projects", packages, fetcher)
    return SdistSource("projects", packages, fetcher, releases=MOST_RELEASES)


def _of_git(wanted: CatalogueProject) -> Fetched:
    try:
        found = tree(Path(wanted.path), wanted.version)
    except (GitError, TreeTooLarge) as error:
        raise ProjectDiscarded(f"its tree can't be read: {error}") from error
    files = {path: text.encode() for path, text in found.files.items()}
    return Fetched(wanted, files, f"git {wanted.version}", described=_described(wanted))


def _described(wanted: CatalogueProject) -> str:
    words = ("describe", "--tags", "--abbrev=0", "--match", "*[0-9]*", wanted.version)
    try:
        return git(Path(wanted.path), *words).decode("utf-8", "replace").strip()
    except GitError:
        return ""  # no tag leads to it


def _read(root: Path, wanted: CatalogueProject) -> dict[str, bytes]:
    if not root.is_dir():
        raise ProjectDiscarded(f"{root} is no folder")
    files: dict[str, bytes] = {}
    total = 0
    places = {path: root / path for path in files_below(root)}
    hidden = leftovers(places)
    for path, place in places.items():
        if path in hidden or not is_text(path):  # a name that is no UTF-8, as `tasks.tree` leaves it out
            continue
        if (size := place.lstat().st_size) > MAX_FILE_BYTES:
            continue
        total += size
        if total > MAX_TREE_BYTES:
            raise ProjectDiscarded(
                f"{wanted.id} has more than {MAX_TREE_BYTES >> 20} MiB of files, a sandbox' tree holds no more"
            )
        files[path] = read_file(place)
    if not files:
        raise ProjectDiscarded(f"{wanted.id} holds no file")
    return files

"""The licences of one project's files, each with the evidence for it. In this order, the first that speaks:
1. the file's own head (an SPDX tag, a licence text, a notice) — also when it states terms that have no identifier: then the licence is unknown;
2. `debian/copyright` (or `.reuse/dep5`), machine-readable;
3. a licence file in a folder below the root that encloses the file: somebody set that folder apart;
4. the package's metadata and the licence files of the root, weighed against each other: where they contradict, the text
   holds and the conflict is kept.

The textbook (scanners of source code) gives a repository one licence; metadata alone is wrong or vague in about one package of ten."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from etude.core.licence import metadata
from etude.core.licence.dep5 import Dep5, parse_dep5
from etude.core.licence.expression import symbols
from etude.core.licence.header import comments, of_comments
from etude.core.licence.licence import Licence
from etude.core.licence.texts import MOST_BYTES, Texts, licence_files, of_files
from etude.core.licence.weighing import LicenceVerdict, weigh

# A project has some kinds of heads and many files; a thousand of 6 kB is 6 MB at most.
HEADS_KEPT = 1_000
DEP5_FILES = ("debian/copyright", ".reuse/dep5")
# Where the REUSE convention keeps texts; asked only if the root has none.
TEXT_FOLDERS = ("LICENSES", "licenses", "LICENSE", "license")


@dataclass(frozen=True)
class LicenceConflict:
    """Metadata that a licence text contradicts; `text` is the licence that counts ("" where its terms have no identifier)."""

    metadata: str
    text: str


@dataclass
class LicenceBook:
    """`project` is the licence of files without evidence of their own; `folders` the licence texts below the root."""

    project: LicenceVerdict
    dep5: Dep5 | None = None
    folders: dict[str, Texts] = field(default_factory=dict)
    conflicts: list[LicenceConflict] = field(default_factory=list)
    _heads: OrderedDict[str, str | None] = field(default_factory=OrderedDict, repr=False)

    @classmethod
    def of_project(cls, root: Path, kind: str) -> LicenceBook:
        """`kind` is the source's: "folder", "git", "sdist", "npm" or "debian". Damaged or missing evidence is
        no evidence; nothing is raised for it."""
        names = licence_files(root)
        dep5 = next((parsed for name in DEP5_FILES if (parsed := parse_dep5(_read(root / name)))), None)
        claimed = metadata.of_project(root, kind)
        expected = symbols(claimed.expression)
        at_root = _texts(root, "", names, expected)
        if not at_root.expression and not at_root.foreign:
            installed = metadata.dist_info(root)
            inside = (installed.name, f"{installed.name}/licenses") if installed else ()
            elsewhere = (_texts(root, folder, names, expected) for folder in (*TEXT_FOLDERS, *inside))
            at_root = next((texts for texts in elsewhere if texts.expression or texts.foreign), at_root)
        if kind == "debian" and dep5 is None and not at_root.expression:
            at_root = of_files({"copyright": _read(root / "debian/copyright")})
        verdict = weigh(claimed, at_root)
        skipped = ("", "debian", *TEXT_FOLDERS)
        below = {folder: _texts(root, folder, names) for folder in names if folder not in skipped}
        # docs/license.md that only includes the root's file sets nothing apart.
        folders = {folder: texts for folder, texts in below.items() if texts.expression or texts.foreign}
        conflicts = [LicenceConflict(claimed.expression, verdict.expression)] if verdict.conflict else []
        return cls(verdict, dep5, folders, conflicts)

    def of(self, path: str, head: str) -> Licence:
        """The licence of a file; `path` is inside the project with "/", `head` its first characters (6,000 suffice)."""
        own = self._of_head(head)
        if own is not None:
            return Licence(own, "file")
        if self.dep5 is not None and (listed := self.dep5.of(path)) is not None:
            return Licence(listed, "dep5")
        if self.folders:
            for folder in PurePosixPath(path).parents:
                if texts := self.folders.get(str(folder)):
                    return Licence(texts.expression, "text")
        return Licence(self.project.expression, self.project.evidence)

    def _of_head(self, head: str) -> str | None:
        text = comments(head)
        if text not in self._heads:
            self._heads[text] = of_comments(text)
            if len(self._heads) > HEADS_KEPT:
                self._heads.popitem(last=False)
        return self._heads[text]


def _texts(root: Path, folder: str, names: dict[str, list[str]], expected: frozenset[str] = frozenset()) -> Texts:
    return of_files({name: _read(root / folder / name) for name in names.get(folder, [])}, expected)


def _read(path: Path) -> str:
    """The beginning of a text file; "" if there is none, or a link in its place."""
    try:
        if path.is_symlink() or not path.is_file():
            return ""
        with path.open("rb") as file:
            data = file.read(MOST_BYTES)
    except OSError:
        return ""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")  # names of persons at worst, no word of a licence

"""The distributions installed with this interpreter: real projects with their licences, on every machine, without a network."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distributions
from pathlib import Path

from etude.core.sources.archive import check, refused_ref
from etude.core.sources.placing import place
from etude.core.sources.project import ProjectRefused, Ref, SourceProject

# What PEP 639 and the wheel format's own default call licence files.
LICENCE_FILE = re.compile(r"(?:AUTHORS|COPYING|LICEN[CS]E|NOTICE)", re.IGNORECASE)


class InstalledSource:
    """Each distribution is one project: the files its RECORD lists, linked into a folder of their own while it is read.

    Laid out as its source distribution would be: the metadata is PKG-INFO, the licence texts are next to it, the installer's own notes are
    left out, and so are files outside site-packages (scripts, data files of the prefix). `packages` restricts it to these names.
    """

    def __init__(self, name: str, packages: list[str], scratch: Path) -> None:
        self.name, self.packages, self.scratch = name, {canonical(package) for package in packages}, scratch

    def refs(self) -> Iterator[Ref]:
        """In the order of names; the first on the path where one is installed twice."""
        found: dict[str, Distribution] = {}
        for distribution in distributions():
            found.setdefault(canonical(distribution.name), distribution)
        for name in sorted(self.packages or found):
            distribution = found.get(name)
            if distribution is None:
                yield refused_ref(self.name, "installed", name, "not installed here")
            elif distribution.files is not None and not _editable(distribution):
                yield Ref(self.name, "installed", name, distribution.version, "", str(distribution.locate_file("")))

    @contextmanager
    def open(self, ref: Ref) -> Iterator[SourceProject]:
        """Raises ProjectRefused if it isn't installed, or not any more."""
        check(ref)
        root = Path(ref.location)
        # Asked by name: reading the metadata of everything installed, for each project, took a fifth of a build's time.
        own = [d for d in distributions(name=ref.name, path=[ref.location]) if d.version == ref.version]
        if not own:
            raise ProjectRefused(f"{ref.name} {ref.version} is not installed in {root} any more")
        self.scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix="installed-") as folder:
            skipped: Counter[str] = Counter()
            digest = hashlib.sha256()
            for file in own[0].files or ():
                digest.update(f"{file} {file.hash.value if file.hash else ''}\n".encode())
                _take(root, file.as_posix(), Path(folder), skipped)
            yield SourceProject(ref, Path(folder), f"sha256:{digest.hexdigest()}", dict(skipped))


def canonical(name: str) -> str:
    """As PEP 503 compares names."""
    return name.lower().replace("_", "-").replace(".", "-")


def _editable(distribution: Distribution) -> bool:
    return '"editable": true' in (distribution.read_text("direct_url.json") or "")


def _take(root: Path, name: str, folder: Path, skipped: Counter[str]) -> None:
    source, target = root / name, _place(name)
    if ".." in Path(name).parts or Path(name).is_absolute():
        skipped["outside site-packages"] += 1
    elif "__pycache__" in Path(name).parts:
        skipped["cache folder"] += 1
    elif target is None:
        skipped["package metadata"] += 1
    elif source.is_symlink() or not source.is_file():
        skipped["link" if source.is_symlink() else "missing"] += 1
    else:
        place(source, folder / target)


def _place(name: str) -> str | None:
    """Where a file of an installation stood in the source distribution; None for what installing added."""
    first, _, rest = name.partition("/")
    if not first.endswith(".dist-info"):
        return name
    if rest == "METADATA":
        return "PKG-INFO"
    rest = rest.removeprefix("licenses/")  # PEP 639
    return rest if LICENCE_FILE.match(rest.rpartition("/")[2]) else None

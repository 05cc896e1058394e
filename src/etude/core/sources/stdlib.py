"""The standard library of this interpreter: each of its top-level modules and packages is a project, so that whole ones are held out.

What is no code to learn from is refused with the reason. The library has one licence and no metadata: PSF-2.0 is read out of the
LICENSE that is next to the modules; installations without it (some distributions move it) are CPython all the same, whose
licence has been this one since 2.1.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from etude.core.licence.expression import symbols
from etude.core.licence.texts import of_files
from etude.core.sources.archive import check, refused_ref
from etude.core.sources.folder import walk
from etude.core.sources.placing import place
from etude.core.sources.project import ProjectRefused, Ref, SourceProject

LICENCE = "PSF-2.0"
LICENCE_FILES = ("LICENSE.txt", "LICENSE")  # where `site` looks for the text of license()
LEFT_OUT = {
    "test": "tests of the interpreter",
    "idlelib": "an application",
    "turtledemo": "demonstrations",
    "lib2to3": "a superseded parser with its grammar",
    "encodings": "tables",
    "pydoc_data": "data",
}
TEST_FOLDERS = frozenset(("test", "tests", "idle_test"))
TESTS = "tests of the standard library"


class StdlibSource:
    """`packages` restricts it to these modules."""

    def __init__(self, name: str, packages: list[str], scratch: Path) -> None:
        self.name, self.packages, self.scratch = name, frozenset(packages), scratch
        self.root = Path(sysconfig.get_paths()["stdlib"])

    def refs(self) -> Iterator[Ref]:
        """In the order of names. Raises ValueError for a name that is no module in Python here."""
        found = {
            path.stem if path.suffix == ".py" else path.name: path for path in self.root.iterdir() if _module(path)
        }
        if missing := sorted(self.packages - found.keys()):
            raise ValueError(
                f"source {self.name!r} names {', '.join(missing)}: no module of the standard library in {self.root}; "
                "correct or remove it"
            )
        for name in sorted(self.packages or found):
            if reason := LEFT_OUT.get(name):
                yield refused_ref(self.name, "stdlib", name, reason)
            else:
                yield Ref(self.name, "stdlib", name, platform.python_version(), "", str(found[name]))

    @contextmanager
    def open(self, ref: Ref) -> Iterator[SourceProject]:
        """Raises ProjectRefused for what is left out, or gone."""
        check(ref)
        path = Path(ref.location)
        if not path.exists():
            raise ProjectRefused(f"{path} is gone")
        self.scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.scratch, prefix="stdlib-") as folder:
            root, skipped, digest = Path(folder), Counter[str](), hashlib.sha256()
            (root / "PKG-INFO").write_text(f"Name: {ref.name}\nLicense-Expression: {licence(self.root)}\n")
            for file in sorted(walk(path, skipped)) if path.is_dir() else [path]:
                name = file.relative_to(self.root).as_posix()
                if not TEST_FOLDERS.isdisjoint(name.split("/")):
                    skipped[TESTS] += 1
                    continue
                place(file, root / name)
                digest.update(f"{name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
            yield SourceProject(ref, root, f"sha256:{digest.hexdigest()}", dict(skipped))


def _module(path: Path) -> bool:
    """Whether this entry of the folder is a module, or one of the things that are recognised by name."""
    name = path.stem if path.suffix == ".py" else path.name
    return name in LEFT_OUT or name in sys.stdlib_module_names and (path.is_dir() or path.suffix == ".py")


@lru_cache
def licence(root: Path) -> str:
    """SPDX expression of the library in `root`; "" where nothing says it."""
    text = next((path for name in LICENCE_FILES if (path := root / name).is_file()), None)
    if text is None:
        return LICENCE if platform.python_implementation() == "CPython" else ""
    found = of_files({text.name: text.read_text(encoding="utf-8", errors="replace")}).expression
    # The text tells the history too (Python-2.0), and what the documentation's examples are under (0BSD).
    return LICENCE if LICENCE in symbols(found) else found

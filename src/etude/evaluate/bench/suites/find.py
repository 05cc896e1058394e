"""Suites by name: a folder, or a name under `suites/`. An unknown one is answered with those that are near."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from etude.core.spelling import similar
from etude.evaluate.bench.errors import UnknownSuite
from etude.evaluate.bench.suites.folder import FolderSuite
from etude.evaluate.bench.suites.manifest import NAME
from etude.evaluate.bench.targeted.cases import behaviours

BUILT_IN = ("exercises", "real")
SHELF = Path("suites")


def built_in() -> list[str]:
    """The names of the suites that come with the program."""
    return [*BUILT_IN, *(f"targeted-{behaviour}" for behaviour in behaviours())]


def suite_folders(shelf: Path = SHELF) -> list[Path]:
    """The suites on the shelf."""
    return sorted(path.parent for path in shelf.glob(f"*/{NAME}")) if shelf.is_dir() else []


def find_folder(named: str, shelf: Path = SHELF) -> Path:
    """The folder of a suite. Raises UnknownSuite."""
    for folder in (Path(named), shelf / named):
        if (folder / NAME).is_file():
            return folder
    raise UnknownSuite(_unknown(named, [folder.name for folder in suite_folders(shelf)], shelf))


def read_suite(named: str, shelf: Path = SHELF, cache: Path | None = None, plugins: Sequence[str] = ()) -> FolderSuite:
    """A suite in a folder; `plugins` are graders by import path that its tasks may name. Raises UnknownSuite, SuiteError, PluginError."""
    return FolderSuite(find_folder(named, shelf), cache, plugins)


def _unknown(named: str, there: Iterable[str], shelf: Path) -> str:
    known = [*built_in(), *there]
    near = similar(named, known, 3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(known)}"
    return f"there is no suite {named!r}: {hint} A suite is a folder with {NAME}, named by its path or by its name under {shelf}/"

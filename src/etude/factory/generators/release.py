"""Generator `release`: from one release to the next: the changelog's new entry is the request, the later sources are the reference.

The installed project is the later release; the one before it comes from the package index by its source distribution, checked by its
checksum. A release whose archive has no tests or no changelog is no task, and neither is one that changes half the project.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etude.corpus.sources.fetch import Fetcher
from etude.corpus.sources.folder import walk
from etude.corpus.sources.project import ProjectRefused, SourceOffline
from etude.corpus.sources.sdist import SdistSource
from etude.factory.generators.generator import Bench, Installed
from etude.factory.generators.states import States, proved
from etude.factory.prompts.facts import Facts
from etude.sandbox.errors import InfraError
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Task
from etude.tasks.validation.proof import LeftOut
from etude.tasks.validation.workshop import Candidate

NAME = "release"
MAX_BYTES = 1 << 20
RELEASES = 60  # of the index' list, to find the one before
CHANGELOG = re.compile(r"(^|/)(CHANGES|CHANGELOG|HISTORY|NEWS|RELEASES?|release[-_]notes)[^/]*$", re.IGNORECASE)
_POINT = re.compile(r"^\s*[-*+]\s+")

Earlier = Callable[[Installed], tuple[str, Mapping[str, str]]]


def earlier_sdist(project: Installed) -> tuple[str, Mapping[str, str]]:
    """Version and texts of the release before. Raises LeftOut, InfraError."""
    name, version = project.environment.project, project.environment.version
    fetcher = Fetcher(default_cache() / "releases")
    source = SdistSource(NAME, [name], fetcher, releases=RELEASES)
    try:
        refs = list(source.refs())
        at = next((number for number, ref in enumerate(refs) if ref.version == version), len(refs))
        if at + 1 >= len(refs):
            raise LeftOut(f"the index has no release of {name} before {version}")
        with source.open(refs[at + 1]) as found:
            return refs[at + 1].version, _texts(found.root)
    except ProjectRefused as error:
        raise LeftOut(f"the release before {version} can't be taken: {error}") from error
    except SourceOffline as error:
        raise InfraError(f"the release before {name} {version} can't be fetched: {error}") from error
    finally:
        fetcher.close()


@dataclass
class Releases:
    earlier: Earlier = earlier_sdist
    name: str = NAME
    category: str = "features"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: Installed, bench: Bench, seed: int) -> Iterator[Candidate]:
        if project.origin.startswith("sdist"):
            task_id = f"features/{project.name}/{NAME}"
            yield Candidate(task_id, partial(build, project, bench, self.earlier, task_id))


def entry(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The points that the later changelog has more. Raises LeftOut."""
    path = next((path for path in sorted(after, key=lambda p: (p.count("/"), p)) if CHANGELOG.search(path)), "")
    if not path:
        raise LeftOut("it has no changelog: nobody could say what was wanted")
    rows = difflib.ndiff(before.get(path, "").splitlines(), after[path].splitlines())
    points: list[str] = []
    for row in (row[2:] for row in rows if row.startswith("+ ")):
        if _POINT.match(row):
            points.append(_POINT.sub("", row).strip())
        elif points and row.startswith((" ", "\t")) and row.strip():
            points[-1] += f" {row.strip()}"
    if not points:
        raise LeftOut(f"{path} has no new point in the later release")
    return points


def facts_of(points: list[str]) -> Facts:
    return Facts(headline=points[0], notes=tuple(points[1:]))


async def build(project: Installed, bench: Bench, earlier: Earlier, task_id: str) -> Task:
    """Raises LeftOut, InfraError."""
    version, before = earlier(project)
    facts = facts_of(entry(before, project.files))
    told = {"earlier": version}
    states = States(task_id, Releases.category, NAME, facts, before, project.files, ("release",), told)
    return await proved(project, bench, states)


def _texts(root: Path) -> dict[str, str]:
    """UTF-8 files of a release; what is none a task can't hold."""
    found: dict[str, str] = {}
    for place in sorted(walk(root)):
        if place.stat().st_size <= MAX_BYTES:
            try:
                found[place.relative_to(root).as_posix()] = place.read_bytes().decode()
            except UnicodeDecodeError:
                continue  # a binary: a task can't hold it, and neither state has it
    return found

"""Generator `release`: from one release to the next: the changelog's new points are the request, the later sources are the reference.

The last `PAIRS` neighbours up to the installed release are tried, in its environment; releases come from the package index by their source
distributions, checked by checksum. Documents and pipelines stay as they were: of a release, only what the tests can show is asked for. A
release whose archive has no tests or no changelog is no task, and neither is one that changes half the project.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from etude.corpus.sources.project import SourceOffline
from etude.factory.generators.changelog import CHANGELOG, wanted
from etude.factory.generators.deletion.leftovers import PROSE
from etude.factory.generators.generator import Bench, Installed
from etude.factory.generators.states import States, proved
from etude.factory.making.order import Discarded
from etude.factory.prompts.checks import words
from etude.factory.prompts.facts import Facts
from etude.factory.sources.fetched import fetch, versions
from etude.factory.sources.projects import Wanted
from etude.sandbox.errors import InfraError
from etude.tasks.protected import is_protected, is_test
from etude.tasks.recorded.asked import category
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Task
from etude.tasks.validation.proof import LeftOut
from etude.tasks.validation.workshop import Candidate

NAME = "release"
PAIRS = 4
_ASIDE = re.compile(r"^(docs?|examples?|benchmarks?|scripts?|\.[^/]+)/|(^|/)PKG-INFO$|\.egg-info/|\.(po|pot|mo)$")


@dataclass(frozen=True)
class Release:
    version: str
    files: Mapping[str, str]


# The release that lies so many before the installed one. Raises LeftOut where there is none, InfraError.
Earlier = Callable[[Installed, int], Release]


def earlier_sdist(project: Installed, back: int) -> Release:
    """By the package index. Raises LeftOut, InfraError."""
    name, version = project.origin.split()[1], project.environment.version
    cache = default_cache()
    try:
        listed = versions(Wanted(name, "sdist", version), cache)
        at = listed.index(version) + back if version in listed else len(listed)
        if at >= len(listed):
            raise LeftOut(f"the index has no release {back} before {name} {version}")
        return Release(listed[at], fetch(Wanted(name, "sdist", listed[at]), cache).texts())
    except Discarded as error:
        raise LeftOut(f"a release before {version} can't be taken: {error}") from error
    except SourceOffline as error:
        raise InfraError(f"a release before {name} {version} can't be fetched: {error}") from error


@dataclass
class Releases:
    earlier: Earlier = earlier_sdist
    name: str = NAME
    category: str = "features"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: Installed, bench: Bench, seed: int) -> Iterator[Candidate]:
        if project.origin.startswith("sdist "):
            for back in range(PAIRS):
                task_id = f"features/{project.name}/{NAME}/{back}-back"
                yield Candidate(task_id, partial(build, project, bench, self.earlier, back, task_id))


async def build(project: Installed, bench: Bench, earlier: Earlier, back: int, task_id: str) -> Task:
    """Raises LeftOut, InfraError."""
    return await proved(project, bench, states(project, earlier, back, task_id))


def states(project: Installed, earlier: Earlier, back: int, task_id: str) -> States:
    """Raises LeftOut, InfraError."""
    later = earlier(project, back) if back else Release(project.environment.version, project.files)
    before = earlier(project, back + 1)
    if not any(is_test(path) and before.files.get(path) != text for path, text in later.files.items()):
        raise LeftOut(f"{before.version} passes the tests of {later.version}: none of them changed")
    points = wanted(before.files, later.files)
    headline, _, rest = points[0].partition(". ")
    facts = Facts(headline=headline, expected=rest, notes=tuple(points[1:]))
    # A short prompt that leaves out a point would ask for less than the tests do.
    told = {"earlier": before.version, "later": later.version, "must_say": sorted(words(" ".join(points)))}
    about = category(" ".join(points))
    return States(task_id, about, NAME, facts, before.files, worked_on(before, later), ("release",), told)


def worked_on(before: Release, later: Release) -> dict[str, str]:
    """The later release with the earlier one's documents and pipelines."""
    kept = {path: text for path, text in later.files.items() if not _aside(path)}
    return kept | {path: text for path, text in before.files.items() if _aside(path)}


def _aside(path: str) -> bool:
    told = _ASIDE.search(path) or PROSE.search(path) or CHANGELOG.search(path)
    return bool(told) and not is_protected(path)

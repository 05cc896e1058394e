"""Generator `release`: from one release to the next: the changelog's new points are the request, the later sources are the reference.

The last `PAIRS` neighbours up to the installed release are tried, in its environment; releases come from the package index (source
distributions, npm's archives), checked by checksum. Documents and pipelines stay as they were: of a release, only what the tests can show
is asked for. A release whose archive has no tests or no changelog is no task, and neither is one that changes half the project.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from etude.core.sources.project import SourceOffline
from etude.sandbox.errors import InfraError
from etude.tasks.content import texts_of
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.changelog import CHANGELOG, requested_changes
from etude.tasks.generate.generators.deletion.generator import PROSE
from etude.tasks.generate.generators.states import States, prove_states
from etude.tasks.generate.prompts.checks import words
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import fetch, versions
from etude.tasks.generate.sources.projects import CatalogueProject, Kind
from etude.tasks.protected import is_protected, is_test
from etude.tasks.recorded.task_plans import category
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

NAME = "release"
KINDS: dict[str, Kind] = {"sdist": "sdist", "npm": "npm"}
PAIRS = 4
_ASIDE = re.compile(
    r"^(docs?|examples?|benchmarks?|scripts?|\.[^/]+)/|(^|/)PKG-INFO$|\.egg-info/|\.(po|pot|mo)$"
    r"|(^|/)(LICEN[CS]E|COPYING|NOTICE|AUTHORS|CONTRIBUTORS)[^/]*$|^\.[^/]+$|^package-support\.json$"
)


@dataclass(frozen=True)
class ProjectRelease:
    version: str
    files: Mapping[str, str]


# The release `back` versions before the installed one. Raises CandidateRejected where there is none, InfraError.
Earlier = Callable[[InstalledProject, int], ProjectRelease]


def earlier_release(project: InstalledProject, back: int) -> ProjectRelease:
    """By the package index. Raises CandidateRejected, InfraError."""
    kind, name = project.origin.split()[:2]
    version, cache = project.environment.version, default_cache()
    wanted = CatalogueProject(name, KINDS[kind], version, project.environment.language)
    try:
        listed = before(versions(wanted, cache), version)
        if back > len(listed):
            raise CandidateRejected(f"the index has no release {back} before {name} {version}")
        return ProjectRelease(listed[back - 1], fetch(replace(wanted, version=listed[back - 1]), cache).tree())
    except ProjectDiscarded as error:
        raise CandidateRejected(f"a release before {version} can't be taken: {error}") from error
    except SourceOffline as error:
        raise InfraError(f"a release before {name} {version} can't be fetched: {error}") from error


def before(listed: Iterable[str], version: str) -> list[str]:
    """The releases below it, by their numbers, the nearest first: an older line that got a mend later is not its neighbour's successor."""
    plain = {found: numbers for found in listed if (numbers := _numbers(found)) is not None}
    limit = _numbers(version)
    if limit is None:
        raise CandidateRejected(f"{version} is no plain release, which has numbers alone")
    return sorted((found for found in plain if plain[found] < limit), key=lambda found: plain[found], reverse=True)


def _numbers(version: str) -> tuple[int, ...] | None:
    return tuple(map(int, version.split("."))) if re.fullmatch(r"\d+(\.\d+)*", version) else None


@dataclass
class Releases:
    earlier: Earlier = earlier_release
    name: str = NAME
    category: str = "features"
    languages: tuple[str, ...] = ("python", "javascript", "typescript")

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        if project.origin.partition(" ")[0] in KINDS:
            for back in range(PAIRS):
                task_id = f"features/{project.name}/{NAME}/{back}-back"
                yield Candidate(task_id, partial(build, project, bench, self.earlier, back, task_id))


async def build(project: InstalledProject, bench: ProofContext, earlier: Earlier, back: int, task_id: str) -> Task:
    """Raises CandidateRejected, InfraError."""
    return await prove_states(project, bench, states(project, earlier, back, task_id))


def states(project: InstalledProject, earlier: Earlier, back: int, task_id: str) -> States:
    """Raises CandidateRejected, InfraError."""
    later = earlier(project, back) if back else ProjectRelease(project.environment.version, project.files)
    before = earlier(project, back + 1)
    if not any(is_test(path) and before.files.get(path) != text for path, text in later.files.items()):
        raise CandidateRejected(f"{before.version} passes the tests of {later.version}: none of them changed")
    points = requested_changes(texts_of(before.files), texts_of(later.files))
    headline, _, rest = points[0].partition(". ")
    facts = Facts(headline=headline, expected=rest, notes=tuple(points[1:]))
    # A short prompt that leaves out a point would ask for less than the tests do.
    details = {"earlier": before.version, "later": later.version, "must_say": sorted(words(" ".join(points)))}
    about = category(" ".join(points))
    return States(task_id, about, NAME, facts, before.files, worked_on(before, later), ("release",), details)


def worked_on(before: ProjectRelease, later: ProjectRelease) -> dict[str, str]:
    """The later release with the earlier one's documents and pipelines."""
    kept = {path: text for path, text in later.files.items() if not _aside(path)}
    return kept | {path: text for path, text in before.files.items() if _aside(path)}


def _aside(path: str) -> bool:
    match = _ASIDE.search(path) or PROSE.search(path) or CHANGELOG.search(path)
    return bool(match) and not is_protected(path)

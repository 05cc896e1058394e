"""Generator `debian-patches`: each patch of a Debian source package's series is a reference, its DEP-3 description the request.

The series is applied in order, as dpkg would; a patch's task starts from all patches before it. Only those that tests show become tasks.
The packaging itself (`debian/`) is not in the agent's tree: it holds the patches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from etude.core.sources.project import SourceOffline
from etude.sandbox.errors import InfraError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.request_text import request_of, without_references
from etude.tasks.generate.generators.states import States, prove_states
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import patches
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.patch import PatchRefused, apply_patch
from etude.tasks.recorded.task_plans import category
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

NAME = "debian-patches"

# What lies in debian/patches, by name.
Patches = Callable[[InstalledProject], Mapping[str, str]]


def package_versions(project: InstalledProject) -> Mapping[str, str]:
    """By apt's mirrors. Raises CandidateRejected, InfraError."""
    wanted = CatalogueProject(project.origin.split()[1], "debian", project.environment.version)
    try:
        return patches(wanted, default_cache())
    except ProjectDiscarded as error:
        raise CandidateRejected(str(error)) from error
    except SourceOffline as error:
        raise InfraError(f"the patches of {wanted.id} can't be fetched: {error}") from error


@dataclass
class DebianPatches:
    patches: Patches = package_versions
    name: str = NAME
    category: str = "debugging"
    languages: tuple[str, ...] = ("python", "javascript", "typescript")

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        """Raises CandidateRejected, InfraError where the package can't be had any more."""
        if not project.origin.startswith("debian "):
            return
        found = self.patches(project)
        for number, name in enumerate(series(found)):
            slug = re.sub(r"\W+", "-", name.rpartition("/")[2].rpartition(".")[0] or name).strip("-")
            task_id = f"debugging/{project.name}/{NAME}/{slug}"
            yield Candidate(task_id, partial(build, project, bench, found, number, task_id))


def series(found: Mapping[str, str]) -> list[str]:
    """The names of the patches in their order, without comments and options."""
    rows = (row.split(" #")[0].split() for row in found.get("series", "").splitlines())
    return [row[0] for row in rows if row and not row[0].startswith("#")]


def normalise_paths(patch: str) -> str:
    """With `a/` and `b/` before its paths, whatever folders quilt or a person put there (`pkg-1.0.orig/`)."""

    def headed(match: re.Match[str]) -> str:
        old, new = (
            re.sub(r"^(?!/dev/null)[^/\s]+/", f"{side}/", match[key]) for side, key in (("a", "old"), ("b", "new"))
        )
        return f"--- {old}\n+++ {new}"

    return re.sub(r"(?m)^--- (?P<old>\S+).*\n\+\+\+ (?P<new>\S+).*$", headed, patch)


def describe_patch(patch: str) -> tuple[str, str]:
    """(first line, rest) of a patch's description by DEP-3 (dep-team.pages.debian.net/deps/dep3): Description or Subject, with the
    free lines of the header behind; empty where it says nothing."""
    header = re.split(r"(?m)^(?:--- |diff |Index: |===)", patch, maxsplit=1)[0]
    found = re.search(r"(?mi)^(?:Description|Subject):[ \t]*((?:.*)(?:\n[ \t]+.*)*)", header)
    if found is None:
        return "", ""
    rows = [re.sub(r"^ \.$", "", row).strip() for row in found[1].splitlines()]
    first = re.sub(r"^\[PATCH[^\]]*\]\s*", "", rows[0]).strip()
    return without_references(first).strip(), request_of("\n\n" + "\n".join(rows[1:]).strip())


def states_at(files: Mapping[str, str], found: Mapping[str, str], number: int) -> tuple[dict[str, str], dict[str, str]]:
    """The tree before and after one patch of the series. Raises CandidateRejected with the patch that would not go on."""
    tree = {path: text for path, text in files.items() if not path.startswith("debian/")}
    before = tree
    for name in series(found)[: number + 1]:
        patch = found.get(name)
        if patch is None:
            raise CandidateRejected(f"{name} is named in the series and is not there")
        before = tree
        try:
            tree = apply_patch(before, normalise_paths(patch))
        except PatchRefused as error:
            raise CandidateRejected(f"{name} does not go on: {error}") from error
    return before, tree


async def build(
    project: InstalledProject, bench: ProofContext, found: Mapping[str, str], number: int, task_id: str
) -> Task:
    """Raises CandidateRejected, InfraError."""
    before, after = states_at(project.files, found, number)
    name = series(found)[number]
    headline, rest = describe_patch(found[name])
    if len(headline.split()) < 2:
        raise CandidateRejected(f"{name} has no description by DEP-3, so there is no request to make of it")
    facts = Facts(headline=headline, expected=rest)
    about = category(f"{headline} {rest}")
    states = States(task_id, about, NAME, facts, before, after, ("patch",), {"patch": name})
    return await prove_states(project, bench, states)

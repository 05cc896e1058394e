"""DevOps repair: files that build, test, pack and serve a real project, broken in one to three places; graded by running them.

The files are written for the project (few releases carry theirs), the project and what its tests notice are real. A breakage is a
mistake that people make; the scenarios of a recipe must tell every one of them, or the candidate is left out.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

from etude.sandbox.spec import WORKDIR
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.devops.ci import workflow
from etude.tasks.generate.generators.devops.makefile import makefile
from etude.tasks.generate.generators.devops.recipe import Breakage, DevopsProject, DevopsRecipe, Maker, run
from etude.tasks.generate.generators.devops.service import service
from etude.tasks.generate.generators.kinds.defects import defects, spread_by_function
from etude.tasks.generate.generators.kinds.draft import ProjectTaskDraft, prove_draft_task
from etude.tasks.generate.generators.kinds.modules import Tested, tested_modules
from etude.tasks.generate.generators.kinds.trial import MutantTrial
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.graders.devops import NAME as GRADER
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

# A shell script that makes a release of a Python project: tests, a list, an archive, checksums.


PATH = "scripts/release.sh"
SUMS = '(cd "$out" && sha256sum "$archive" > SHA256SUMS)'
BAD_SUMS = 'sha256sum "$out/$archive" | cut -c2- > "$out/SHA256SUMS"'


def _text(subject: DevopsProject) -> str:
    return f"""\
#!/usr/bin/env bash
# Makes a release: tests, then the modules packed, with a list of them and checksums.
# usage: release.sh FOLDER VERSION
set -euo pipefail

root="$(cd "$(dirname "${{BASH_SOURCE[0]}}")/.." && pwd)"
out="${{1:?FOLDER is missing}}"
version="${{2:?VERSION is missing}}"
cd "$root"

{subject.test_command()}

mkdir -p "$out"
archive="{subject.package}-$version.tar.gz"
find {subject.folder} -name '*.py' | LC_ALL=C sort > "$out/files.txt"
tar -czf "$out/$archive" -T "$out/files.txt"
{SUMS}
"""


def release_script(subject: DevopsProject) -> DevopsRecipe:
    folder, package = subject.folder, subject.package
    archive = f"{package}-1.2.tar.gz"
    make = f"bash {PATH} /tmp/made 1.2"
    look = run(f"cd /tmp/made && sha256sum -c SHA256SUMS && tar -xzOf {archive} {folder}/_stamp.py")
    spaced = run(
        f"bash {PATH} '/tmp/my releases' 1.2 && cd '/tmp/my releases' && sha256sum -c SHA256SUMS && test -s files.txt"
    )
    return DevopsRecipe(
        level="script",
        what=f"the script `{PATH}`",
        files={PATH: _text(subject)},
        breakages=_breakages(subject),
        scenarios=(
            subject.good("a release holds the code and its checksums hold", run(make), look, **subject.stamp_files()),
            subject.good("a folder with a space in its name", spaced),
            subject.good("called from elsewhere", run(f"cd /tmp && bash {WORKDIR}/{PATH} /tmp/made 1.2 && test -s /tmp/made/{archive}")),
            subject.bad("no release where a test fails", run(make), **subject.spoilt()),
            subject.bad("no release without a version", run(f"bash {PATH} /tmp/made")),
            subject.good("the list is sorted and whole", run(f"{make} && find {folder} -name '*.py' | LC_ALL=C sort | cmp - /tmp/made/files.txt")),
        ),
        promise=(
            f"`bash {PATH} FOLDER VERSION` runs `{subject.test}` and makes no release, and ends with an error, where a test fails",
            f"It packs every `*.py` below `{folder}` into `FOLDER/{package}-VERSION.tar.gz` and lists them, sorted, in `FOLDER/files.txt`",
            "It writes `FOLDER/SHA256SUMS`, which `sha256sum -c` accepts in that folder",
            "It works from any folder, for a FOLDER with spaces in its name, and ends with an error where an argument is missing",
        ),
        demand=f"`bash {PATH} FOLDER VERSION` must do what its head says, from any folder, and fail where a test fails.",
    )  # fmt: skip


def _breakages(subject: DevopsProject) -> tuple[Breakage, ...]:
    test = subject.test_command()
    return (
        Breakage("strict", PATH, "set -euo pipefail", "set -u", "a release is made although tests fail"),
        Breakage("quotes", PATH, 'mkdir -p "$out"', "mkdir -p $out", "it fails for a folder with a space in its name"),
        Breakage("place", PATH, 'cd "$root"\n', "", "it fails when it is called from another folder"),
        Breakage("swapped", PATH, 'out="${1:?', 'out="${2:?', "the release ends up in a folder named like the version"),
        Breakage("default", PATH, 'version="${2:?VERSION is missing}"', 'version="${2:-}"', "it makes a release without a version"),
        Breakage("sums", PATH, SUMS, BAD_SUMS, "`sha256sum -c` refuses the checksums"),
        Breakage("swallowed", PATH, f"{test}\n", f"{test} || echo 'tests failed'\n", "a release is made although tests fail"),
        Breakage("sorted", PATH, "| LC_ALL=C sort >", "| LC_ALL=C sort -r >", "the list of files is in the wrong order"),
        Breakage("root", PATH, '[0]}")/.."', '[0]}")"', "it does not find the project"),
    )  # fmt: skip


MAKERS: tuple[Maker, ...] = (makefile, workflow, release_script, service)
EACH = 3  # tasks of each recipe: with one, two and three breakages
TRIED = 16


class DevopsRepair:
    """Candidates take turns between the recipes. The project's tests are tried once, for all of them."""

    name = "devops"
    category = "devops"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        found = _Found(project, bench)
        for count in range(1, EACH + 1):
            for maker in MAKERS:
                task_id = f"{project.name}/devops/{maker.__name__}-{count}"
                candidate = _DevopsCandidate(task_id, maker, count, seed)
                yield Candidate(task_id, lambda candidate=candidate: build(candidate, found, project, bench))


@dataclass(frozen=True)
class _DevopsCandidate:
    id: str
    maker: Maker
    count: int
    seed: int


class _Found:
    """A module with quick tests, and a defect that they show; searched once."""

    def __init__(self, project: InstalledProject, bench: ProofContext) -> None:
        self._project, self._bench = project, bench
        self._lock = asyncio.Lock()
        self._subject: DevopsProject | None = None
        self._reason = ""

    async def subject(self) -> DevopsProject:
        """Raises CandidateRejected."""
        async with self._lock:
            if self._subject is None and not self._reason:
                try:
                    self._subject = await self._search()
                except CandidateRejected as error:
                    self._reason = str(error)
        if self._subject is None:
            raise CandidateRejected(self._reason)
        return self._subject

    async def _search(self) -> DevopsProject:
        files = self._project.files
        usable = [place for place in tested_modules(self._project) if _in_package(place)]
        # Small test files first: every scenario runs one.
        for place in sorted(usable, key=lambda place: (len(files[place.tests[0]]), place.path))[:4]:
            trial = MutantTrial(self._project, place.tests[:1], self._bench)
            try:
                right = await trial.right_outcome()
            except CandidateRejected:
                continue  # the next module's tests may run
            shown = await trial.noticed_defects(
                spread_by_function(defects(place.path, files[place.path])), right, 1, TRIED
            )
            if shown and not right.failed:
                return DevopsProject(self._project, place, shown[0])
        raise CandidateRejected("no module has tests that pass whole here and notice a defect")


def _in_package(place: Tested) -> bool:
    """In a package with a folder of its own, tests outside of what is packed or inside alike."""
    parts = place.path.split("/")
    return "." in place.name and place.name.partition(".")[0] in parts[:-1]


async def build(candidate: _DevopsCandidate, found: _Found, project: InstalledProject, bench: ProofContext) -> Task:
    recipe = candidate.maker(await found.subject())
    if taken := sorted(path for path in recipe.files if path in project.files):
        raise CandidateRejected(f"the project has {taken[0]} of its own")
    chosen = draw_breakages(recipe, candidate.count, random.Random(f"{candidate.id} {candidate.seed}"))
    files = dict(project.files) | dict(recipe.files)
    for one in chosen:
        if files[one.path].count(one.old) != 1:
            raise CandidateRejected(f"{one.path} does not hold {one.old!r} once")
        files[one.path] = files[one.path].replace(one.old, one.new)
    seen = [one.seen for one in chosen]
    facts = Facts(
        headline=f"{recipe.what} is broken: {seen[0]}",
        steps=tuple(f"Seen: {what}" for what in seen),
        expected=" ".join(f"{line}." for line in recipe.promise),
        place=", ".join(f"`{path}`" for path in recipe.files),
        notes=("Only these files may be changed", "There may be more wrong with it than what was seen"),
    )
    draft = ProjectTaskDraft(
        id=candidate.id,
        category=DevopsRepair.category,
        level=recipe.level,
        generator=DevopsRepair.name,
        grader=GRADER,
        facts=facts,
        demand=recipe.demand,
        files=files,
        solution={path: recipe.files[path] for path in sorted({one.path for one in chosen})},
        hidden={"scenarios": list(recipe.scenarios), "seconds": 1.0},
        editable=tuple(recipe.files),
        operators=tuple(f"{recipe.level}:{one.name}" for one in chosen),
    )
    return await prove_draft_task(draft, project, bench)


def draw_breakages(recipe: DevopsRecipe, count: int, rng: random.Random) -> list[Breakage]:
    """Breakages that don't touch the same text."""
    kept: list[Breakage] = []
    for one in rng.sample(recipe.breakages, len(recipe.breakages)):
        if len(kept) < count and not any(_overlap(recipe, one, other) for other in kept):
            kept.append(one)
    return kept


def _overlap(recipe: DevopsRecipe, one: Breakage, other: Breakage) -> bool:
    if one.path != other.path:
        return False
    text = recipe.files[one.path]
    a, b = text.find(one.old), text.find(other.old)
    return a < b + len(other.old) and b < a + len(one.old)

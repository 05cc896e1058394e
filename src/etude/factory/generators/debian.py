"""Generator `debian-patches`: each patch of a Debian source package's series is a reference, its DEP-3 description the request.

The series is applied in order, as dpkg would; a patch's task starts from all patches before it. Only those that tests show become tasks.
The packaging itself (`debian/`) is not in the agent's tree: it holds the patches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial

from etude.factory.generators.generator import Bench, Installed
from etude.factory.generators.states import States, proved
from etude.factory.prompts.facts import Facts
from etude.tasks.patch import PatchRefused, patched
from etude.tasks.recorded.asked import category
from etude.tasks.task import Task
from etude.tasks.validation.proof import LeftOut
from etude.tasks.validation.workshop import Candidate

NAME = "debian-patches"
FOLDER = "debian/patches"


class DebianPatches:
    name = NAME
    category = "debugging"
    languages: tuple[str, ...] = ("python", "javascript", "typescript")

    def candidates(self, project: Installed, bench: Bench, seed: int) -> Iterator[Candidate]:
        for number, name in enumerate(series(project.files)):
            told = re.sub(r"\W+", "-", name.rpartition("/")[2].rpartition(".")[0] or name).strip("-")
            task_id = f"debugging/{project.name}/{NAME}/{told}"
            yield Candidate(task_id, partial(build, project, bench, number, task_id))


def series(files: Mapping[str, str]) -> list[str]:
    """The names of the patches in their order, without comments and options."""
    rows = (row.split(" #")[0].split() for row in files.get(f"{FOLDER}/series", "").splitlines())
    return [row[0] for row in rows if row and not row[0].startswith("#")]


def described(patch: str) -> tuple[str, str]:
    """(first line, rest) of a patch's description by DEP-3 (dep-team.pages.debian.net/deps/dep3): Description or Subject, with the
    free lines of the header behind; empty where it says nothing."""
    header = re.split(r"(?m)^(?:--- |diff |Index: |===)", patch, maxsplit=1)[0]
    found = re.search(r"(?mi)^(?:Description|Subject):[ \t]*((?:.*)(?:\n[ \t]+.*)*)", header)
    if found is None:
        return "", ""
    rows = [re.sub(r"^ \.$", "", row).strip() for row in found[1].splitlines()]
    return re.sub(r"^\[PATCH[^\]]*\]\s*", "", rows[0]).strip(), "\n".join(rows[1:]).strip()


def states_at(files: Mapping[str, str], number: int) -> tuple[dict[str, str], dict[str, str]]:
    """The tree before and after one patch of the series. Raises LeftOut with the patch that would not go on."""
    tree = {path: text for path, text in files.items() if not path.startswith("debian/")}
    before = tree
    for name in series(files)[: number + 1]:
        patch = files.get(f"{FOLDER}/{name}")
        if patch is None:
            raise LeftOut(f"{FOLDER}/{name} is named in the series and is not there")
        before = tree
        try:
            tree = patched(before, patch)
        except PatchRefused as error:
            raise LeftOut(f"{name} does not go on: {error}") from error
    return before, tree


async def build(project: Installed, bench: Bench, number: int, task_id: str) -> Task:
    """Raises LeftOut, InfraError."""
    before, after = states_at(project.files, number)
    name = series(project.files)[number]
    headline, rest = described(project.files[f"{FOLDER}/{name}"])
    if len(headline.split()) < 2:
        raise LeftOut(f"{name} has no description by DEP-3: nobody could say what is wanted")
    facts = Facts(headline=headline, expected=rest)
    about = category(f"{headline} {rest}")
    states = States(task_id, about, NAME, facts, before, after, ("patch",), {"patch": name})
    return await proved(project, bench, states)

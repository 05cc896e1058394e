"""Documentation to be written, graded by running it: docstrings that are gone, a reference page, and a page whose examples no longer hold.

The reference is the project's own: its docstrings with their examples, the page made of them, the page as it was. Only examples that hold
here three times count, and only changes of the code that these notice are asked about (`tasks.graders.documentation`).
"""

from __future__ import annotations

import ast
import doctest
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from etude.core.bounded_python import parse_python
from etude.tasks.content import like
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.kinds import docstrings
from etude.tasks.generate.generators.kinds.defects import Defect, defects, spread_by_function
from etude.tasks.generate.generators.kinds.draft import ProjectTaskDraft, prove_draft_task, task_from_draft
from etude.tasks.generate.generators.kinds.modules import modules
from etude.tasks.generate.generators.kinds.same import same
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.graders.documentation import NAME as GRADER
from etude.tasks.graders.documentation import groups_of, outcomes
from etude.tasks.graders.documented import remove_fences, symbols
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

TOGETHER = 3  # names of a task
FEWEST, MOST, TRIED = 3, 8, 24  # changes of the code that the examples must be asked about
SHARE = 0.6
STALE = (2, 4)  # examples of a page that no longer hold
PAGES = re.compile(r"(^|/)(README|[^/]+)\.(md|rst|txt)$", re.IGNORECASE)
UNTRIED: dict[str, Any] = {"sources": [], "broken": [], "same": [], "kill": 0}
NOT_PAGES = re.compile(r"(^|/)(CHANGE|HISTORY|NEWS|LICEN|AUTHORS|requirements|SOURCES|PKG-INFO)", re.IGNORECASE)


class Documentation:
    """For every module whose docstrings have examples, both forms in turn; for every page with examples, one task."""

    name = "documentation"
    category = "documentation"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        plans = [*_of_modules(project, seed), *_of_pages(project, seed)]
        random.Random(f"documentation {project.name} {seed}").shuffle(plans)
        for one in plans:
            yield Candidate(one.id, lambda one=one: build(one, project, bench))


@dataclass(frozen=True)
class _DocumentationCandidate:
    """`path`: of the module or page; `names`: what is to be documented."""

    id: str
    form: str
    path: str
    names: tuple[str, ...] = ()
    seed: int = 0


def _of_modules(project: InstalledProject, seed: int) -> Iterator[_DocumentationCandidate]:
    for path, name in modules(project).items():
        text = project.files[path]
        try:
            documented = docstrings.documented_names(text)
        except (SyntaxError, ValueError):
            continue  # not for this interpreter
        if "\r" in text or "\f" in text:
            continue  # its lines can't be counted
        groups = [documented[at : at + TOGETHER] for at in range(0, len(documented), TOGETHER)]
        for number, group in enumerate(groups):
            form = "page" if number % 2 else "docstrings"
            names = tuple(one.name for one in group)
            yield _DocumentationCandidate(f"{project.name}/documentation/{name}.{names[0]}", form, path, names, seed)


def _of_pages(project: InstalledProject, seed: int) -> Iterator[_DocumentationCandidate]:
    for path in sorted(project.texts):
        if PAGES.search(path) and not NOT_PAGES.search(path) and project.files[path].count(">>> ") >= 4:
            yield _DocumentationCandidate(
                f"{project.name}/documentation/{path.replace('/', '.')}", "examples", path, seed=seed
            )


async def build(candidate: _DocumentationCandidate, project: InstalledProject, bench: ProofContext) -> Task:
    draft = _stale(candidate, project) if candidate.form == "examples" else _undocumented(candidate, project)
    return await prove_draft_task(await _telling(draft, candidate, project, bench), project, bench)


def _undocumented(candidate: _DocumentationCandidate, project: InstalledProject) -> ProjectTaskDraft:
    text = project.files[candidate.path]
    module = modules(project)[candidate.path]
    nodes = symbols(parse_python(text))
    docs = {name: ast.get_docstring(nodes[name]) or "" for name in candidate.names}
    facts_by_name = {name: docstrings.facts(nodes[name], docs[name]) for name in candidate.names}
    base = dict(project.files) | {candidate.path: like(text, docstrings.without(text, set(candidate.names)))}
    path = candidate.path
    solution = text
    if candidate.form == "page":
        if any("signature" not in one for one in facts_by_name.values()) or any("." in name for name in facts_by_name):
            raise CandidateRejected("a page is asked for functions of a module alone")
        path = f"docs/reference-{module.replace('.', '-')}.md"
        preamble = f"```pycon\n>>> from {module} import *\n>>> from {module} import {', '.join(candidate.names)}\n```\n"
        heading = f"## `{facts_by_name[candidate.names[0]]['signature']}`\n\n"
        # The import is filed under the first name, so that it is run with its examples.
        solution = docstrings.page(module, docs, facts_by_name).replace(heading, f"{heading}{preamble}\n", 1)
    facts = {
        name: one if candidate.form == "page" else {key: one[key] for key in one if key != "signature"}
        for name, one in facts_by_name.items()
    }
    return _draft(candidate, module, path, base, {path: solution}, symbols=list(candidate.names), facts=facts)


def _stale(candidate: _DocumentationCandidate, project: InstalledProject) -> ProjectTaskDraft:
    """The page with a few outputs that are no longer right."""
    text = project.files[candidate.path]
    rng = random.Random(f"{candidate.id} {candidate.seed}")
    try:
        examples = doctest.DocTestParser().get_examples(remove_fences(text))
    except ValueError as error:
        raise CandidateRejected(f"its examples can't be read: {error}") from error
    able = [
        one
        for one in examples
        if one.want.strip() and one.exc_msg is None and _stale_want(one.want) and text.count(one.want) == 1
    ]
    if len(able) < STALE[0]:
        raise CandidateRejected(
            f"{len(able)} of its examples have an output that can be made stale, {STALE[0]} are needed"
        )
    stale = text
    for one in rng.sample(able, min(len(able), rng.randint(*STALE))):
        stale = stale.replace(one.want, _stale_want(one.want), 1)
    base = dict(project.files) | {candidate.path: like(text, stale)}
    sources = sorted({" ".join(one.source.split()) for one in examples})
    return _draft(candidate, "", candidate.path, base, {candidate.path: text}, symbols=[], facts={}, sources=sources)


def _stale_want(want: str) -> str:
    """The output with its last number one more, or its last word turned round; empty where there is neither."""
    if numbers := list(re.finditer(r"(?<!\d)\d{1,9}(?!\d)", want)):
        last = numbers[-1]
        return f"{want[: last.start()]}{int(last[0]) + 1}{want[last.end() :]}"
    if words := [one for one in re.finditer(r"[A-Za-z]{3,}", want) if one[0] != one[0][::-1]]:
        last = words[-1]
        return f"{want[: last.start()]}{last[0][::-1]}{want[last.end() :]}"
    return ""


def _draft(
    candidate: _DocumentationCandidate,
    module: str,
    path: str,
    base: dict[str, str],
    solution: dict[str, str],
    **hidden: Any,
) -> ProjectTaskDraft:
    names = ", ".join(f"`{name}`" for name in candidate.names)
    wanted = {
        "docstrings": f"write docstrings with examples for {names} in `{path}`",
        "page": f"write `{path}`, a reference of {names} of `{module}`, with examples",
        "examples": f"update `{path}`: some of its examples no longer give what they say",
    }[candidate.form]
    demand = {
        "docstrings": f"Docstrings of {names} in `{path}`, with doctests (`>>>`), at least one each; change nothing else.",
        "page": f"`{path}` has a heading for each of {names} with its signature without annotations, as in ``## `f(a, b=1)` ``, and `>>>` examples "
        f"under it; the page is run from top to bottom, so import `{module}` first. Change no other file.",
        "examples": f"Keep all examples of `{path}`, and change no other file.",
    }[candidate.form]
    telling = (
        "The examples are judged by what they tell: where the code is changed to do something else, they have to notice"
    )
    notes = ("Every example must give exactly what it says", *(() if candidate.form == "examples" else (telling,)))
    return ProjectTaskDraft(
        id=candidate.id,
        category=Documentation.category,
        level=candidate.form,
        generator=Documentation.name,
        grader=GRADER,
        facts=Facts(wanted, place=f"`{path}`", notes=notes),
        demand=demand,
        files=base,
        solution=solution,
        hidden={"form": candidate.form, "path": path, "module": candidate.path, "import": module, **UNTRIED, **hidden},
        editable=(path,),
    )  # fmt: skip


async def _telling(
    draft: ProjectTaskDraft, candidate: _DocumentationCandidate, project: InstalledProject, bench: ProofContext
) -> ProjectTaskDraft:
    """With changes of the code that the reference's examples notice. Raises CandidateRejected."""
    base = draft.files
    rng = random.Random(f"{candidate.id} telling {candidate.seed}")
    if candidate.form == "examples":
        found = [one for path in modules(project) for one in defects(path, base[path])]
        kind: dict[str, Any] = {}
    else:
        wanted = set(candidate.names)
        found = [
            one
            for one in defects(candidate.path, base[candidate.path])
            if one.function in wanted or one.function.partition(".")[0] in wanted
        ]
        kind = {"same": same(candidate.path, base[candidate.path])}
    rng.shuffle(found)
    task = task_from_draft(replace(draft, hidden=draft.hidden | kind), project)
    groups = groups_of(task, {path: text.encode() for path, text in (dict(base) | dict(draft.solution)).items()})
    (right,) = await outcomes(task, groups, [()], bench.pool)
    if not right.all_good:
        raise CandidateRejected(f"the project's own examples do not hold here: {right.mismatch}")
    kept: list[Defect] = []
    sampled = spread_by_function(found)[:TRIED]
    for at in range(0, len(sampled), 4):
        batch = sampled[at : at + 4]
        ran = await outcomes(task, groups, [[one.edit()] for one in batch], bench.pool)
        kept += [one for one, outcome in zip(batch, ran, strict=True) if not outcome.all_good]
        if len(kept) >= MOST:
            break
    kept = kept[:MOST]
    if len(kept) < FEWEST:
        raise CandidateRejected(
            f"the project's own examples notice {len(kept)} of {len(sampled)} changes of the code, {FEWEST} are needed"
        )
    mutants = {"broken": [[one.edit()] for one in kept], "kill": math.ceil(SHARE * len(kept))}
    return replace(draft, hidden=draft.hidden | kind | mutants, operators=tuple(sorted({one.operator for one in kept})))

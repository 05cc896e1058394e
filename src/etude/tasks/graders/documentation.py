"""Grader `documentation`: what is written is run, and must tell a reader what the code does.

Three forms. `docstrings`: of a module whose docstrings are gone. `page`: a reference in Markdown, a heading a name, its
signature in the heading. `examples`: a page of the project whose examples no longer hold. What it catches:

- examples that don't give what they promise: all run, three times, over the base's code
- documentation that says nothing: its examples are run on hidden mutants of the code as well, and must notice at least `kill` of them.
  This is its usefulness: what a reader can't learn from the examples, they don't notice
- names left out, parameters, defaults and exceptions left unsaid: `facts`, found in the code by the generator
- code changed on the way: the code without docstrings must be the base's; examples run over the base's in any case
- examples that read the sources instead of using them: variants that behave the same must give the same
- skipped examples, links that lead nowhere

What remains open: wrong prose with right examples.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from etude.sandbox.protocol import Machines
from etude.tasks.bounded import LimitReached, run_bounded
from etude.tasks.content import same_content
from etude.tasks.graders import documented
from etude.tasks.graders.edits import Edit, apply_edits, encode_files
from etude.tasks.graders.examples import (
    MAX_EXAMPLES,
    ExampleGroup,
    ExamplesOutcome,
    UnreadableExamples,
    read_examples,
    run_examples,
)
from etude.tasks.restore import text_of
from etude.tasks.task import Task, Verdict

NAME = "documentation"
TIMES = 3
TOGETHER = 2
MAX_DOCUMENT_BYTES = 1 << 20
LIMIT_S = 20.0  # the examples of a real module take well under a second


class Poor(ValueError):
    """Documentation that need not be run; says why."""


class DocumentationGrader:
    """`hidden`: form, path, module (path), import (dotted), symbols, facts, sources (that must stay), broken, same, kill."""

    async def grade(self, task: Task, files: dict[str, bytes], pool: Machines) -> Verdict:
        start = time.perf_counter()
        hidden = task.hidden
        found = dict.fromkeys(["read", "right code", "same behaviour"], False)
        found |= {f"mutant {n}": False for n in range(len(hidden["broken"]))}
        try:
            groups = await run_bounded(groups_of, task, files)
            found["read"] = True
            reason = await self._judged(task, groups, pool, found)
        except (Poor, UnreadableExamples, LimitReached) as error:
            reason = str(error)
        return Verdict(float(not reason), found, reason, time.perf_counter() - start)

    async def _judged(self, task: Task, groups: list[ExampleGroup], pool: Machines, found: dict[str, bool]) -> str:
        hidden = task.hidden
        for outcome in await outcomes(task, groups, [()] * TIMES, pool):
            if not outcome.all_good:
                return outcome.mismatch
        found["right code"] = True
        for outcome in await outcomes(task, groups, hidden["same"], pool):
            if not outcome.all_good:
                return f"code that behaves the same comes out differently: {outcome.mismatch}"
        found["same behaviour"] = True
        noticed = [not outcome.all_good for outcome in await outcomes(task, groups, hidden["broken"], pool)]
        found.update({f"mutant {n}": one for n, one in enumerate(noticed)})
        caught = sum(noticed)
        few = (
            f"its examples notice {caught} of {len(noticed)} changes of what the code does, {hidden['kill']} are asked"
        )
        return "" if caught >= hidden["kill"] else few


async def outcomes(
    task: Task, groups: list[ExampleGroup], variants: Sequence[Sequence[Edit]], pool: Machines
) -> list[ExamplesOutcome]:
    module = task.hidden["import"] if task.hidden["form"] == "docstrings" else ""
    base = {path: text for path, text in task.files.items() if path != task.hidden["path"] or path.endswith(".py")}
    trees = [encode_files(apply_edits(base, edits)) for edits in variants]
    found: list[ExamplesOutcome] = []
    for at in range(0, len(trees), TOGETHER):
        runs = (run_examples(task, tree, groups, module, pool, LIMIT_S) for tree in trees[at : at + TOGETHER])
        found += await asyncio.gather(*runs)
    return found


def groups_of(task: Task, files: dict[str, bytes]) -> list[ExampleGroup]:
    """The examples by name, of documentation that tells what it must. Raises Poor, Unreadable."""
    hidden = task.hidden
    path = hidden["path"]
    text = text_of(files.get(path))
    if text is None:
        raise Poor(f"{path} is missing, or no UTF-8 text")
    if len(files[path]) > MAX_DOCUMENT_BYTES:
        raise Poor(f"{path} has {len(files[path])} bytes, {MAX_DOCUMENT_BYTES} at most are read")
    for known, before in task.files.items():
        if known != path and known.endswith(".py") and not same_content(before, files.get(known)):
            raise Poor(f"{known} was changed or removed: only {path} may be written")
    groups = {"docstrings": _of_docstrings, "page": _of_page, "examples": _of_examples}[hidden["form"]](task, text)
    if sum(len(group.examples) for group in groups) > MAX_EXAMPLES:
        raise Poor(f"{path} has more than {MAX_EXAMPLES} examples")
    return groups


def _of_docstrings(task: Task, text: str) -> list[ExampleGroup]:
    hidden = task.hidden
    try:
        docstrings = documented.docstrings(text)
        unchanged = documented.bare(text) == documented.bare(task.files[hidden["path"]])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Poor(f"{hidden['path']} does not parse: {error}") from error
    if not unchanged:
        raise Poor(f"{hidden['path']} differs in more than docstrings and comments")
    return [_group(task, name, docstrings.get(name, "")) for name in hidden["symbols"]]


def _of_page(task: Task, text: str) -> list[ExampleGroup]:
    hidden = task.hidden
    sections = documented.sections(text)
    if dead := documented.dead_links(text, hidden["path"], [*task.files, hidden["path"]]):
        raise Poor(f"{hidden['path']} links to {dead[0]}, which is not there")
    groups: list[ExampleGroup] = []
    for name in hidden["symbols"]:
        heading, body = sections.get(name, ("", ""))
        wanted = hidden["facts"].get(name, {}).get("signature")
        if wanted and not documented.same_signature(heading, wanted):
            raise Poor(f"{hidden['path']} has no heading that states {wanted}; it says {heading or 'nothing'}")
        groups.append(_group(task, name, documented.remove_fences(body)))
    return groups


def _of_examples(task: Task, text: str) -> list[ExampleGroup]:
    group = read_examples(task.hidden["path"], documented.remove_fences(text))
    there = {" ".join(example.source.split()) for example in group.examples}
    for source in task.hidden["sources"]:
        if source not in there:
            raise Poor(f"the example {source[:80]!r} is gone")
    return [group]


def _group(task: Task, name: str, doc: str) -> ExampleGroup:
    missing = documented.missing_facts(doc, task.hidden["facts"].get(name, {}))
    if missing:
        raise Poor(f"{name}: its documentation does not tell {missing[0]}")
    group = read_examples(name, doc)
    if not group.examples:
        raise Poor(f"{name}: its documentation has no example")
    return group

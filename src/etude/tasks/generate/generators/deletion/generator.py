"""Generators `feature-deletion` and `large-features`: functions, classes and whole modules go with their exports, documents and tests; the
tests show the way back.

Composer 2.5's way. The first takes out one definition and what hangs on it; the second several that refer to one another (`related`), until
at least `LARGE_LINES` lines in `LARGE_FILES` files of the reference are gone. A project without such a group makes no large feature.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Literal

from etude.tasks.content import LINK, like, mode_of
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.deletion.index import Defined, DefinitionIndex
from etude.tasks.generate.generators.deletion.language import LANGUAGES, Language, language, runnable_settings
from etude.tasks.generate.generators.deletion.related import Groups, References
from etude.tasks.generate.prompts.facts import KEY, Facts
from etude.tasks.generate.prompts.writing import template_prompts
from etude.tasks.protected import PROSE, SETTINGS, is_protected
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, prove_draft, task_of
from etude.tasks.validation.suite_build import Candidate

# What would still tell how a deleted feature was written: its mentions in documents, and copies of its lines
# anywhere.
#
# `undocumented` takes mentions out of prose; `leftovers` is the scan afterwards, over every text that the agent gets.


RUN = 4  # neighbouring lines of the deleted code make a run
COPIED = 0.25  # of the runs of one definition, in one file
LETTERS = 12  # a line with fewer is said everywhere (`else:`, `return None`)


def remove_mentions(text: str, names: Collection[str]) -> str:
    """Without the paragraphs and list items that speak of the names as code."""
    mention = _mention_pattern(names)
    blocks = re.split(r"(\n[ \t]*\n+|\n(?=[ \t]*[-*+] ))", text)
    kept: list[str] = []
    for at in range(0, len(blocks), 2):
        if not mention.search(blocks[at]):
            kept += blocks[at : at + 2]
    return "".join(kept)


def leftovers(removed: Iterable[str], left: Mapping[str, str], names: Collection[str]) -> list[str]:
    """Where the workspace still holds a share of a removed definition, or code with private names. What siblings of one kind have in
    common is less than `COPIED` and stays: it is how the project is written."""
    wholes = [set(_runs(text)) for text in removed]
    private = [name for name in sorted(names) if name.startswith("_")]
    found = []
    for path, text in sorted(left.items()):
        there = set(_runs(text))
        matches = [
            (len(whole & there), len(whole)) for whole in wholes if whole and len(whole & there) >= COPIED * len(whole)
        ]
        if matches:
            found.append(f"{path} holds {matches[0][0]} of {matches[0][1]} runs of lines of deleted code")
        if not PROSE.search(path):
            found += [f"{path} names {name}" for name in private if re.search(rf"\b{re.escape(name)}\b", text)]
    return found


def _mention_pattern(names: Collection[str]) -> re.Pattern[str]:
    """A name in backticks, called, behind an import, or in a directive; not the word in a sentence."""
    one = "|".join(re.escape(name) for name in sorted(names))
    return re.compile(rf"`[\w.~]*\b(?:{one})\b|\b(?:{one})\(|auto\w+::\s+[\w.]*\b(?:{one})\b|import[^\n]*\b(?:{one})\b")


def _runs(text: str) -> Iterable[tuple[str, ...]]:
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if sum(map(str.isalpha, line)) >= LETTERS]
    return zip(*(lines[start:] for start in range(RUN)), strict=False)


Size = Literal["small", "large"]
NAMES: dict[Size, str] = {"small": "feature-deletion", "large": "large-features"}
SMALLEST = 8  # lines: below there is nothing to build
MOST = 14  # definitions that one anchor may pull along
LARGE_LINES, LARGE_FILES = 150, 4
LARGE_FEWEST, LARGE_MOST = 2, 40  # definitions
TEST_FILES: dict[Size, int] = {"small": 8, "large": 16}
ALIKE = 0.7  # of a large feature's lines: more of them in one that was proposed already, and it asks for the same again
TELLING = 12  # letters: a shorter line of code is anybody's
PASSES = 4  # draws of large features: each piece is in that many of them at most


class FeatureDeletion:
    category = "features"
    languages: tuple[str, ...] = LANGUAGES

    def __init__(self, size: Size = "small") -> None:
        self.size: Size = size
        self.name, self.large = NAMES[size], size == "large"

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        known = language(project).index(project)
        found = False
        for names in choose_features(project, known, seed, self.size):
            found = True
            anchor = re.sub(r"\W+", "-", "-".join(sorted(names)[:3])).strip("-")
            task_id = f"features/{project.name}/{self.name}/{anchor}-{len(names)}"
            yield Candidate(task_id, partial(build, project, bench, known, names, self.size, task_id))
        if not found and self.large:
            yield Candidate(f"features/{project.name}/{self.name}/none", _none_related)


def choose_features(
    project: InstalledProject, known: DefinitionIndex, seed: int, size: Size
) -> Iterator[frozenset[str]]:
    """Features that tests speak of, none twice, and no large ones that have most of their lines in common."""
    rng = random.Random(f"deletion {project.name} {seed}")
    tongue = language(project)
    spoken = _words("\n".join(project.files[path] for path in tongue.tests(project)))
    anchors = [one for one in known.defined if one.name in spoken and one.lines >= SMALLEST and one.open]
    rng.shuffle(anchors)
    pieces = dict.fromkeys(piece for one in anchors if (piece := known.feature([one.name], MOST)))
    if size == "small":
        yield from pieces
        return
    words_by_path = {path: _words(text) for path, text in project.texts.items() if _may_change(path, tongue)}
    groups = Groups(References(known), tuple(pieces), partial(_is_large, known, words_by_path), LARGE_MOST)
    lines = {one.name: one.lines for one in known.defined}
    proposed: list[frozenset[str]] = []
    for names in chain.from_iterable(groups.draw(rng) for _ in range(PASSES)):
        if not _like_one(names, proposed, lines):
            proposed.append(names)
            yield names


def _like_one(names: frozenset[str], others: list[frozenset[str]], lines: Mapping[str, int]) -> bool:
    whole = sum(lines.get(name, 0) for name in names)
    return any(sum(lines.get(name, 0) for name in names & other) > ALIKE * whole for other in others)


def _is_large(known: DefinitionIndex, words_by_path: Mapping[str, frozenset[str]], names: frozenset[str]) -> bool:
    """By lines, and by files that name any of them (code, stubs, documents; `words_by_path`). One definition alone is none, whatever its size."""
    if len(names) < LARGE_FEWEST or sum(one.lines for one in known.definitions_of(names)) < LARGE_LINES:
        return False
    return sum(not names.isdisjoint(words) for words in words_by_path.values()) >= LARGE_FILES


async def _none_related() -> Task:
    """For the account: why a project has no large feature. Raises CandidateRejected."""
    raise CandidateRejected(
        f"no tested definitions that refer to one another make {LARGE_LINES} lines in {LARGE_FILES} files ({LARGE_MOST} names at most)"
    )


async def build(
    project: InstalledProject,
    bench: ProofContext,
    known: DefinitionIndex,
    names: frozenset[str],
    size: Size,
    task_id: str,
) -> Task:
    """Raises CandidateRejected, InfraError."""
    draft = await asyncio.to_thread(draft_deletion, project, known, names, size, task_id)
    passed = frozenset(name for path in draft.tests for name in project.baseline.by_file.get(path, ()))
    return await prove_draft(
        draft,
        bench.pool,
        bench.timeout_s,
        known=passed & project.baseline.passed or None,
        flaky=project.baseline.flaky,
    )


def draft_deletion(
    project: InstalledProject, known: DefinitionIndex, names: frozenset[str], size: Size, task_id: str
) -> TaskDraft:
    """The task before anything was run. Raises CandidateRejected."""
    gone = known.definitions_of(names)
    changed, removed = _cut(project, names)
    solution = {path: project.files[path] for path in {*changed, *removed} if not is_protected(path)}
    hidden = {path: project.files[path] for path in {*changed, *removed} if is_protected(path)}
    if size == "large" and len(solution) < LARGE_FILES:
        raise CandidateRejected(f"the feature is in {len(solution)} files, a large one needs {LARGE_FILES}")
    tests = _tests(project, hidden, TEST_FILES[size])
    files = {path: text for path, text in {**project.files, **changed}.items() if path not in removed}
    if left := leftovers([one.source for one in gone], files, names):
        raise CandidateRejected(f"the workspace would still tell: {'; '.join(left[:3])}")
    facts = _facts(gone, project)
    draft = TaskDraft(
        id=task_id,
        category="features",
        level=f"{size}-feature",
        prompts={str(style): text for style, text in template_prompts("features", facts, task_id).items()},
        environment=project.environment,
        base=project.files,
        changed=changed,
        removed=sorted(removed),
        solution=solution,
        hidden=hidden,
        tests=tests,
        metadata={
            "generator": NAMES[size],
            "operators": [f"delete-{size}"],
            "deleted": sorted(f"{one.path}:{one.name}" for one in gone),
            "origin": project.origin,
            "licence": project.licence,
            KEY: facts.to_record(),
        },
    )
    if size == "large" and (lines := task_of(draft).metadata["changed"]["lines"]) < LARGE_LINES:
        raise CandidateRejected(f"its reference has {lines} lines, a large feature needs {LARGE_LINES}")
    return draft


def _cut(project: InstalledProject, names: frozenset[str]) -> tuple[dict[str, str], set[str]]:
    """The files that change, and those that go. Raises CandidateRejected for settings that name the feature."""
    changed: dict[str, str] = {}
    removed: set[str] = set()
    tongue = language(project)
    tests = set(tongue.tests(project))
    spoken = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in sorted(names)))
    for path, text in project.files.items():
        if mode_of(text) == LINK or "\0" in text or not spoken.search(text):
            continue
        if tongue.code.search(path) and path not in project.texts:
            raise CandidateRejected(f"{path} names a part of it and is no UTF-8 text")
        if path.rpartition("/")[2] in SETTINGS and path not in tests and not path.endswith("conftest.py"):
            if spoken.search(runnable_settings(path, text)):
                raise CandidateRejected(f"{path} names a part of it")
            continue
        try:
            new = _cut_file(path, text, names, path in tests, tongue)
        except SyntaxError as error:
            raise CandidateRejected(f"{path} names a part of it and can't be taken apart: {error}") from error
        if new is None:
            removed.add(path)
        elif (new := like(text, new)) != text:
            changed[path] = new
    return changed, removed


def _cut_file(path: str, text: str, names: frozenset[str], test: bool, tongue: Language) -> str | None:
    if test:
        return tongue.tests_without(path, text, names)
    if tongue.code.search(path):
        return tongue.without(path, text, names)
    return remove_mentions(text, names) if PROSE.search(path) else text


def _tests(project: InstalledProject, hidden: dict[str, str], most: int) -> list[str]:
    concerned = [path for path in language(project).tests(project) if path in hidden]
    if not concerned:
        raise CandidateRejected("no test file uses it")
    if len(concerned) > most:
        raise CandidateRejected(
            f"{len(concerned)} test files use it, more than {most}: the whole project depends on it"
        )
    return concerned


def _may_change(path: str, tongue: Language) -> bool:
    return bool(tongue.code.search(path) or PROSE.search(path)) and not is_protected(path)


def _facts(gone: list[Defined], project: InstalledProject) -> Facts:
    names = language(project).modules(project)
    public = [one for one in gone if one.open]
    public.sort(key=lambda one: -one.lines)
    heads = [f"`{one.name}` to `{names[one.path]}`" for one in public[:3]]
    first = public[0].summary.rstrip(".")
    several = len(public) > 1
    return Facts(
        headline=f"add {', '.join(heads)}" + (f" and {len(public) - 3} more" if len(public) > 3 else ""),
        expected="\n\n".join(f"`{one.name}`: {_untold(one)}" for one in public if one.doc),
        interface=tuple(f"{names[one.path]}: {one.signature}" for one in public),
        place=", ".join(sorted({f"`{names[one.path]}`" for one in public})),
        notes=(
            *((f"`{public[0].name}`: {first}",) if first and not several else ()),
            "Export and document it where its neighbours are exported and documented",
        ),
    )


def _untold(one: Defined) -> str:
    """Its documentation, without lines that are its code too (an example that shows how it is done)."""
    lines = one.source.split("\n")
    doc_lines = set(map(str.strip, one.doc.split("\n")))
    repeated = {line.strip() for line in doc_lines if sum(other.strip() == line for other in lines) > 1}
    return "\n".join(
        line for line in one.doc.strip().split("\n") if len(line.strip()) < TELLING or line.strip() not in repeated
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", text))

"""Code review: changes of a real project to read, some with a defect or two put in, half of them clean; comments are graded by their lines.

A task holds `CHANGES` changes as unified diffs against the tree that the agent sees. Which of them are clean is drawn, so that neither
approving everything nor doubting everything passes, and clean ones punish false alarms. Every defect is one that the project's own
tests show; those tests are not in the agent's tree: a review is reading.
"""

from __future__ import annotations

import difflib
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.kinds.defects import Defect
from etude.tasks.generate.generators.kinds.draft import ProjectTaskDraft, prove_draft_task
from etude.tasks.generate.generators.kinds.modules import Tested
from etude.tasks.generate.generators.kinds.reading import LANGUAGES, language_support
from etude.tasks.generate.generators.kinds.slices import CodeSlice, cut_part
from etude.tasks.generate.generators.kinds.trial import MutantTrial
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.graders.edits import apply_edits
from etude.tasks.graders.review import FEWEST_CHARS, NEAR_LINES, SEVERITIES
from etude.tasks.graders.review import NAME as GRADER
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

CHANGES = 4
LINES = (25, 110)  # of a change: what is read in one sitting
FOLDER = "review"
COMMENTS = f"{FOLDER}/comments.jsonl"
RECALL, PRECISION = 0.66, 0.5
TRIED = 12
FORM = f"""\
# How comments are written

One JSON object a line in `{COMMENTS}`:

    {{"path": "package/module.py", "line": 12, "severity": "high", "text": "what is wrong, and what comes of it"}}

`line` counts from 1 in the file as it is now, with all changes in it; up to {NEAR_LINES} lines off is near enough.
`severity` is one of {", ".join(SEVERITIES)}; `text` has at least {FEWEST_CHARS} characters.
Only defects are wanted, things that come out wrong: no remarks about style, no praise.
A comment where nothing is wrong is a false alarm. A change without a defect gets no comment.
If nothing at all is wrong the file is empty.
"""


class Review:
    """Tasks are drawn from all changes of a project, without one change standing in two tasks."""

    name = "review"
    category = "review"
    languages: tuple[str, ...] = LANGUAGES

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        for number, parts in enumerate(draw_changes(project, seed)):
            task_id = f"{project.name}/review/{number}"
            candidate = _ReviewCandidate(task_id, tuple(parts), seed)
            yield Candidate(task_id, lambda candidate=candidate: build(candidate, project, bench))


@dataclass(frozen=True)
class _ReviewCandidate:
    id: str
    parts: tuple[tuple[Tested, CodeSlice], ...]
    seed: int


def draw_changes(project: InstalledProject, seed: int) -> list[list[tuple[Tested, CodeSlice]]]:
    """Changes by fours. The first of each four has something to get wrong."""
    read = language_support(project)
    places = {place.path: place for place in read.tested(project)}
    found = [(places[path], part) for path in sorted(places) for part in read.slices(path, project.files[path], *LINES)]
    random.Random(f"review {project.name} {seed}").shuffle(found)
    return [found[at : at + CHANGES] for at in range(0, len(found) - CHANGES + 1, CHANGES)]


async def build(candidate: _ReviewCandidate, project: InstalledProject, bench: ProofContext) -> Task:
    rng = random.Random(f"{candidate.id} {candidate.seed}")
    # How many have defects: one, two or three of four, two on average.
    dirty = rng.choice((1, 2, 2, 3))
    kept, spoilt = await _defects(candidate, project, bench, dirty, rng)
    tests = {test for place, _ in candidate.parts for test in place.tests}
    files = apply_edits(project.files, [one.edit() for one in kept])
    reviewed = {f"{FOLDER}/change-{n}.txt": _diff(files, part) for n, (_, part) in enumerate(candidate.parts, 1)}
    files = {path: text for path, text in files.items() if path not in tests} | reviewed | {f"{FOLDER}/README.md": FORM}
    rows = [{"path": one.path, "line": one.line, "severity": "high", "text": _sentence(one.what)} for one in kept]
    draft = ProjectTaskDraft(
        id=candidate.id,
        category=Review.category,
        level=f"{spoilt}-of-{len(candidate.parts)}",
        generator=Review.name,
        grader=GRADER,
        facts=_facts(len(candidate.parts)),
        demand=f"Write comments to `{COMMENTS}` in the form that `{FOLDER}/README.md` describes.",
        files=files,
        solution={COMMENTS: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)},
        hidden={
            "path": COMMENTS,
            "defects": [{"path": one.path, "first": one.line, "last": one.line, "what": one.what} for one in kept],
            "recall": RECALL,
            "precision": PRECISION,
        },
        editable=(COMMENTS,),
        operators=tuple(sorted({one.operator for one in kept})),
        metadata={"changes": sorted(reviewed), "clean": len(candidate.parts) - spoilt},
    )
    return await prove_draft_task(draft, project, bench)


async def _defects(
    candidate: _ReviewCandidate, project: InstalledProject, bench: ProofContext, dirty: int, rng: random.Random
) -> tuple[list[Defect], int]:
    """Defects in up to `dirty` of the changes, and in how many changes they are. Raises CandidateRejected without any."""
    kept: list[Defect] = []
    spoilt = 0
    for place, part in rng.sample(candidate.parts, len(candidate.parts)):
        if spoilt == dirty:
            break
        found = await _shown(place, part, rng, MutantTrial(project, place.tests, bench))
        kept += found
        spoilt += bool(found)
    if not kept:
        raise CandidateRejected(
            "the project's tests show no defect in any of the changes: what is wrong would be a matter of opinion"
        )
    return kept, spoilt


async def _shown(place: Tested, part: CodeSlice, rng: random.Random, trial: MutantTrial) -> list[Defect]:
    """One or two defects of the part, on lines apart; none where the tests show none."""
    text = trial.project.files[place.path]
    known = language_support(trial.project).defects(place.path, text)
    found = [one for one in known if part.first <= one.line <= part.last]
    rng.shuffle(found)
    kept = await trial.noticed_defects(
        found, await trial.right_outcome(), wanted=2 if rng.random() < 0.3 else 1, tried=TRIED
    )
    apart = abs(kept[0].line - kept[-1].line) > 2 * NEAR_LINES + 1 if len(kept) == 2 else True
    return kept if apart else kept[:1]


def _diff(files: dict[str, str], part: CodeSlice) -> str:
    """The change as a reviewer gets it, its lines those of the tree as it is."""
    after = files[part.path]
    rows = difflib.unified_diff(
        cut_part(after, part).splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{part.path}",
        f"b/{part.path}",
    )
    return "".join(row if row.endswith("\n") else f"{row}\n" for row in rows)


def _facts(count: int) -> Facts:
    return Facts(
        headline=f"review the changes in `{FOLDER}/` and say which lines are wrong",
        place=f"`{FOLDER}/`, with {count} changes as unified diffs; the code is the tree as it is after all of them",
        steps=(f"Read the diffs and the code around them; `{FOLDER}/README.md` says how comments are written",),
        expected=f"`{COMMENTS}` with a comment on each defect, and none where nothing is wrong",
        notes=("Some of the changes are right as they are", "Only defects count, not style", "Change no code"),
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

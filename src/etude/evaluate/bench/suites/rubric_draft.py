"""Criteria for a task, drafted by an endpoint from the request, its solutions and what the repository says of its conventions.

A draft is a proposal: what becomes a rubric is shown by `rubric_proof.py`. It is read as strictly as a verdict: one JSON object, two to five
criteria of ordered choices in the format of `grading/rubric.py`; what does not count is asked again with the objection, twice at most.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.message import Message
from etude.evaluate.bench.grading.answer import objects
from etude.evaluate.bench.grading.judge import ATTEMPTS
from etude.evaluate.bench.grading.judged_attempt import shorten
from etude.evaluate.bench.grading.judgement import QuestionCost
from etude.evaluate.bench.grading.rubric import Rubric, RubricError, rubric_of

FEWEST, MOST = 2, 5
MAX_TOKENS = 4096
# A window holds the request, two or three solutions and the conventions; beyond it the middle is left out and said so.
SOLUTION_CHARS, CONVENTION_CHARS = 24_000, 8_000
SEES = ["request", "diff"]  # what a solution out of a history has: no message, no log
_NAME = re.compile(r"[a-z][a-z0-9_]{1,39}")
_KEYS = {"name", "question", "choices"}
_CONVENTIONS = re.compile(
    r"(?i)^(AGENTS\.md|CLAUDE\.md|CONTRIBUTING(\.\w+)?|STYLE\w*\.md|\.cursorrules|\.cursor/rules/[^/]+|\.editorconfig"
    r"|\.github/(CONTRIBUTING|copilot-instructions)\.md|docs/(contributing|style\w*)\.(md|rst))$"
)


@dataclass
class RubricDraft:
    """What an endpoint proposed; without a rubric `silent` says why. `tally` holds the cost of the questions."""

    rubric: Rubric | None = None
    silent: str = ""
    tally: QuestionCost = field(default_factory=QuestionCost)


class RubricDraftError(ValueError):
    """Why a draft does not count, in words that its author is shown."""


def conventions(files: Mapping[str, str]) -> dict[str, str]:
    """What a repository says of how code in it is written, by file."""
    return {path: files[path] for path in sorted(files) if _CONVENTIONS.match(path)}


async def draft_rubric(
    policy: Policy, name: str, request: str, diffs: Sequence[str], convention_files: Mapping[str, str]
) -> RubricDraft:
    """A rubric called `name`, not proved yet. Raises PolicyError where the endpoint is at fault."""
    messages = [Message("system", _prompt()), Message("user", material(request, diffs, convention_files))]
    session = f"rubric-{hashlib.sha256(messages[1].text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
    draft = RubricDraft()
    try:
        for _ in range(ATTEMPTS):
            answer = await policy.complete(
                Request(session, tuple(messages), max_tokens=MAX_TOKENS, temperature=0.0, seed=0)
            )
            draft.tally.add(answer.usage)
            said = answer.message.text if answer.message else ""
            try:
                draft.rubric = read_draft(said, name)
                return draft
            except RubricDraftError as error:
                draft.silent = f"{ATTEMPTS} answers did not count; the last: {error}"
                again = f"That answer does not count: {error}. Answer again with the JSON object only."
                messages += [Message("assistant", said), Message("user", again)]
    except PolicyError as error:
        if error.infra:
            raise
        draft.silent = f"the endpoint refused: {error}"
    finally:
        await policy.release(session)
    return draft


def material(request: str, diffs: Sequence[str], convention_files: Mapping[str, str]) -> str:
    """All that a draft is made of, each part between marks that no text in it can close."""
    parts = {"request": request}
    parts |= {f"conventions {path}": shorten(text, CONVENTION_CHARS) for path, text in convention_files.items()}
    parts |= {f"solution {number}": shorten(diff, SOLUTION_CHARS) for number, diff in enumerate(diffs, 1)}
    whole = "\0".join(f"{name}\0{text}" for name, text in parts.items())
    mark = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return "\n\n".join(f"<<<{name} {mark}\n{text or '(empty)'}\n{mark}>>>" for name, text in parts.items())


def read_draft(text: str, name: str) -> Rubric:
    """The rubric of an answer: of the last object that has just criteria, since a model may think aloud first. Raises Refused."""
    found = [one for one in objects(text) if list(one) == ["criteria"]]
    if not found:
        raise RubricDraftError('there is no JSON object with exactly the key "criteria" in your answer')
    rows = found[-1]["criteria"]
    if not isinstance(rows, list) or not FEWEST <= len(rows) <= MOST:
        raise RubricDraftError(f'"criteria" must be a list of {FEWEST} to {MOST} objects')
    try:
        return rubric_of({"name": name, "criteria": [_criterion(row) for row in rows]}, "the draft")
    except RubricError as error:
        raise RubricDraftError(str(error)) from error


def _criterion(row: Any) -> dict[str, Any]:
    if not isinstance(row, dict) or set(row) != _KEYS:
        raise RubricDraftError(f"each criterion has exactly the keys name, question and choices, not {str(row)[:120]}")
    if not isinstance(row["name"], str) or not _NAME.fullmatch(row["name"]):
        raise RubricDraftError(f"a name has 2 to 40 small letters, digits and _, not {str(row['name'])[:60]!r}")
    return {**row, "sees": SEES}


def _prompt() -> str:
    return (Path(__file__).parent / "prompts" / "rubric.md").read_text(encoding="utf-8").strip()

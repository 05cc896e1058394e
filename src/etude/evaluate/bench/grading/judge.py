"""A judge: any policy, asked one criterion a call, blind to the author and to what the tests said.

What it answers is read strictly (`answer.py`). An answer that does not count is asked again with the objection, twice at most; then the
criterion is not judged, which is reported and never a score of 0. A pair is asked in both orders: where they disagree it is a tie.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.completion import Usage
from etude.core.trace.message import Message
from etude.evaluate.bench.grading.answer import Objection, read_answer
from etude.evaluate.bench.grading.judged_attempt import JudgedAttempt
from etude.evaluate.bench.grading.judgement import Judgement, JudgementFile, QuestionCost
from etude.evaluate.bench.grading.rubric import Criterion, Part, Rubric
from etude.evaluate.bench.grading.together import gather_all

ATTEMPTS = 3
# A sentence and a word; the rest is room for a model that thinks first.
MAX_TOKENS = 2048
Price = Callable[[Usage], float | None]
DISAGREE = "the orders disagree"  # how a tie begins that comes of a preference for a place


class JudgeSilent(Exception):
    """A criterion that no answer decided; says what was wrong with the last one."""


class Judge:
    """`price` turns usage into dollars; without it none are shown. Infra trouble of the endpoint raises PolicyError: run again, what was
    judged is kept."""

    def __init__(
        self,
        policy: Policy,
        file: JudgementFile,
        *,
        price: Price = lambda usage: None,
        concurrency: int = 4,
        max_tokens: int = MAX_TOKENS,
    ) -> None:
        if policy.takes_tokens:
            raise ValueError(
                f"the policy {policy.name} takes tokens; a judge must take messages: serve it behind an endpoint"
            )
        self.name = policy.name
        self.file = file
        self.policy = policy
        self.price = price
        self._max_tokens = max_tokens
        self._slots = asyncio.Semaphore(concurrency)
        self._asking: dict[str, asyncio.Lock] = {}  # the same question at the same time is asked once

    async def criterion(self, rubric: Rubric, criterion: Criterion, attempt: JudgedAttempt, subject: str) -> Judgement:
        """One criterion of one attempt. Never raises JudgeSilent: the judgement says it."""
        if criterion.kind != "single":
            raise ValueError(f"{criterion.name} compares two attempts; ask `pair`")
        asked = f"{attempt.marked_parts(criterion.sees)}\n\n{_question(criterion)}\nChoices, worst first: {json.dumps(criterion.choices)}"
        return await self._judged(rubric, criterion, "judge", asked, criterion.choices, subject)

    async def rubric(self, rubric: Rubric, attempt: JudgedAttempt, subject: str) -> list[Judgement]:
        """All criteria of one attempt that can be decided of it alone, each in a call of its own."""
        single = [one for one in rubric.criteria if one.kind == "single"]
        return await gather_all(self.criterion(rubric, one, attempt, subject) for one in single)

    async def pair(
        self, rubric: Rubric, criterion: Criterion, first: JudgedAttempt, second: JudgedAttempt, subject: str
    ) -> Judgement:
        """Which of two attempts at one request is better: value 1 the first, 0 the second, 0.5 a tie, or the two orders disagree."""
        if criterion.kind != "pair":
            raise ValueError(f"{criterion.name} is about one attempt; ask `criterion`")
        orders = ((first, second, f"{subject} in order"), (second, first, f"{subject} swapped"))
        one, other = await gather_all(self._order(rubric, criterion, *order) for order in orders)
        return _agreed(one, other, criterion, subject)

    async def _order(
        self, rubric: Rubric, criterion: Criterion, a: JudgedAttempt, b: JudgedAttempt, subject: str
    ) -> Judgement:
        parts: list[Part] = [part for part in criterion.sees if part != "request"]
        shown = [a.marked_parts(("request",))] if "request" in criterion.sees else []
        shown += [a.marked_parts(parts, "first"), b.marked_parts(parts, "second")]
        return await self._judged(
            rubric, criterion, "pair", "\n\n".join([*shown, _question(criterion)]), criterion.choices, subject
        )

    async def _judged(
        self, rubric: Rubric, criterion: Criterion, prompt: str, asked: str, choices: tuple[str, ...], subject: str
    ) -> Judgement:
        opening = [Message("system", _prompt(prompt)), Message("user", asked)]
        key = self._key(opening, choices)
        async with self._asking.setdefault(key, asyncio.Lock()):
            if (known := self.file.get(key)) is not None:
                return replace(known, subject=subject)  # attempts that ended alike share a judgement
            tally, choice, reason, silent = QuestionCost(), None, "", ""
            async with self._slots:
                try:
                    reason, choice = await self._decided(opening, choices, key, tally)
                except JudgeSilent as error:
                    silent = str(error)
            row = Judgement(
                key, self.name, rubric.name, criterion.name, subject, choice,
                None if choice is None else criterion.value(choice), reason, silent,
                dollars=None if tally.unreported else self.price(tally.usage), **asdict(tally),
            )  # fmt: skip
            self.file.add(row)
            return row

    async def _decided(
        self, opening: list[Message], choices: tuple[str, ...], key: str, tally: QuestionCost
    ) -> tuple[str, str]:
        """Reason and choice; raises JudgeSilent, and PolicyError where the endpoint is at fault."""
        messages, objection = list(opening), ""
        try:
            for _ in range(ATTEMPTS):
                request = Request(
                    f"judge-{key[:24]}", tuple(messages), max_tokens=self._max_tokens, temperature=0.0, seed=0
                )
                answer = await self.policy.complete(request)
                tally.add(answer.usage)
                said = answer.message or Message("assistant")
                try:
                    return read_answer(said.text, choices)
                except Objection as error:
                    objection = str(error)
                    again = f"That answer does not count: {objection}. Answer again with the JSON object only."
                    messages += [Message("assistant", said.text), Message("user", again)]
        except PolicyError as error:
            if error.infra:
                raise
            raise JudgeSilent(f"the judge refused: {error}") from error
        finally:
            await self.policy.release(f"judge-{key[:24]}")
        raise JudgeSilent(f"{ATTEMPTS} answers did not count; the last: {objection}")

    def _key(self, messages: list[Message], choices: tuple[str, ...]) -> str:
        asked = [self.name, self._max_tokens, list(choices), [message.to_json() for message in messages]]
        return hashlib.sha256(json.dumps(asked, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


def _agreed(one: Judgement, other: Judgement, criterion: Criterion, subject: str) -> Judgement:
    """Both orders as one judgement. Its own cost is nothing: both orders are in the file with theirs."""
    swapped = {"first": "second", "second": "first", "tie": "tie", None: None}[other.choice]
    key = hashlib.sha256(f"{one.key} {other.key}".encode()).hexdigest()
    if one.choice is None or swapped is None:
        silent = one.silent or other.silent
        return Judgement(
            key, one.judge, one.rubric, one.criterion, subject, None, None, silent=silent, tries=0, dollars=0.0
        )
    choice = one.choice if one.choice == swapped else "tie"
    reason = one.reason if one.choice == swapped else f"{DISAGREE}: {one.reason} / {other.reason}"
    value = criterion.value(choice)
    return Judgement(key, one.judge, one.rubric, one.criterion, subject, choice, value, reason, tries=0, dollars=0.0)


def _question(criterion: Criterion) -> str:
    return f"The property is {criterion.name}: {criterion.question}"


def _prompt(name: str) -> str:
    return (Path(__file__).parent / "prompts" / f"{name}.md").read_text(encoding="utf-8").strip()

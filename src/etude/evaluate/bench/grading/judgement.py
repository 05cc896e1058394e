"""What a judge said of one criterion of one attempt, and the append-only file that lets a resumed run ask nothing twice.

A judgement's key is the hash of all that was asked and of the judge, so another prompt, rubric, attempt or judge is another question.
Its cost is recorded here and nowhere else: the agents' own cost is not mixed with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from etude.core.files import append_lines
from etude.core.trace.completion import Usage
from etude.evaluate.bench.grading.rubric import Rubric


@dataclass(frozen=True)
class Judgement:
    """One criterion decided, or not: then `choice` and `value` are None and `silent` says why."""

    key: str
    judge: str
    rubric: str
    criterion: str
    subject: str  # the attempt: task#pass, or two of them for a pair
    choice: str | None
    value: float | None  # in [0, 1]
    reason: str = ""
    silent: str = ""
    tries: int = 1
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0  # tries whose usage the endpoint left out
    dollars: float | None = None  # None: no prices, or usage was left out


@dataclass(frozen=True)
class JudgeCost:
    """What judging cost so far. `dollars` is None if some of it has no price."""

    judgements: int = 0
    silent: int = 0
    tries: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0
    dollars: float | None = 0.0


class JudgementFile:
    """JSON lines. A last line torn by a kill is cut off when the file is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._known = {row.key: row for row in self._load()}

    def get(self, key: str) -> Judgement | None:
        """What was said to this question before."""
        return self._known.get(key)

    def add(self, row: Judgement) -> None:
        """Keep it. Raises OSError if the disk has no room for the whole line."""
        line = (json.dumps(asdict(row), ensure_ascii=False) + "\n").encode()
        append_lines(self.path, line, durable=False)
        self._known[row.key] = row

    @property
    def rows(self) -> list[Judgement]:
        return list(self._known.values())

    def _load(self) -> list[Judgement]:
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            with open(self.path, "r+b") as file:
                file.truncate(len(whole))
        try:
            return [Judgement(**json.loads(line)) for line in whole.splitlines()]
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{self.path} holds a line that is no judgement ({error}); move the file away") from error


def cost_of(rows: Iterable[Judgement]) -> JudgeCost:
    """The sum over judgements."""
    rows = list(rows)
    priced = [row.dollars for row in rows]
    return JudgeCost(
        len(rows),
        sum(row.choice is None for row in rows),
        sum(row.tries for row in rows),
        sum(row.input_tokens for row in rows),
        sum(row.cached_tokens for row in rows),
        sum(row.output_tokens for row in rows),
        sum(row.unreported for row in rows),
        None if any(one is None for one in priced) else round(sum(one for one in priced if one is not None), 6),
    )


@dataclass
class QuestionCost:
    """The cost of one question over its tries."""

    tries: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    unreported: int = 0

    def add(self, usage: Usage) -> None:
        self.tries += 1
        self.input_tokens += usage.input_tokens
        self.cached_tokens += usage.cached_tokens
        self.output_tokens += usage.output_tokens
        self.unreported += usage.input_tokens + usage.output_tokens == 0

    @property
    def usage(self) -> Usage:
        return Usage(self.input_tokens, self.cached_tokens, self.output_tokens)


# An attempt's judged score out of its judgements, and what a report says where there is none.


NO_JUDGE = "not judged: no judge was given (--judge URL#MODEL)"


@dataclass(frozen=True)
class RubricScores:
    """`scores` by criterion; `silent`, why a criterion has none. `total` is the weighted mean, None unless every criterion was decided:
    a mean over what a judge happened to answer would be another quantity."""

    scores: dict[str, float] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    total: float | None = None


def combine_judgements(rubric: Rubric, judgements: Sequence[Judgement]) -> RubricScores:
    """The judgements of one attempt by the criteria of `rubric`. Without any, every criterion is silent for want of a judge."""
    single = [one for one in rubric.criteria if one.kind == "single"]
    found = {row.criterion: row for row in judgements if row.rubric == rubric.name}
    scores = {one.name: row.value for one in single if (row := found.get(one.name)) and row.value is not None}
    silent = {
        one.name: row.silent if (row := found.get(one.name)) else NO_JUDGE for one in single if one.name not in scores
    }
    weight = sum(one.weight for one in single)
    total = None if silent or not weight else sum(one.weight * scores[one.name] for one in single) / weight
    return RubricScores(scores, silent, total)

"""An attempt's judged score out of its judgements, and what a report says where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from etude.evaluate.bench.grading.judgement import Judgement
from etude.evaluate.bench.grading.rubric import Rubric

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

"""Retrieval checks: lookups (`learn/corpus/lookup.py`) answered by likelihood, by length of the context and depth of the answer in it.

The choices are compared over as many first tokens as tell them apart, so a long answer is not worth less than a short one.
Chance is one in CHOICES. Two checkpoints of one tokenizer answer the same questions, so their difference is paired by target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from etude.learn.corpus.lookup import LookupQuestion
from etude.learn.corpus.lookup_line import CHOICES
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import padded_batch

# Tokens of one forward pass, as rows side by side: the activations of a wide model stay below a few hundred MiB.
BATCH_TOKENS = 8192
RESAMPLES = 2000
CHANCE = 1 / CHOICES
Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class RetrievalScores:
    """A question each: `right` (Q,) 1 or 0; `margin` (Q,) nats by which the right choice is likelier than the wrong ones on average,
    0 for a model that can't find it; `nats` (Q,) of the whole right answer, in which knowing code counts as well."""

    questions: tuple[LookupQuestion, ...]
    right: np.ndarray
    margin: np.ndarray
    nats: np.ndarray

    @property
    def figures(self) -> dict[str, np.ndarray]:
        """What is averaged, by name."""
        return {"accuracy": self.right, "margin": self.margin, "nats": self.nats}

    def cells(self) -> list[dict[str, Any]]:
        """A row for each kind, length and depth, and for each kind and length with depth None: all its depths together."""
        keys = {(q.kind, q.length, depth) for q in self.questions for depth in (q.depth, None)}
        return [self._cell(*key) for key in sorted(keys, key=lambda k: (k[0], k[1], -1 if k[2] is None else k[2]))]

    def _cell(self, kind: str, length: int, depth: float | None) -> dict[str, Any]:
        at = _at(self.questions, kind, length, depth)
        place = {"kind": kind, "length": length, "depth": depth, "questions": len(at), "chance": CHANCE}
        return place | _averaged(self.figures, self.questions, at)


@torch.inference_mode()
def retrieve(model: CausalLM, encode: Encode, questions: Sequence[LookupQuestion]) -> RetrievalScores:
    """Raises ValueError for no question at all, and where one is longer than the model's positions."""
    if not questions:
        raise ValueError("there is no lookup to answer: the held-out files hold too few functions; hold out more code")
    found = np.zeros((len(questions), 3))
    asked = [_PreparedQuestion.of(question, encode) for question in questions]
    for batch in _batches(asked):
        for number, answered in zip(batch, _answer(model, [asked[n] for n in batch]), strict=True):
            found[number] = answered
    return RetrievalScores(tuple(questions), *found.T)


def differences(before: RetrievalScores, after: RetrievalScores) -> list[dict[str, Any]]:
    """After minus before for each kind and length: each figure with its 95% interval."""
    if before.questions != after.questions:
        raise ValueError("the two checkpoints answered different questions: ask both the same, with one tokenizer")
    changes = {name: values - before.figures[name] for name, values in after.figures.items()}
    rows: list[dict[str, Any]] = []
    for kind, length in sorted({(q.kind, q.length) for q in before.questions}):
        at = _at(before.questions, kind, length, None)
        place = {"kind": kind, "length": length, "questions": len(at)}
        rows.append(place | _averaged(changes, before.questions, at))
    return rows


@dataclass(frozen=True)
class _PreparedQuestion:
    """Token ids: the context, and the choices, the right one first; `compared` first tokens of each tell them apart."""

    text: list[int]
    choices: list[list[int]]
    compared: int

    @classmethod
    def of(cls, question: LookupQuestion, encode: Encode) -> _PreparedQuestion:
        choices = [encode(answer) for answer in (question.line.answer, *question.line.others)]
        compared = 1
        while len({tuple(choice[:compared]) for choice in choices}) < len(choices):
            compared += 1
        return cls(encode(question.text), choices, compared)

    @property
    def rows(self) -> list[list[int]]:
        """The right answer whole; of the others what leads up to the last token compared, if anything does."""
        rest = [choice[: self.compared - 1] for choice in self.choices[1:]] if self.compared > 1 else []
        return [self.text + end for end in (self.choices[0], *rest)]


def _batches(asked: Sequence[_PreparedQuestion]) -> Iterator[list[int]]:
    """Questions of like length, some at a time."""
    batch: list[int] = []
    rows = 0
    for number in sorted(range(len(asked)), key=lambda n: len(asked[n].text)):
        one = asked[number].rows
        if batch and (rows + len(one)) * len(one[0]) > BATCH_TOKENS:
            yield batch
            batch, rows = [], 0
        batch.append(number)
        rows += len(one)
    yield batch


def _answer(model: CausalLM, asked: Sequence[_PreparedQuestion]) -> list[tuple[float, float, float]]:
    """Whether the right choice is likelier than all others, by how much than their mean, and nats of the whole right answer."""
    rows = [np.asarray(row) for one in asked for row in one.rows]
    batch = padded_batch(rows, [np.ones(len(row), np.float32) for row in rows])
    wanted = torch.zeros_like(batch.real)
    starts = [len(one.text) - 1 for one in asked for _ in one.rows]  # the state that predicts the first token
    for row, start in enumerate(starts):
        wanted[row, start : len(rows[row])] = True
    logits = model(batch.ids, batch.mask(), logits_at=wanted).logits
    of_rows = iter(torch.log_softmax(logits.float(), -1).split(wanted.sum(1).tolist()))
    return [_compare(one, [next(of_rows) for _ in one.rows]) for one in asked]


def _compare(one: _PreparedQuestion, logprobs: Sequence[torch.Tensor]) -> tuple[float, float, float]:
    """`logprobs` (n, V) of each row, from the first token of its end on."""

    def score(row: int, ids: Sequence[int]) -> float:
        return float(logprobs[row][torch.arange(len(ids)), torch.as_tensor(ids)].sum())

    scores = [score(n if one.compared > 1 else 0, choice[: one.compared]) for n, choice in enumerate(one.choices)]
    margin = scores[0] - sum(scores[1:]) / len(scores[1:])
    return float(scores[0] > max(scores[1:])), margin, -score(0, one.choices[0])


def _averaged(
    figures: Mapping[str, np.ndarray], questions: Sequence[LookupQuestion], at: Sequence[int]
) -> dict[str, Any]:
    """Mean and 95% interval of each figure over the questions in `at`."""
    groups = _groups(questions, at)
    means = {name: float(values[at].mean()) for name, values in figures.items()}
    return means | {f"{name}_ci95": _interval(values, groups) for name, values in figures.items()}


def _at(questions: Sequence[LookupQuestion], kind: str, length: int, depth: float | None) -> list[int]:
    return [n for n, q in enumerate(questions) if (q.kind, q.length) == (kind, length) and depth in (None, q.depth)]


def _groups(questions: Sequence[LookupQuestion], at: Sequence[int]) -> list[list[int]]:
    """Questions of one target together: they share their answer, so they are drawn together."""
    groups: dict[int, list[int]] = {}
    for number in at:
        groups.setdefault(questions[number].target, []).append(number)
    return list(groups.values())


def _interval(values: np.ndarray, groups: Sequence[Sequence[int]], seed: int = 0) -> tuple[float, float]:
    """95% interval of the mean, by a bootstrap over targets."""
    sums = np.array([values[group].sum() for group in groups])
    counts = np.array([len(group) for group in groups])
    drawn = np.random.default_rng(seed).integers(0, len(groups), (RESAMPLES, len(groups)))
    low, high = np.percentile(sums[drawn].sum(1) / counts[drawn].sum(1), [2.5, 97.5])
    return float(low), float(high)

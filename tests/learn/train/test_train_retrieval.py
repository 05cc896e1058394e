"""Retrieval is scored by likelihood: a model that copies finds everything, one that guesses a quarter; differences are paired."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from etude.learn.corpus.lookup import LookupQuestion
from etude.learn.corpus.lookup_line import LookupLine
from etude.learn.train.retrieval import CHANCE, RetrievalScores, differences, retrieve

VOCABULARY = 40
LETTERS = " abcdefghijklmnopqrstuvwxyz()_,#\n123456"


def encode(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def question(
    target: int = 0, length: int = 64, depth: float = 0.5, right: str = "cat)", others=("dog)", "emu)", "fox)")
):
    functions = {"one": right, "two": others[0], "six": others[1], "ten": others[2]}
    text = "".join(f"def {name}({end}\n" for name, end in functions.items()) + "#def one("
    return LookupQuestion("definition", target, length, depth, text, LookupLine("def one(", right, tuple(others)))


class Copier:
    """Gives the token that stood behind the last five before, e.g. what stood behind `one(`, a thousand times the others' chance."""

    def __call__(self, ids, mask, logits_at):
        logits = torch.zeros(*ids.shape, VOCABULARY)
        for b, row in enumerate(ids.tolist()):
            for t in range(5, len(row)):
                for back in range(t - 1, 3, -1):
                    if row[back - 4 : back + 1] == row[t - 4 : t + 1]:
                        logits[b, t, row[back + 1]] = 7.0
                        break
        return SimpleNamespace(logits=logits[logits_at])


def test_a_model_that_copies_finds_every_answer() -> None:
    questions = [
        question(),
        question(right="cab)", others=("cat)", "can)", "car)")),
    ]  # distinct at once, or by the third letter
    found = retrieve(Copier(), encode, questions)  # type: ignore[arg-type]
    assert found.right.all() and (found.nats < 0.5).all() and (found.margin > 3).all()


def test_a_model_that_guesses_finds_a_quarter() -> None:
    def guess(ids, mask, logits_at):
        return SimpleNamespace(logits=torch.randn(int(logits_at.sum()), VOCABULARY, generator=generator))

    generator = torch.Generator().manual_seed(0)
    found = retrieve(guess, encode, [question(target) for target in range(400)])  # type: ignore[arg-type]
    (cell, _) = found.cells()
    assert cell["margin_ci95"][0] < 0 < cell["margin_ci95"][1]
    assert abs(cell["accuracy"] - CHANCE) < 0.08 and cell["accuracy_ci95"][0] < CHANCE < cell["accuracy_ci95"][1]


@pytest.mark.parametrize("others", [("dog)", "emu)", "fox)"), ("cab)", "can)", "ca)")])
def test_likelihoods_are_those_of_whole_sequences(model, others: tuple[str, str, str]) -> None:
    asked = question(others=others)
    found = retrieve(model, encode, [asked, question(1)])

    def nats(answer: str, first: int) -> float:
        ids = torch.tensor([encode(asked.text + answer)])
        logp = torch.log_softmax(model(ids).logits[0].detach(), -1)[:-1].gather(-1, ids[0, 1:, None])[:, 0]
        return -float(logp[-len(answer) :][:first].sum())

    assert found.nats[0] == pytest.approx(nats("cat)", 4), abs=1e-4)
    compared = 1 if others[0] == "dog)" else 3
    wrong = [nats(other, compared) for other in others]
    assert found.right[0] == all(nats("cat)", compared) < other for other in wrong)
    assert found.margin[0] == pytest.approx(sum(wrong) / 3 - nats("cat)", compared), abs=1e-4)


def scored(right: list[bool], nats: list[float], lengths: list[int]) -> RetrievalScores:
    questions = tuple(question(target=n // 3, length=length, depth=n % 3 / 2) for n, length in enumerate(lengths))
    return RetrievalScores(questions, np.array(right, float), np.zeros(len(right)), np.array(nats, float))


def test_cells_are_means_by_length_and_depth() -> None:
    found = scored([True, False, True, True, True, False], [1, 2, 3, 4, 5, 6], [64] * 6)
    cells = {cell["depth"]: cell for cell in found.cells()}
    assert cells[None]["questions"] == 6 and cells[None]["accuracy"] == pytest.approx(4 / 6)
    assert (cells[0.5]["accuracy"], cells[0.5]["nats"]) == (0.5, 3.5)


def test_a_difference_is_paired_by_target_at_each_length() -> None:
    rng = np.random.default_rng(0)
    nats, lengths = rng.uniform(1, 100, 120), [64] * 60 + [256] * 60
    before = scored([False] * 120, list(nats), lengths)
    after = scored([False] * 60 + [True] * 60, list(nats - 0.5), lengths)
    short, long = differences(before, after)
    assert (short["length"], short["accuracy"], long["accuracy"]) == (64, 0.0, 1.0)
    assert long["nats"] == pytest.approx(-0.5) and long["nats_ci95"] == pytest.approx((-0.5, -0.5))


def test_answers_to_other_questions_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different questions"):
        differences(scored([True], [1], [64]), scored([True], [1], [65]))


def test_no_question_is_refused(model) -> None:
    with pytest.raises(ValueError, match="no lookup to answer"):
        retrieve(model, encode, [])

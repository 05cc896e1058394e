"""An answer's likelihood is the product of its tokens' after the question, whatever else is in the batch."""

import pytest
import torch

from etude.learn.train.likelihood import answer_nats


def test_it_equals_one_question_at_a_time_by_hand(model):
    questions = [[1, 2, 3], [4], *([n % 40 for n in range(k)] for k in range(5, 14))]
    answers = [[5, 6], [7, 8, 9], *([11] * (1 + k % 3) for k in range(5, 14))]
    found = answer_nats(model, questions, answers)
    for nats, question, answer in zip(found, questions, answers, strict=True):
        logp = torch.log_softmax(model(torch.tensor([question + answer])).logits[0].detach(), -1)
        wanted = -sum(float(logp[len(question) + k - 1, token]) for k, token in enumerate(answer))
        assert nats == pytest.approx(wanted, abs=1e-4)


def test_nothing_to_predict_from_is_named(model):
    for question, answer in (([], [1]), ([1], [])):
        with pytest.raises(ValueError, match="has no tokens"):
            answer_nats(model, [question], [answer])

"""How likely a model holds given answers to be, each behind its own question."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import padded_batch, predicting_states
from etude.learn.train.losses import token_logprobs

ROWS = 8  # questions side by side


@torch.inference_mode()
def answer_nats(model: CausalLM, questions: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]) -> np.ndarray:
    """(N,) summed negative log-likelihood of each answer's tokens behind its question's. Raises ValueError for an empty one."""
    if any(not question or not answer for question, answer in zip(questions, answers, strict=True)):
        raise ValueError(
            "a question or an answer has no tokens: there is nothing to predict from, or nothing to predict"
        )
    nats = np.zeros(len(questions))
    order = sorted(range(len(questions)), key=lambda n: len(questions[n]) + len(answers[n]))
    for start in range(0, len(order), ROWS):
        chosen = order[start : start + ROWS]
        rows = [np.asarray([*questions[n], *answers[n]]) for n in chosen]
        asked = [np.repeat([0.0, 1.0], [len(questions[n]), len(answers[n])]) for n in chosen]
        batch = padded_batch(rows, asked).to(model.embed.weight.device)
        out = model(batch.ids, batch.mask(), logits_at=torch.zeros_like(batch.real))
        hidden, targets = predicting_states(out.hidden, batch.ids, batch.weights > 0)
        owners = np.repeat(chosen, [len(answers[n]) for n in chosen])
        np.add.at(nats, owners, -token_logprobs(hidden, targets, model.head).double().cpu().numpy())
    return nats

"""Loss on sessions that were held out: what is left to learn of how the teacher acts, and the measure that ablations plot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from etude.core.trace.segment import Segment
from etude.learn.corpus.packing import bucket_by_length
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import padded_batch, predicting_states
from etude.learn.train.learnable import fit_segments, learnable
from etude.learn.train.losses import token_logprobs
from etude.learn.train.sources import token_weights

BATCH_TOKENS = 8192  # of one forward pass, padded: its activations stay below a few hundred MiB


@torch.inference_mode()
def session_loss(model: CausalLM, segments: Sequence[Segment]) -> float | None:
    """Mean nats of a sampled token; None without any. Tokens that tools or people wrote are context only. Raises SessionTooLong."""
    short = fit_segments(segments, model.config.context_length, "stop", lambda line: None, "held-out segment")
    held, _ = learnable(short, lambda segment: token_weights(segment, 0.0, 0.0))
    nats, tokens = 0.0, 0
    for chosen in bucket_by_length(np.array([len(s) for s in held], np.int64), BATCH_TOKENS, 0, 0) if held else []:
        rows = [held[i] for i in chosen]
        weights = [token_weights(row, observation_weight=0.0, prompt_weight=0.0) for row in rows]
        batch = padded_batch([np.asarray(row.ids) for row in rows], weights)
        out = model(batch.ids, batch.mask(), logits_at=torch.zeros_like(batch.real))
        hidden, targets = predicting_states(out.hidden, batch.ids, batch.weights > 0)
        nats -= float(token_logprobs(hidden, targets, model.head).sum())
        tokens += len(targets)
    return nats / tokens if tokens else None

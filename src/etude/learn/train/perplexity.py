"""Codebase perplexity as the Composer 2 report has it (appendix B): all files in alphabetical order, one stream of tokens, the negative
log-likelihood summed over a rolling window. Lower is better; bits a byte compare models of different tokenizers.

A window of W tokens moves by S: of each but the first only the last S tokens count, so every token of the stream but the first is predicted
once, with at least W - S tokens before it (fewer at the very beginning). Files follow each other without a mark, as in the
report; a window reads over their ends, since the content of one file helps with the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.batch import padded_batch, predicting_states
from etude.learn.train.losses import token_logprobs

# Tokens of one forward pass, as windows side by side: the activations of a wide model stay below a few hundred MiB.
BATCH_TOKENS = 8192
RESAMPLES = 2000


@dataclass(frozen=True)
class CodebasePerplexity:
    """`nats` (F,) summed negative log-likelihood and `byte_counts` (F,) of each file, in the order of the stream."""

    nats: np.ndarray
    byte_counts: np.ndarray
    tokens: int  # predicted ones

    @property
    def total_nats(self) -> float:
        """The report's figure."""
        return float(self.nats.sum())

    @property
    def bits_per_byte(self) -> float:
        return self.total_nats / math.log(2) / int(self.byte_counts.sum())

    @property
    def perplexity(self) -> float:
        """e to the mean of the negative log-likelihood of a token."""
        return math.exp(self.total_nats / self.tokens)

    def ci95(self, seed: int = 0) -> tuple[float, float]:
        """95% interval of the bits a byte, by a bootstrap over files."""
        rng = np.random.default_rng(seed)
        drawn = rng.integers(0, len(self.nats), (RESAMPLES, len(self.nats)))
        bits = self.nats[drawn].sum(1) / math.log(2) / self.byte_counts[drawn].sum(1)
        low, high = np.percentile(bits, [2.5, 97.5])
        return float(low), float(high)


@dataclass(frozen=True)
class PerplexityDifference:
    """Of two checkpoints on the same files: bits a byte of the second minus those of the first, with its 95% interval, by a bootstrap over files."""

    bits_per_byte: float
    ci95: tuple[float, float]


def difference(before: CodebasePerplexity, after: CodebasePerplexity, seed: int = 0) -> PerplexityDifference:
    """Below 0 if `after` is better. Paired by file. Raises ValueError if the files or their tokens were not the same."""
    if not np.array_equal(before.byte_counts, after.byte_counts) or before.tokens != after.tokens:
        raise ValueError(
            f"{len(before.nats)} files of {before.tokens} tokens and {len(after.nats)} of {after.tokens}: a difference needs the "
            "same files and one tokenizer"
        )
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(before.nats), (RESAMPLES, len(before.nats)))
    bits = (after.nats - before.nats) / math.log(2)
    low, high = np.percentile(bits[drawn].sum(1) / before.byte_counts[drawn].sum(1), [2.5, 97.5])
    return PerplexityDifference(float(bits.sum() / before.byte_counts.sum()), (float(low), float(high)))


@torch.inference_mode()
def codebase_perplexity(
    model: CausalLM,
    files: Sequence[Sequence[int]],
    byte_counts: Sequence[int],
    *,
    window: int,
    stride: int,
    done: Callable[[int], None] = lambda tokens: None,
) -> CodebasePerplexity:
    """`files` are token ids, one list a file, in alphabetical order of their paths; `done` hears how many tokens of them are read.

    Raises ValueError for a window that the model can't read."""
    if not 1 <= stride < window:
        raise ValueError(
            f"a stride of {stride} with a window of {window}: the stride is at least 1 and below the window"
        )
    if window > model.config.context_length:
        raise ValueError(
            f"a window of {window} tokens, but the checkpoint's positions end at {model.config.context_length}: take a smaller window"
        )
    stream = np.concatenate([np.asarray(ids, np.int64) for ids in files]) if files else np.empty(0, np.int64)
    if len(stream) < 2:
        raise ValueError(f"{len(files)} files hold {len(stream)} tokens: there is nothing to predict")
    owner = np.repeat(np.arange(len(files)), [len(ids) for ids in files])
    nats = np.zeros(len(files))
    for starts in _batches(len(stream), window, stride):
        rows = [stream[start : start + window] for start in starts]
        counted = [_counted(start, len(row), window, stride) for start, row in zip(starts, rows, strict=True)]
        batch = padded_batch(rows, counted)
        out = model(batch.ids, batch.mask(), logits_at=torch.zeros_like(batch.real))
        hidden, targets = predicting_states(out.hidden, batch.ids, batch.weights > 0)
        owners = np.concatenate([owner[s : s + len(c)][c > 0] for s, c in zip(starts, counted, strict=True)])
        np.add.at(nats, owners, -token_logprobs(hidden, targets, model.head).double().numpy())
        done(min(starts[-1] + window, len(stream)))
    return CodebasePerplexity(nats, np.asarray(byte_counts, np.int64), len(stream) - 1)


def _batches(length: int, window: int, stride: int) -> Iterator[list[int]]:
    """First tokens of the windows, some windows at a time."""
    starts = [0, *range(stride, max(length - window + stride, stride), stride)] if length > window else [0]
    together = max(1, BATCH_TOKENS // window)
    for first in range(0, len(starts), together):
        yield starts[first : first + together]


def _counted(start: int, length: int, window: int, stride: int) -> np.ndarray:
    """(T,) 1 for the tokens that this window is the first to predict."""
    counted = np.zeros(length, np.float32)
    counted[1 if start == 0 else window - stride :] = 1
    return counted

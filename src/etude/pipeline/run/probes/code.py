"""Perplexity and loss by position of each phase's checkpoint on held-out projects: the same files and tokens for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from etude.learn.corpus.shards import DONE_FILE, TokenShards
from etude.learn.corpus.tokenizer import Tokenizer, encode_documents
from etude.learn.model.causal_lm import CausalLM
from etude.learn.train.by_position import loss_by_position
from etude.learn.train.perplexity import CodebasePerplexity, codebase_perplexity, difference

WINDOWS = 8  # of one document: a long project tells no more than its share

File = tuple[str, str]  # path and text


def evenly(files: Sequence[File], most_bytes: int) -> list[File]:
    """Files at even distances in the order given, as many as stay within `most_bytes`; at least one."""
    sizes = [len(text.encode()) for _, text in files]
    share = min(1.0, most_bytes / sum(sizes))
    marks = np.floor(np.arange(len(files) + 1) * share)
    chosen = [n for n in range(len(files)) if marks[n + 1] > marks[n]]
    while len(chosen) > 1 and sum(sizes[n] for n in chosen) > most_bytes:
        chosen.pop(max(range(len(chosen)), key=lambda place: sizes[chosen[place]]))  # one huge file is not the sample
    return [files[n] for n in chosen]


def perplexities(
    models: Mapping[str, CausalLM], tokenizer: Tokenizer, files: Sequence[File], windows: Sequence[int]
) -> dict[str, Any]:
    """`perplexity` by phase in the first window, `perplexity_long` in the last, each with paired differences of neighbouring phases."""
    texts = [text for _, text in files]
    ids, sizes = list(encode_documents(tokenizer, texts)), [len(text.encode()) for text in texts]
    found: dict[str, Any] = {}
    for key, window in zip(("perplexity", "perplexity_long"), windows, strict=True):
        measured = {
            phase: codebase_perplexity(model, ids, sizes, window=window, stride=window // 2)
            for phase, model in models.items()
        }
        found[key] = {phase: _phase_fields(entry, window, len(files)) for phase, entry in measured.items()}
        found[f"{key}_paired"] = paired_differences(measured)
    return found


def paired_differences(measured: Mapping[str, CodebasePerplexity]) -> dict[str, Any]:
    """Each phase minus the one before it."""
    names = list(measured)
    pairs = zip(names, names[1:], strict=False)
    return {f"{after}_minus_{before}": asdict(difference(measured[before], measured[after])) for before, after in pairs}


def _phase_fields(found: CodebasePerplexity, window: int, files: int) -> dict[str, Any]:
    return {
        "bits_per_byte": found.bits_per_byte,
        "ci95": found.ci95(),
        "nats": found.total_nats,
        "perplexity": found.perplexity,
        "tokens": found.tokens,
        "window": window,
        "stride": window // 2,
        "files": files,
    }


def by_position(models: Mapping[str, CausalLM], heldout: Path, length: int, most: int) -> dict[str, Any]:
    """Rows (start, stop, nats a token, low, high) by phase; empty if no held-out document is as long."""
    documents = list(_long_documents(heldout, length, most))
    if not documents:
        return {}
    rows: dict[str, list[dict[str, Any]]] = {
        phase: loss_by_position(model, documents, length).rows() for phase, model in models.items()
    }
    return {phase: [[row["from"], row["to"], row["loss"], *row["ci95"]] for row in of] for phase, of in rows.items()}


def _long_documents(heldout: Path, length: int, most: int) -> Iterator[list[int]]:
    """The first windows of at most `most` documents, of every source in turn."""
    sources = [TokenShards(path.parent) for path in sorted(heldout.glob(f"*.projects/{DONE_FILE}"))]
    long = [(shards, [n for n in range(len(shards)) if shards.lengths[n] >= length]) for shards in sources]
    for place in range(max((len(numbers) for _, numbers in long), default=0)):
        for shards, numbers in long:
            if place < len(numbers) and most > 0:
                most -= 1
                yield shards.document(numbers[place])[: WINDOWS * length].tolist()

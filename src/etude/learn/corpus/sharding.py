"""Documents to token shards, a folder for each source and form, with some of the documents as samples for people.

Resumable by folder: one that is finished is not made again. Memory holds a batch of documents and of their ids.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from etude.learn.corpus.shards import DONE_FILE, ShardWriter, TokenShards

SAMPLES = "samples.json"
SAMPLED = 8  # documents of each folder that are kept as they were
SAMPLE_CHARS = 3_000  # of each: about a screen and a half
# Texts encoded at once: enough for every core, few enough that their ids fit in memory together with them.
BATCH_DOCUMENTS, BATCH_CHARS = 256, 4_000_000
Document = dict[str, Any]  # as `export` gives it: `text` or `pieces`, and where it is from
PROVENANCE = ("source", "project", "version", "path", "language", "licence")


class Encoder:
    """A tokenizer with the number of entries that its ids stay below. What has been counted is not encoded again soon after."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = max(tokenizer.get_vocab().values()) + 1  # some tokenizers leave ids out
        self._counted: dict[str, list[int]] = {}  # since the batch before

    def count(self, text: str) -> int:
        """Tokens of a text."""
        return len(self._encode([text])[0])

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, kept for when they are asked for by `ids`."""
        found = self._encode(texts)
        self._counted.update(zip(texts, found, strict=True))
        return list(map(len, found))

    def ids(self, documents: Iterable[Document]) -> Iterator[tuple[Document, list[int]]]:
        """Special tokens come from `pieces` alone, never out of text, whatever it spells."""
        for batch in _batches(documents):
            texts = {piece for document in batch for piece in _pieces(document) if isinstance(piece, str)}
            new = [text for text in texts if text not in self._counted]
            known = self._counted | dict(zip(new, self._encode(new), strict=True))
            self._counted = {}
            for document in batch:
                pieces = _pieces(document)
                yield document, [i for p in pieces for i in (known[p] if isinstance(p, str) else [p["special"]])]

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [found.ids for found in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def shard(folder: Path, form: str, documents: Iterable[Document], encoder: Encoder) -> TokenShards | None:
    """The documents as shards in `folder`; None, and no folder, where there is no document."""
    if (folder / DONE_FILE).is_file():
        return TokenShards(folder)
    encoded = encoder.ids(documents)
    first = next(encoded, None)
    if first is None:
        return None
    writer = ShardWriter(folder, encoder.vocabulary)
    drawn, samples = random.Random(folder.name), list[Document]()
    try:
        for number, (document, ids) in enumerate(_again(first, encoded)):
            writer.add(ids, sum(len(p.encode()) for p in _pieces(document) if isinstance(p, str)))
            place = number if number < SAMPLED else drawn.randrange(number + 1)  # every document as likely as another
            if place < SAMPLED:
                samples[place : place + 1] = [_sample(document, form, encoder.tokenizer)]
        (folder / SAMPLES).write_text(json.dumps(samples) + "\n")
        return writer.finish()
    finally:
        writer.close()


def samples(folders: Iterable[Path], count: int) -> list[Document]:
    """Of every folder's samples as many as of the next one's, in turn, `count` in all."""
    kept = [json.loads((folder / SAMPLES).read_text()) for folder in folders]
    turns = [found[turn] for turn in range(SAMPLED) for found in kept if turn < len(found)]
    return turns[:count]


def _sample(document: Document, form: str, tokenizer: Tokenizer) -> Document:
    text = "".join(p if isinstance(p, str) else tokenizer.id_to_token(p["special"]) or "" for p in _pieces(document))
    cut = text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "…"
    return {"text": cut, "form": form, **{key: document.get(key, "") for key in PROVENANCE}}


def length_buckets(shards: Iterable[TokenShards]) -> list[list[int]]:
    """[[tokens, documents], …]: how many documents are no longer than each power of two and longer than the one before."""
    lengths = np.concatenate([np.zeros(0, np.int64), *(found.lengths for found in shards)])
    exponents = np.ceil(np.log2(lengths)).astype(np.int64)
    return [[2**n, count] for n, count in enumerate(np.bincount(exponents).tolist()) if count]


def _pieces(document: Document) -> list[Any]:
    return document.get("pieces") or [document["text"]]


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    chars = 0
    for document in documents:
        batch.append(document)
        chars += sum(len(piece) for piece in _pieces(document) if isinstance(piece, str))
        if len(batch) == BATCH_DOCUMENTS or chars > BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _again(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest

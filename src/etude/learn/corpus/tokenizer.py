"""Trains the one tokenizer of a run: byte-level BPE, lossless for any text.

Pre-tokenisation shapes what a merge may join, so that copying and counting are easy for a very small model: every digit
is a token alone; a newline with its indent is one token; a word, an operator run or a digit may carry one leading space.
Underscores open a new piece (`count_items` is `count` + `_items`), so held-out names are made of known parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from etude.agent.chat.tokenizer_file import read_tokenizer

# Alternatives in order: newline + indent in steps of four (up to 16); one digit; a word; punctuation; spaces.
# ` +(?!\S)` leaves the last space of a run to the word behind it, as in GPT-2.
PIECES = r"\n(?: {4}){0,4}| ?[0-9]| ?_*[A-Za-z]+| ?[^\sA-Za-z0-9]+| +(?!\S)|\s"

# In the byte-level alphabet a space is Ġ and a newline Ċ. These merges come first, whatever the text says, so that
# `\n` + 4, 8, 12, 16 spaces are one token each, and all ten digits alike are one token with and without a space.
SPACE, NEWLINE = "Ġ", "Ċ"
FIRST_MERGES = [
    (SPACE, SPACE),
    (SPACE * 2, SPACE * 2),
    (NEWLINE, SPACE * 4),
    *((NEWLINE + SPACE * width, SPACE * 4) for width in (4, 8, 12)),
    *((SPACE, digit) for digit in "0123456789"),
]


# Texts encoded at once: enough for every core, few enough that their ids fit in memory together with the texts.
BATCH = 64


def train_tokenizer(texts: Iterable[str], special: Sequence[str], vocabulary_size: int) -> Tokenizer:
    """A tokenizer whose first ids are `special` in order, then 256 bytes, then merges up to `vocabulary_size`."""
    learner = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - len(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,  # a pair seen once is a name, not a pattern
    )
    learner.train_from_iterator(texts, trainer)
    return _assemble(_merges(learner), special, vocabulary_size)


def load_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of a checkpoint directory, set to treat special-token text inside content as plain text."""
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise FileNotFoundError(f"no tokenizer at {path}; run the base stage or name another checkpoint directory")
    tokenizer = read_tokenizer(path)
    tokenizer.encode_special_tokens = True  # not stored in the file
    return tokenizer


def encode_documents(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[list[int]]:
    """Ids of each text, with special-token text treated as plain text."""
    waiting = iter(texts)
    while batch := list(islice(waiting, BATCH)):
        yield from (found.ids for found in tokenizer.encode_batch_fast(batch, add_special_tokens=False))


def _assemble(merges: list[tuple[str, str]], special: Sequence[str], size: int) -> Tokenizer:
    vocabulary = {token: i for i, token in enumerate(special)}
    for symbol in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[symbol] = len(vocabulary)
    kept: list[tuple[str, str]] = []
    for left, right in dict.fromkeys([*FIRST_MERGES, *merges]):
        if left + right not in vocabulary:
            if len(vocabulary) == size:
                break
            vocabulary[left + right] = len(vocabulary)
        # A dropped merge may have been a part of a later one: keep only what can be reached.
        if left in vocabulary and right in vocabulary:
            kept.append((left, right))
    tokenizer = _byte_level(models.BPE(vocab=vocabulary, merges=kept))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.encode_special_tokens = True
    return tokenizer


def _byte_level(model: models.BPE) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    return tokenizer


def _merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]

"""More merges for a byte-pair tokenizer that exists: learnt from text of one's own, put behind those it has.

Byte-pair encoding applies its merges in the order of their ranks, and no old merge has a new token for a part; so text is first encoded as
it always was, and the new merges join what came out. An old id means what it meant, in every text. (Training a new tokenizer on both
texts would give better merges and other ids: a trained checkpoint would have to learn its alphabet again.)
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tokenizers import Tokenizer

Pair = tuple[str, str]


class CannotExtend(Exception):
    """The tokenizer is of a kind that can't be extended in this way; the message says why."""


def learn_merges(tokenizer: Tokenizer, texts: Iterable[str], count: int) -> list[Pair]:
    """Up to `count` merges, the most frequent first; fewer where no pair is seen twice. Raises CannotExtend.

    Memory: the distinct words of the texts."""
    if type(tokenizer.model).__name__ != "BPE" or tokenizer.pre_tokenizer is None:
        raise CannotExtend(
            f"merges can be added to a byte-pair tokenizer that parts text into words; this is {type(tokenizer.model).__name__}"
            f"{'' if tokenizer.pre_tokenizer else ' without a pre-tokenizer'}: add special tokens alone, or train a new one"
        )
    known = set(tokenizer.get_vocab())
    words = [(parts, n) for parts, n in _words(tokenizer, texts) if len(parts) > 1]
    counts: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for number, (parts, n) in enumerate(words):
        for pair in zip(parts, parts[1:], strict=False):
            counts[pair] += n
            places[pair].add(number)
    heap = [(-n, pair) for pair, n in counts.items()]
    heapq.heapify(heap)
    found: list[Pair] = []
    while heap and len(found) < count:
        n, pair = heapq.heappop(heap)
        if counts[pair] != -n:  # it has changed since: if it still counts, it is in the heap again
            continue
        if -n < 2:  # a pair seen once is a name, not a pattern
            break
        if pair[0] + pair[1] in known:  # a token of another way to the same text: no id is given twice
            continue
        known.add(pair[0] + pair[1])
        found.append(pair)
        for changed in _merge(pair, words, counts, places):
            heapq.heappush(heap, (-counts[changed], changed))
    return found


def _words(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[list[str], int]]:
    """Each distinct word as the tokens that it has now, and how often it occurs in the texts."""
    seen: Counter[str] = Counter()
    for text in texts:
        if tokenizer.normalizer is not None:
            text = tokenizer.normalizer.normalize_str(text)
        seen.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))  # type: ignore[union-attr]
    for word, n in sorted(seen.items()):
        yield [token.value for token in tokenizer.model.tokenize(word)], n


def _merge(
    pair: Pair, words: list[tuple[list[str], int]], counts: Counter[Pair], places: defaultdict[Pair, set[int]]
) -> set[Pair]:
    """Joins the pair wherever it occurs; returns the pairs whose counts have changed."""
    changed: set[Pair] = set()
    for number in sorted(places.pop(pair)):
        parts, n = words[number]
        for old in zip(parts, parts[1:], strict=False):
            counts[old] -= n
            changed.add(old)
        joined: list[str] = []
        for part in parts:
            # Left to right, as encoding does: of three alike the first two are joined.
            if joined and (joined[-1], part) == pair:
                joined[-1] += part
            else:
                joined.append(part)
        parts[:] = joined
        for new in zip(parts, parts[1:], strict=False):
            counts[new] += n
            places[new].add(number)
            changed.add(new)
    changed.discard(pair)
    return {one for one in changed if counts[one] > 0}

"""A tokenizer with more tokens than it had: special ones, and merges of domain text. Every old token keeps its id and its meaning.

New ids follow the highest old one. A loader gives special tokens that the model's own vocabulary lacks the ids behind its size, which
would move once merges are added to it; so all added tokens are written into that vocabulary too, where no merge leads to them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer

from etude.learn.corpus.merges import CannotExtend, Pair


def extend_tokenizer(tokenizer: Tokenizer, special: Sequence[str] = (), merges: Sequence[Pair] = ()) -> Tokenizer:
    """A new tokenizer; special tokens that it has already stay as they are. Raises CannotExtend."""
    described = json.loads(tokenizer.to_str())
    model, added = described["model"], described["added_tokens"]
    if model["type"] != "BPE":
        raise CannotExtend(
            f"a tokenizer of kind {model['type']} can't be extended: name one that joins byte pairs (BPE)"
        )
    vocabulary: dict[str, int] = model["vocab"] | {token["content"]: token["id"] for token in added}
    following = max(vocabulary.values()) + 1
    for token in special:
        if token not in vocabulary:
            vocabulary[token] = following
            following += 1
        if token not in {one["content"] for one in added}:
            added.append(_special(token, vocabulary[token]))
    for left, right in merges:
        if left + right in vocabulary:
            raise CannotExtend(f"the merge of {left!r} and {right!r} makes a token that exists: leave it out")
        vocabulary[left + right] = following
        following += 1
        model["merges"].append([left, right])
    model["vocab"] = vocabulary
    added.sort(key=lambda token: token["id"])
    found = Tokenizer.from_str(json.dumps(described))
    found.encode_special_tokens = True
    return found


def spell_new_ids(old: Tokenizer, new: Tokenizer) -> dict[int, list[int]]:
    """Each new id with the old ids that it takes the place of, for the first value of its row.

    Of a merge these are the old tokens that it joins, byte by byte: a token that is a part of a character has no text, and would decode to
    U+FFFD. Of a special token these are the tokens of its text.
    """
    old.encode_special_tokens = True
    known = old.get_vocab()
    taken = set(known.values())
    merges = {left + right: (left, right) for left, right in reversed(_merges(new))}
    found: dict[int, list[int]] = {}
    for token, number in sorted(new.get_vocab().items(), key=lambda item: item[1]):
        if number not in taken:
            parts = _parts(token, known, merges)
            found[number] = parts or old.encode(_text(new, number), add_special_tokens=False).ids
    return found


def compression(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """Bytes of UTF-8 a token; nan where there is no text."""
    size = tokens = 0
    for text in texts:
        size += len(text.encode())
        tokens += len(tokenizer.encode(text, add_special_tokens=False).ids)
    return size / tokens if tokens else float("nan")


def _merges(tokenizer: Tokenizer) -> list[Pair]:
    """In the order of their ranks; older files write a merge as one string."""
    rows = json.loads(tokenizer.to_str())["model"].get("merges", [])
    pairs = (row.split(" ") if isinstance(row, str) else row for row in rows)
    return [(left, right) for left, right in pairs]


def _parts(token: str, known: dict[str, int], merges: dict[str, Pair]) -> list[int]:
    """The old ids that merges lead from to `token`, from left to right; empty if it is made by none."""
    found: list[int] = []
    waiting = [token]
    while waiting:
        part = waiting.pop()
        if part in known:
            found.append(known[part])
        elif part in merges:
            left, right = merges[part]
            waiting += [right, left]
        else:
            return []
    return found


def _text(tokenizer: Tokenizer, number: int) -> str:
    return tokenizer.decode([number], skip_special_tokens=False) or str(tokenizer.id_to_token(number))


def _special(content: str, number: int) -> dict[str, object]:
    marks = ("single_word", "lstrip", "rstrip", "normalized")
    return {"id": number, "content": content, **dict.fromkeys(marks, False), "special": True}

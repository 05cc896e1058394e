"""What can be said about a tokenizer before a run is spent on it: that it loses nothing, that no text forges a special token, that it
belongs to its checkpoint, that an extended one kept its old ids, and how many of its tokens no text reaches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from etude.learn.weights.hf_files import read_object

# What tokenizers lose: tabs and runs of blanks (metaspace), letters in two forms (NFC), lone line ends, bytes without a token.
PROBES = (
    "def f(x):\n\tif x  ==  1:\n        return 'é→😀'\n\n",
    "e\u0301 \ufb01 \u212b",
    " a  b   c ",
    "\r\n\r\x00\x7f\u00a0\u2028",
    "日本語のコード", "<0x41> ▁ Ġ Ċ",
)  # fmt: skip
SHOWN = 5  # of a list of findings: enough to see the kind


class TokenizerMismatch(Exception):
    """The tokenizer and the checkpoint don't belong together; the message says what shows it."""


@dataclass(frozen=True)
class TokenizerCheck:
    """`lost` are texts that don't come back; `forged` special tokens that text can make; `moved` tokens of the older tokenizer with
    another id now; `unreachable` counts tokens that no text is encoded to."""

    entries: int
    special: int
    unreachable: int
    lost: list[str] = field(default_factory=list)
    forged: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether a run may use it."""
        return not (self.lost or self.forged or self.moved)


def check(tokenizer: Tokenizer, texts: Iterable[str] = (), older: Tokenizer | None = None) -> TokenizerCheck:
    """Reads all of `texts`."""
    tokenizer.encode_special_tokens = True
    added = {n: token.content for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    lost = [text[:80] for text in (*PROBES, *texts) if _back(tokenizer, text) != text]
    forged = [
        content
        for number, content in added.items()
        if number in tokenizer.encode(f"{content} x{content}", add_special_tokens=False).ids
    ]
    before = {} if older is None else older.get_vocab()
    moved = [token for token, number in before.items() if tokenizer.token_to_id(token) != number]
    unreachable = sum(
        not _reachable(tokenizer, token, n) for token, n in tokenizer.get_vocab().items() if n not in added
    )
    return TokenizerCheck(
        tokenizer.get_vocab_size(), len(added), unreachable, lost[:SHOWN], forged, sorted(moved)[:SHOWN]
    )


def check_belongs(folder: Path, tokenizer: Tokenizer) -> None:
    """Raises TokenizerMismatch unless every id has a row and the ids that config.json names mean special tokens."""
    config = read_object(folder / "config.json")
    highest = max(tokenizer.get_vocab().values())
    rows = config.get("vocab_size")
    if not isinstance(rows, int):
        raise TokenizerMismatch(f"{folder}: config.json has {rows!r} as vocab_size, where the number of rows belongs")
    if highest >= rows:
        raise TokenizerMismatch(
            f"{folder}: the tokenizer's ids go up to {highest}, the model has {rows} rows: they are not of one "
            "checkpoint; take the tokenizer.json that it was saved with, or `etude tokenizer extend --checkpoint`"
        )
    added = tokenizer.get_added_tokens_decoder()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        named = config.get(key)
        for number in named if isinstance(named, list) else [named] if named is not None else []:
            if number not in added:
                raise TokenizerMismatch(
                    f"{folder}: config.json names {number} as {key}, which is {tokenizer.id_to_token(number)!r} in tokenizer.json "
                    "and no special token: they are not of one checkpoint"
                )


def _back(tokenizer: Tokenizer, text: str) -> str:
    return tokenizer.decode(tokenizer.encode(text, add_special_tokens=False).ids, skip_special_tokens=False)


def _reachable(tokenizer: Tokenizer, token: str, number: int) -> bool:
    """Whether the token's own text is encoded as the token; a part of a character has no text and is asked of the model alone."""
    text = tokenizer.decode([number], skip_special_tokens=False)
    if text and "\ufffd" not in text:
        return tokenizer.encode(text, add_special_tokens=False).ids == [number]
    return [found.id for found in tokenizer.model.tokenize(token)] == [number]

"""A tokenizer of the `tokenizers` library as the `renderers` package wants one, with one difference: content is inert.

Templates spell their markers as text, and a Hugging Face tokenizer turns such text into marker tokens wherever it is, also
inside a file that an agent reads. `guard` marks every spelling of an added token inside content; `encode` gives marked text to
a twin without added tokens, so that content can never forge a role, a tool call or a tool result. Text without such spellings
becomes exactly the ids that it would become anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any, Iterable, Sequence

from tokenizers import AddedToken, Tokenizer

from etude.agent.chat.byte_ranks import TEKKEN, read_tekken, tokenizer_of_ranks
from etude.agent.chat.files import read_json
from etude.agent.chat.tokenizer_file import read_tokenizer

# Kimi's checkpoints ship their tokenizer as tiktoken.model and Python code; this reads it without running the code.
#
# The file holds a line a token: base64 bytes and rank. tiktoken joins the pair of lowest rank first; a merge list in
# the order of ranks does the same. Kimi's own tokenizer code defines how text is cut before that; the names of
# special tokens, which follow the ranks, in tokenizer_config.json.


FILE = "tiktoken.model"
# Kimi reserves this many ids behind the ranks; those without a name are <|reserved_token_ID|>.
RESERVED = 256
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
CUTS = "|".join(
    (
        r"[\p{Han}]+",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}",
        rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


def read_tiktoken(folder: Path) -> Tokenizer:
    """The folder's tokenizer. Raises ValueError if the file does not read."""
    ranks = _ranks(folder / FILE)
    tokenizer = tokenizer_of_ranks(ranks, CUTS)
    tokenizer.add_special_tokens(_special(folder, len(ranks)))
    return tokenizer


def _ranks(file: Path) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            piece, rank = line.split()
            ranks[base64.b64decode(piece, validate=True)] = int(rank)
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {line[:40]!r} is no token and rank; download it again") from error
    return ranks


def _special(folder: Path, first: int) -> list[AddedToken]:
    file = folder / "tokenizer_config.json"
    try:
        rows = read_json(file).get("added_tokens_decoder", {})
        named = {int(number): row["content"] for number, row in rows.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} names no special tokens ({error}); download it again") from error
    return [
        AddedToken(named.get(number, f"<|reserved_token_{number}|>"), special=True, normalized=False)
        for number in range(first, first + RESERVED)
    ]


# Encloses the number of a guarded word. The last private-use character; where content holds it, it is guarded as well.
MARK = "\U0010fffd"
_GUARDED = re.compile(f"{MARK}(\\d+){MARK}")


class HubTokenizer:
    """`encode`, `decode` and `convert_tokens_to_ids` as the package calls them."""

    eos_token_id = None
    unk_token_id = None

    def __init__(self, tokenizer: Tokenizer, name: str = "") -> None:
        self.name_or_path = name  # the package looks well-known names up here
        self._tokenizer = tokenizer
        # Gemma's tokenizer adds runs of blanks and HTML tags of its vocabulary too: those are plain text.
        ordinary = tokenizer.get_vocab(with_added_tokens=False)
        self.added = {
            token.content: number
            for number, token in tokenizer.get_added_tokens_decoder().items()
            if token.special or token.content not in ordinary
        }
        self._words = [MARK, *self.added]
        self._number = {word: i for i, word in enumerate(self._words)}
        self._risky = re.compile(any_of(self._words))
        self._markers = re.compile(any_of(self.added) if self.added else r"(?!)")
        self.size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    @classmethod
    def load(cls, folder: Path) -> HubTokenizer:
        """From a folder's tokenizer.json, Kimi's tiktoken.model or Mistral's tekken.json. Raises FileNotFoundError without any of them,
        ValueError if it does not read."""
        file = folder / "tokenizer.json"
        if not file.is_file() and (folder / TEKKEN).is_file():
            return cls(read_tekken(folder / TEKKEN))
        if not file.is_file() and (folder / FILE).is_file():
            return cls(read_tiktoken(folder))
        if not file.is_file():
            raise FileNotFoundError(
                f"no tokenizer.json in {folder}; save one with transformers: "
                "AutoTokenizer.from_pretrained(...).save_pretrained(...)"
            )
        return cls(read_tokenizer(file))

    def words(self) -> set[str]:
        """Every token as the vocabulary writes it."""
        return set(self._tokenizer.get_vocab(with_added_tokens=True))

    @property
    def serialized(self) -> str:
        """The whole tokenizer as JSON: some ten megabytes."""
        return self._tokenizer.to_str()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole tokenizer."""
        return hashlib.sha256(self.serialized.encode()).hexdigest()

    @cached_property
    def _plain(self) -> Tokenizer:
        """The twin that knows no marker. Made when the first guarded text comes."""
        rules = json.loads(self.serialized)
        kept = [token for token in rules["added_tokens"] if token["content"] not in self.added]
        return Tokenizer.from_str(json.dumps({**rules, "added_tokens": kept}))

    def guard(self, value: Any) -> Any:
        """Strings of JSON values with every spelling of an added token marked as content."""
        if isinstance(value, str):
            return self._risky.sub(lambda found: f"{MARK}{self._number[found[0]]}{MARK}", value)
        if isinstance(value, dict):
            return {self.guard(key): self.guard(item) for key, item in value.items()}
        return [self.guard(item) for item in value] if isinstance(value, list | tuple) else value

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids. Markers outside guarded text become their tokens; those that a post-processor adds never do."""
        if MARK not in text:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        ids: list[int] = []
        at = 0
        for found in self._markers.finditer(text):
            ids += [*self._literal(text[at : found.start()]), self.added[found[0]]]
            at = found.end()
        return ids + self._literal(text[at:])

    def _literal(self, text: str) -> list[int]:
        text = _GUARDED.sub(lambda found: self._words[int(found[1])], text)
        return self._plain.encode(text, add_special_tokens=False).ids if text else []

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """The text; markers as they are spelt, ids beyond the vocabulary as nothing."""
        known = [token for token in ids if 0 <= token < self.size]
        return self._tokenizer.decode(known, skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, tokens: str | list[str]) -> Any:
        """An id or ids; None for what is no token."""
        if isinstance(tokens, list):
            return [self._tokenizer.token_to_id(token) for token in tokens]
        return self._tokenizer.token_to_id(tokens)

    def vocabulary(self) -> list[str]:
        """Every token's text by id; a byte of a longer character shows as the vocabulary writes it, a gap as nothing."""
        texts = self._tokenizer.decode_batch([[i] for i in range(self.size)], skip_special_tokens=False)
        return [
            text if text and "\ufffd" not in text else self._tokenizer.id_to_token(i) or ""
            for i, text in enumerate(texts)
        ]


def any_of(words: Iterable[str]) -> str:
    """A regular expression for the longest of the words at a place, as a tree of their beginnings: a thousand reserved tokens
    cost no more to look for than a few."""
    tree: dict[str, Any] = {}
    for word in words:
        node = tree
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _branch(tree)


def _branch(node: dict[str, Any]) -> str:
    ends = "" in node
    paths = [re.escape(letter) + _branch(child) for letter, child in node.items() if letter]
    if not paths:
        return ""
    body = paths[0] if len(paths) == 1 and not ends else f"(?:{'|'.join(paths)})"
    return f"{body}?" if ends else body

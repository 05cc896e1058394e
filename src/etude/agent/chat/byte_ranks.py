"""Tokenizers that are stored as byte strings and ranks: those of Kimi's tiktoken.model, and Mistral's tekken.json.

tiktoken joins the pair of lowest rank first; a merge list in the order of ranks does the same. Devstral ships tekken.json in place of
tokenizer.json: ids begin with the special tokens, of which those without a name are `<SPECIAL_NUMBER>`, and the ranks follow them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

TEKKEN = "tekken.json"
# The special tokens of files that name none: those of versions 3 and 7.
_UNNAMED = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
    "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip


def tokenizer_of_ranks(
    ranks: dict[bytes, int], pattern: str, *, first: int = 0, named: Mapping[str, int] | None = None
) -> Tokenizer:
    """A tokenizer that cuts text by `pattern`. A token's id is its rank plus `first`; `named` are further tokens with ids of their own."""
    letters = _letters()
    written = {piece: "".join(letters[byte] for byte in piece) for piece in ranks}
    vocabulary = {written[piece]: rank + first for piece, rank in ranks.items()}
    model = models.BPE({**(named or {}), **vocabulary}, _merges(ranks, written))
    model.ignore_merges = True  # a piece that is a token is that token, however it could be joined
    tokenizer = Tokenizer(model)
    cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def _merges(ranks: dict[bytes, int], written: dict[bytes, str]) -> list[tuple[str, str]]:
    """Every way to join two tokens into one, in the order of what they become; of one token's ways, lower parts first."""
    ways = [
        (rank, ranks[piece[:at]], ranks[piece[at:]], written[piece[:at]], written[piece[at:]])
        for piece, rank in ranks.items()
        for at in range(1, len(piece))
        if piece[:at] in ranks and piece[at:] in ranks
    ]
    return [(left, right) for *_, left, right in sorted(ways)]


def _letters() -> list[str]:
    """The letter that represents each byte in byte-level vocabularies (GPT-2): itself if it can be seen, else one from 256 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256)]


def read_tekken(file: Path) -> Tokenizer:
    """The file's tokenizer. Raises ValueError if it does not read."""
    try:
        rows = json.loads(file.read_bytes())
        return _tokenizer(rows["config"], rows["vocab"], rows.get("special_tokens"))
    except Exception as error:  # a foreign file, and a library that raises nothing narrower
        raise ValueError(f"{file} is no tokenizer ({type(error).__name__}: {error}); download it again") from error


def _tokenizer(config: dict[str, Any], vocab: list[dict[str, Any]], special: list[dict[str, Any]] | None) -> Tokenizer:
    count = config["default_num_special_tokens"]
    names = dict(enumerate(_UNNAMED)) if special is None else {row["rank"]: row["token_str"] for row in special}
    words = [names.get(number, f"<SPECIAL_{number}>") for number in range(count)]
    ranks = {
        base64.b64decode(row["token_bytes"], validate=True): row["rank"]
        for row in vocab[: config["default_vocab_size"] - count]
    }
    named = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizer_of_ranks(ranks, config["pattern"], first=count, named=named)
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in words])
    return tokenizer

"""Kimi's checkpoints ship their tokenizer as tiktoken.model and Python code; this reads it without running the code.

The file holds a line a token: base64 bytes and rank. tiktoken joins the pair of lowest rank first; a merge list in the order of
ranks does the same. Kimi's own tokenizer code defines how text is cut before that; the names of special tokens, which follow
the ranks, in tokenizer_config.json.
"""

from __future__ import annotations

import base64
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from etude.agent.chat.files import read_json

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
    letters = _letters()
    written = {piece: "".join(letters[byte] for byte in piece) for piece in ranks}
    model = models.BPE({written[piece]: rank for piece, rank in ranks.items()}, _merges(ranks, written))
    model.ignore_merges = True  # a piece that is a token is that token, however it could be joined
    tokenizer = Tokenizer(model)
    cut = pre_tokenizers.Split(Regex(CUTS), "isolated")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, as_bytes])  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
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


def _merges(ranks: dict[bytes, int], written: dict[bytes, str]) -> list[tuple[str, str]]:
    """Every way to join two tokens into one, in the order of what they become; of one token's ways, lower parts first."""
    ways = [
        (rank, ranks[piece[:at]], ranks[piece[at:]], written[piece[:at]], written[piece[at:]])
        for piece, rank in ranks.items()
        for at in range(1, len(piece))
        if piece[:at] in ranks and piece[at:] in ranks
    ]
    return [(left, right) for *_, left, right in sorted(ways)]


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


def _letters() -> list[str]:
    """The letter that represents each byte in byte-level vocabularies (GPT-2): itself if it can be seen, else one from 256 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in seen else chr(next(hidden)) for byte in range(256)]

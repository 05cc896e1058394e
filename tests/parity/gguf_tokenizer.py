"""The tokenizer and the chat template inside a GGUF file, for the published models whose packages hold nothing else."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

# The types of metadata in a GGUF file that have a fixed size, as `struct` names them.
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
_MARKER = 3  # the type of a token that is a marker


def read_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a file."""
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path} is no GGUF file")
        _, _, count = struct.unpack("<IQQ", file.read(20))
        return {_text(file): _value(file, _number(file, "<I")) for _ in range(count)}


def smollm_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """A byte-level BPE that cuts digits apart, as SmolLM's tokenizer.json does."""
    words, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in metadata["tokenizer.ggml.merges"]]
    tokenizer: Any = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    cuts = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(cuts)  # pyright: ignore[reportArgumentType]
    tokenizer.decoder = decoders.ByteLevel()
    markers = [word for word, kind in zip(words, kinds, strict=True) if kind == _MARKER]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in markers])
    return tokenizer


def _number(file: BinaryIO, form: str) -> Any:
    return struct.unpack(form, file.read(struct.calcsize(form)))[0]


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "<Q")).decode()


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return _text(file)
    if kind == _LIST:
        inner, count = _number(file, "<I"), _number(file, "<Q")
        return [_value(file, inner) for _ in range(count)]
    return _number(file, _NUMBERS[kind])

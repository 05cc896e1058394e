"""A tokenizer.json of somebody else as a tokenizer, or an error of one type."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer


class DamagedTokenizer(ValueError):
    """A file that is no tokenizer; says which and what to do."""


def read_tokenizer(file: Path) -> Tokenizer:
    """Raises FileNotFoundError, DamagedTokenizer."""
    if not file.is_file():
        raise FileNotFoundError(f"no tokenizer at {file}; a checkpoint folder must hold tokenizer.json")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise DamagedTokenizer(f"{file} is no tokenizer ({error}); save it again or download it again") from error

"""What text the base and the tokenizer learn from."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class CorpusSettings(BaseModel):
    """Sources, cleaning limits, hold-out and the size of the vocabulary."""

    model_config = ConfigDict(extra="forbid")

    seed: int = Field(0, description="Order of the documents.")
    stdlib: bool = Field(True, description="Read the Python standard library of this machine.")
    folders: list[Path] = Field(default_factory=list, description="Further folders of text or code to read.")
    min_file_bytes: int = Field(64, ge=1, description="Smaller files are refused (reason: too small).")
    max_file_bytes: int = Field(64_000, ge=1, description="Larger files are refused (reason: too large).")
    max_code_bytes: int = Field(1_500_000, ge=0, description="Stop reading files after this many bytes are accepted.")
    max_line_chars: int = Field(400, ge=40, description="A longer line marks generated text (reason: long lines).")
    exercise_documents: int = Field(8_000, ge=0, description="Documents of the training exercises mixed into the text.")
    heldout_share: float = Field(0.02, ge=0, lt=1, description="Share of documents held out by hash for evaluation.")
    vocabulary_size: int = Field(768, ge=320, le=1024, description="Tokenizer entries, special tokens included.")
    exercise_weight: int = Field(4, ge=1, description="How often exercise text counts when merges are learnt.")

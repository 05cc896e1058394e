"""A checkpoint that is compared: a Hugging Face directory with its own tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from etude.learn.corpus.tokenizer import load_tokenizer
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, load_config
from etude.learn.model.config import ModelConfig
from etude.learn.weights.adapter_folder import CONFIG, adapted_checkpoint

PLAIN = "checkpoint"  # what a run calls the folder in each stage: no name to tell two apart by


class Incomparable(Exception):
    """What was asked can't be compared; the message says what and what to do instead."""


@dataclass(frozen=True)
class ComparedCheckpoint:
    """Its weights are read only when something is measured."""

    name: str
    folder: Path
    config: ModelConfig
    tokenizer: Tokenizer

    def load(self) -> CausalLM:
        """The model in fp32. Raises CheckpointError, or UnsupportedConfig."""
        return load_checkpoint(self.folder)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def identity(self) -> str:
        """Changes when any of its files does: small ones by content, weights by size and time (terabytes are not read for a name)."""
        digest, files = hashlib.sha256(), sorted(self.folder.iterdir())
        folder = self.folder
        while (joined := adapted_checkpoint(folder)) is not None:
            files += sorted(joined.adapter.iterdir())
            folder = joined.base
        for path in files:
            if path.suffix == ".safetensors":
                found = path.stat()
                digest.update(f"{path.name} {found.st_size} {found.st_mtime_ns}".encode())
            elif path.name in ("config.json", "tokenizer.json", CONFIG):
                digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()


def compared_checkpoints(folders: Sequence[Path]) -> list[ComparedCheckpoint]:
    """In the order asked. Raises CheckpointError or FileNotFoundError for a folder that lacks something, or Incomparable for a
    tokenizer that can write tokens which the model does not have."""
    found = []
    for folder, name in zip(folders, names(folders), strict=True):
        config, tokenizer = load_config(folder), load_tokenizer(folder)
        if tokenizer.get_vocab_size() > config.vocab_size:
            raise Incomparable(
                f"{folder}: the tokenizer has {tokenizer.get_vocab_size():,} entries, the model {config.vocab_size:,}: they are "
                "not of one checkpoint; copy the tokenizer.json that came with the weights"
            )
        found.append(ComparedCheckpoint(name, folder, config, tokenizer))
    return found


def names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart; `run/sft/checkpoint` is called `sft`. Raises Incomparable for one named twice."""
    places = [folder.absolute() for folder in folders]
    if len(set(places)) < len(places):
        raise Incomparable(f"one checkpoint is named twice: {', '.join(map(str, folders))}; name each once")
    parts = [(place.parent if place.name == PLAIN else place).parts[1:] for place in places]  # without the root
    for length in range(1, max(map(len, parts)) + 1):
        short = ["/".join(found[-length:]) for found in parts]
        if len(set(short)) == len(short):
            return short
    return [str(place) for place in places]  # a folder, and the `checkpoint` inside it

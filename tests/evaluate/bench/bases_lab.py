"""Small checkpoints of both families, each with a tokenizer of its own, and a repository that has a past."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings

BODY = "def total(items):\n    out = 0\n    for item in items:\n        out += item * {}\n    return out\n"


def checkpoint(folder: Path, family: str, merges: int, *, rows: int | None = None) -> Path:
    """256 bytes and `merges` pairs of letters; the model has as many rows unless `rows` says otherwise."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("e", letter) for letter in "abcdfghijklmnopqrstuvwxyz"][:merges]
    vocabulary = {token: place for place, token in enumerate([*alphabet, *(a + b for a, b in pairs)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    settings = ModelSettings.model_validate({
        "family": family, "hidden_size": 16, "layers": 2, "heads": 2, "kv_lora_rank": 8, "nope_dim": 4, "rope_dim": 4, "v_dim": 4,
        "kv_heads": 1, "head_dim": 8, "dense_intermediate": 32, "moe_intermediate": 8, "experts": 4, "experts_per_token": 2,
        "max_positions": 1024, "init_head_std": 0.2,
    })  # fmt: skip
    save_checkpoint(new_model(settings, rows or len(vocabulary)), folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def repository(folder: Path, versions: int = 4) -> Path:
    """Two files that changed in every commit but the first."""
    folder.mkdir(parents=True)
    _git(folder, "init", "-q", "-b", "main")
    for number in range(versions):
        for name in ("a", "b"):
            (folder / f"{name}.py").write_text(f"# {name}\n{BODY.format(number)}")
        _git(folder, "add", "-A")
        _git(folder, "commit", "-qm", "x")
    return folder


def _git(folder: Path, *words: str) -> None:
    names = {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**os.environ, **names, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, env=environment)

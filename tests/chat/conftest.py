"""Renderers over the tokenizer that needs no training, over a small trained one, and over one for each model family."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Callable

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from etude.chat import trajectories
from etude.chat.byte_tokenizer import byte_tokenizer
from etude.chat.families import FAMILIES, Family
from etude.chat.family import FamilyRenderer
from etude.chat.hub_tokenizer import HubTokenizer
from etude.chat.nano import NanoRenderer
from etude.chat.special import SPECIAL_TOKENS
from etude.corpus.tokenizer import train_tokenizer

TEXT = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"


def _trained() -> NanoRenderer:
    return NanoRenderer(train_tokenizer([TEXT] * 4, SPECIAL_TOKENS, 400))


@pytest.fixture(scope="session", params=["bytes", "trained"])
def renderer(request: pytest.FixtureRequest) -> NanoRenderer:
    return NanoRenderer(byte_tokenizer()) if request.param == "bytes" else _trained()


# Markers beyond those that a format can't do without, as the published tokenizers have them.
EXTRA = {
    "glm": ("<tool_response>", "</tool_response>"),
    "deepseek": ("<think>", "</think>"),
    "kimi": ("<think>", "</think>"),
}
# Text with the joins at which formats break: line breaks in a row, indentation, tags, JSON.
WORDS = [
    TEXT, trajectories.CODE, "\n\n", ">\n", "\n\n</", '{"name": "read_file", "arguments": {"path": "a.py"}}',
    "<function=read_file>\n<parameter=path>\na.py\n</parameter>\n</function>\n", "system\nuser\nassistant\n",
]  # fmt: skip


@cache
def family_tokenizer(name: str) -> Tokenizer:
    """A byte-level BPE with a family's markers: those with bars are special, those with plain tags are merely added."""
    family = next(family for family in FAMILIES if family.name == name)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    tokenizer.decoder = decoders.ByteLevel()  # pyright: ignore
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, initial_alphabet=alphabet)  # pyright: ignore
    tokenizer.train_from_iterator(WORDS * 20, trainer)
    extra = EXTRA.get(name.split("-")[0], ())
    for marker in dict.fromkeys((*family.markers, *extra, "<|reserved_1|>")):
        tagged = marker.startswith("<") and "|" not in marker and "｜" not in marker
        tokenizer.add_tokens([AddedToken(marker, special=not tagged, normalized=False)])
    return tokenizer


@cache
def family_renderer(name: str, retention: str = "tool_cycle") -> FamilyRenderer:
    family: Family = next(family for family in FAMILIES if family.name == name)
    return FamilyRenderer(family, HubTokenizer(family_tokenizer(name)), thinking_retention=retention)  # pyright: ignore


@pytest.fixture(scope="session")
def make_renderer() -> Callable[..., FamilyRenderer]:
    """The renderer of a family by name, over a small tokenizer of its own."""
    return family_renderer


@pytest.fixture(scope="session", params=[family.name for family in FAMILIES])
def real(request: pytest.FixtureRequest) -> FamilyRenderer:
    """Each family in turn."""
    return family_renderer(request.param)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Writes what `model check` reads of a checkpoint: tokenizer, config and template."""

    def write(name: str, model_type: str, template: str | None = None, **config: object) -> Path:
        tokenizer = family_tokenizer(name)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        rows = {"model_type": model_type, "vocab_size": tokenizer.get_vocab_size() + 8, **config}
        (tmp_path / "config.json").write_text(json.dumps(rows))
        if template is not None:
            (tmp_path / "chat_template.jinja").write_text(template)
        return tmp_path

    return write

"""Renderers over the tokenizer that needs no training, over a small trained one, and over one for each model family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Callable

import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.families import FAMILIES
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.special import SPECIAL_TOKENS
from etude.learn.corpus.tokenizer import train_tokenizer

TEXT = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"


def _trained() -> NanoRenderer:
    return NanoRenderer(train_tokenizer([TEXT] * 4, SPECIAL_TOKENS, 400))


@pytest.fixture(scope="session", params=["bytes", "trained"])
def renderer(request: pytest.FixtureRequest) -> NanoRenderer:
    return NanoRenderer(byte_tokenizer()) if request.param == "bytes" else _trained()


@pytest.fixture(scope="session", params=[family.name for family in FAMILIES])
def real(request: pytest.FixtureRequest, make_renderer: Callable[..., FamilyRenderer]) -> FamilyRenderer:
    """Each family in turn."""
    return make_renderer(request.param)


@pytest.fixture
def checkpoint(tmp_path: Path, make_renderer: Callable[..., FamilyRenderer]) -> Callable[..., Path]:
    """Writes what `model check` reads of a checkpoint: tokenizer, config and template."""

    def write(name: str, model_type: str, template: str | None = None, **config: object) -> Path:
        tokenizer = make_renderer(name)._tokenizer
        (tmp_path / "tokenizer.json").write_text(tokenizer.serialized)
        rows = {"model_type": model_type, "vocab_size": tokenizer.size + 8, **config}
        (tmp_path / "config.json").write_text(json.dumps(rows))
        if template is not None:
            (tmp_path / "chat_template.jinja").write_text(template)
        return tmp_path

    return write

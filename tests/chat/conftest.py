"""Renderers over the tokenizer that needs no training, and over a small trained one."""

from __future__ import annotations

import pytest

from etude.chat.byte_tokenizer import byte_tokenizer
from etude.chat.nano import NanoRenderer
from etude.chat.special import SPECIAL_TOKENS
from etude.corpus.tokenizer import train_tokenizer

TEXT = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"


def _trained() -> NanoRenderer:
    return NanoRenderer(train_tokenizer([TEXT] * 4, SPECIAL_TOKENS, 400))


@pytest.fixture(scope="session", params=["bytes", "trained"])
def renderer(request: pytest.FixtureRequest) -> NanoRenderer:
    return NanoRenderer(byte_tokenizer()) if request.param == "bytes" else _trained()

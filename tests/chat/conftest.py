"""Renderers over the tokenizer that needs no training, and over a small trained one."""

from __future__ import annotations

import pytest

from etude.chat.byte_tokenizer import byte_tokenizer
from etude.chat.nano import NanoRenderer
from etude.chat.special import SPECIAL_TOKENS
from etude.corpus.document import Document
from etude.corpus.settings import CorpusSettings
from etude.corpus.tokenizer import train_tokenizer

TEXT = "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n"


def _trained() -> NanoRenderer:
    documents = [Document(text=TEXT, source="exercise", name="a")]
    return NanoRenderer(train_tokenizer(documents, SPECIAL_TOKENS, CorpusSettings(vocabulary_size=400)))


@pytest.fixture(scope="session", params=["bytes", "trained"])
def renderer(request: pytest.FixtureRequest) -> NanoRenderer:
    return NanoRenderer(byte_tokenizer()) if request.param == "bytes" else _trained()

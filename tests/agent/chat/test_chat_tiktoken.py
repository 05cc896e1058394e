"""Kimi's tiktoken.model, read without its code: the same ids as tiktoken itself gives on any text."""

from __future__ import annotations

import base64
import json
import random
from functools import cache
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.chat.check import check_model
from etude.agent.chat.families import by_name
from etude.agent.chat.hub_tokenizer import CUTS, HubTokenizer

WORDS = "def total(items):\n    return sum(items)  # It's 完成了 42 naïve ÉTUDE's we'll\r\n\t\t  {'a': 12345}".encode()


def ranks() -> dict[bytes, int]:
    """All bytes, then joins of two tokens each, drawn from a text's own pieces: not those of a trained BPE, so that the order of
    merges is put to the test."""
    draw = random.Random(3)
    table = {bytes([byte]): byte for byte in range(256)}
    while len(table) < 600:
        at = draw.randrange(len(WORDS) - 1)
        size = draw.randrange(2, 7)
        piece = WORDS[at : at + size]
        parts = [piece[:cut] for cut in range(1, len(piece)) if piece[:cut] in table and piece[cut:] in table]
        if parts and piece not in table:
            table[piece] = len(table)
        elif draw.random() < 0.01:
            break
    return table


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kimi")
    lines = [base64.b64encode(piece) + b" %d" % rank for piece, rank in ranks().items()]
    (folder / "tiktoken.model").write_bytes(b"\n".join(lines) + b"\n")
    first = len(ranks())
    rows = {str(first + i): {"content": marker} for i, marker in enumerate(by_name("kimi-k2").markers)}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": rows}))
    (folder / "config.json").write_text(json.dumps({"model_type": "kimi_k2", "vocab_size": first + 256}))
    return folder


@pytest.fixture(scope="module")
def theirs() -> tiktoken.Encoding:
    return tiktoken.Encoding("kimi", pat_str=CUTS, mergeable_ranks=ranks(), special_tokens={})


pieces = st.sampled_from(
    ["def ", "It's", "完成", " 12345", "\n\n", "\r\n", "  ", "\t", "naïve", "ÉT", "we'LL", "{'a': ", "#"]
)
texts = st.lists(pieces | st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=12).map("".join)


@given(text=texts)
def test_ids_are_those_that_tiktoken_gives(folder: Path, theirs: tiktoken.Encoding, text: str) -> None:
    ours = _loaded(folder)
    assert ours.encode(text) == theirs.encode(text, disallowed_special=())
    assert ours.decode(ours.encode(text)) == text


def test_markers_follow_the_ranks_and_the_directory_is_sound(folder: Path) -> None:
    ours = _loaded(folder)
    assert ours.convert_tokens_to_ids("<|im_user|>") == len(ranks()) and ours.size == len(ranks()) + 256
    report = check_model(folder)
    assert report.sound and report.family == "kimi-k2"


def test_a_file_that_does_not_read_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "tiktoken.model").write_bytes(b"YQ== 0\nwhat is this\n")
    with pytest.raises(ValueError, match=r"tiktoken\.model, line 2: b'what is this' is no token and rank"):
        HubTokenizer.load(tmp_path)


@cache
def _loaded(folder: Path) -> HubTokenizer:
    return HubTokenizer.load(folder)

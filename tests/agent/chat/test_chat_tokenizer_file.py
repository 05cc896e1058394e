"""A damaged tokenizer.json is one typed error for every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.tokenizer_file import DamagedTokenizer
from etude.learn.corpus.tokenizer import load_tokenizer

READERS = (load_tokenizer, NanoRenderer.load, HubTokenizer.load)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"{}", b"[" * 100_000, b'{"model":' * 100_000, b"\xff", b'{"model": {"type": "BPE"}}'],
    ids=range(8),
)
def test_a_damaged_file_is_named(tmp_path: Path, reader, text: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(text)
    with pytest.raises(DamagedTokenizer, match=f"{tmp_path}/tokenizer.json is no tokenizer .* download it again"):
        reader(tmp_path)


@pytest.mark.parametrize("reader", READERS)
def test_a_missing_file_is_named(tmp_path: Path, reader) -> None:
    with pytest.raises(FileNotFoundError, match="tokenizer"):
        reader(tmp_path)

"""Mistral's tekken.json: the ids that tiktoken gives, behind the special tokens."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from etude.agent.chat.check import check_model
from etude.agent.chat.families import by_name
from etude.agent.chat.hub_tokenizer import HubTokenizer

PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEXT = "def f(x):\n\treturn x  # It's 完成 42 ÉTUDE [INST] </s>\r\n"
SPECIAL = 40


def ranks() -> dict[bytes, int]:
    """All bytes, and pairs of them."""
    table = {bytes([byte]): byte for byte in range(256)}
    for pair in zip(TEXT.encode(), TEXT.encode()[1:], strict=False):
        table.setdefault(bytes(pair), len(table))
    return table


def write_tekken(folder: Path, **changes: Any) -> HubTokenizer:
    words = ["<unk>", *by_name("mistral").markers]
    rows = {
        "config": {
            "pattern": PATTERN, "default_vocab_size": SPECIAL + len(ranks()), "default_num_special_tokens": SPECIAL, "version": "v13",
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(piece).decode(), "token_str": None} for piece, rank in ranks().items()
        ],
        "special_tokens": [{"rank": i, "token_str": word, "is_control": True} for i, word in enumerate(words)],
    }  # fmt: skip
    (folder / "tekken.json").write_text(json.dumps({**rows, **changes}))
    return HubTokenizer.load(folder)


def test_ids_are_those_of_tiktoken_behind_the_special_tokens(tmp_path: Path) -> None:
    ours = write_tekken(tmp_path)
    theirs = tiktoken.Encoding("tekken", pat_str=PATTERN, mergeable_ranks=ranks(), special_tokens={})
    guarded = ours.encode(ours.guard(TEXT))
    assert guarded == [SPECIAL + token for token in theirs.encode(TEXT, disallowed_special=())]
    assert ours.decode(guarded) == TEXT and ours.size == SPECIAL + len(ranks())
    assert ours.encode("[INST]") == [ours.added["[INST]"]] == [4 - 1]
    assert ours.vocabulary()[SPECIAL - 1] == f"<SPECIAL_{SPECIAL - 1}>"


def test_a_folder_with_tekken_alone_is_sound(tmp_path: Path) -> None:
    write_tekken(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral", "vocab_size": 9999}))
    report = check_model(tmp_path)
    assert report.family == "mistral"
    assert [check for check in report.checks if check.state == "failed"] == []


def test_a_file_of_an_earlier_version_lacks_the_marker_of_arguments(tmp_path: Path) -> None:
    assert "[TOOL_CONTENT]" in write_tekken(tmp_path, special_tokens=None).added
    assert "[ARGS]" in next(
        check.detail for check in check_model(tmp_path, "mistral").checks if check.state == "failed"
    )


@pytest.mark.parametrize("changes", [{"vocab": 3}, {"config": {}}, {"vocab": [{"rank": 0, "token_bytes": "?"}]}])
def test_a_file_that_does_not_read_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"tekken\.json is no tokenizer \(.*; download it again"):
        write_tekken(tmp_path, **changes)

"""`etude tokenizer`: a checkpoint is extended whole and goes on to work; what does not fit is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from here import Here, document

from etude.learn.corpus.tokenizer import load_tokenizer
from etude.learn.corpus.tokenizer_check import check_belongs
from etude.learn.model.checkpoint import load_checkpoint

NANO = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
CODE = "def frobnicate_widget(widget):\n    return widget.frobnicate(gizmo=widget.gizmo)\n"


def lay_out(folder: Path) -> None:
    (folder / "code").mkdir()
    for i in range(5):
        (folder / "code" / f"m{i}.py").write_text(CODE * 3)


def test_a_checkpoint_is_extended_whole_and_loads_with_its_tokenizer(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    found = document(
        here("tokenizer", "extend", str(NANO), "--fim", "--merges", "10", "--on", "code", "--out", "more", "--json")
    )
    tokenizer = load_tokenizer(tmp_path / "more")
    assert found["added"] == 3 + 10 and found["rows"] == tokenizer.get_vocab_size() == found["entries"]
    assert found["bytes_per_token"]["after"] > 1.2 * found["bytes_per_token"]["before"] and not found["moved"]
    check_belongs(tmp_path / "more", tokenizer)
    assert load_checkpoint(tmp_path / "more").config.vocab_size == found["rows"]
    checked = document(here("tokenizer", "check", "more", "--against", str(NANO), "--on", "code", "--json"))
    assert not checked["lost"] and not checked["forged"] and checked["bytes_per_token"] == found["bytes_per_token"]


def test_a_tokenizer_is_trained_to_its_size_and_checked(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    found = document(here("tokenizer", "train", "--on", "code", "--size", "330", "--out", "mine", "--json"))
    assert found["entries"] <= 330 and found["texts"] == 5
    assert "special" in here("tokenizer", "check", "mine").stdout


def test_what_does_not_fit_is_refused(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert "name what to add: --chat, --fim" in here("tokenizer", "extend", str(NANO), "--out", "x").stderr
    assert "--on with a library or a folder" in here("tokenizer", "train", "--out", "x").stderr
    assert "there is no such folder" in here("tokenizer", "train", "--on", "gone", "--out", "x").stderr
    shutil.copytree(NANO, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    (tmp_path / "other" / "config.json").write_text(json.dumps(config | {"vocab_size": 700}))
    assert "they are not of one checkpoint" in here("tokenizer", "check", "other").stderr

"""`etude model import`: a GGUF file becomes a checkpoint directory, as a whole or not at all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from here import Here, document

from etude.learn.model.checkpoint import load_checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "learn" / "weights"))
from gguf_lab import llama_metadata, llama_tensors, write_gguf


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A small llama, its down projection in Q4_K, which most files that people have use."""
    facts = {"general.name": "Small", "general.license": "mit"}
    tensors = llama_tensors()
    metadata = {**llama_metadata(), **facts, "llama.feed_forward_length": 256}
    numbers = np.random.default_rng(1)
    for part in ("gate", "up"):
        rows = numbers.standard_normal((256, 32)).astype(np.float32)
        tensors[f"blk.0.ffn_{part}.weight"] = (0, (256, 32), rows.tobytes())
    blocks = numbers.integers(0, 256, (32, 144), np.uint8)
    blocks[:, [1, 3]] = 0x14  # scales of 0.001 to 0.003
    tensors["blk.0.ffn_down.weight"] = (12, (32, 256), blocks.tobytes())
    write_gguf(tmp_path / "small.gguf", metadata, tensors)
    return tmp_path / "small.gguf"


def test_the_directory_loads_and_its_card_names_the_file_and_the_licence(
    here: Here, file: Path, tmp_path: Path
) -> None:
    found = document(here("model", "import", str(file), "--out", "small", "--json"))
    assert found["written"] and found["types"] == {"F32": 10, "Q4_K": 1} and found["architecture"] == "llama"
    assert sum(p.numel() for p in load_checkpoint(tmp_path / "small").parameters()) == found["parameters"]
    card = (tmp_path / "small" / "README.md").read_text()
    assert "base_model: Small" in card and "license: mit" in card and "`small.gguf`" in card
    assert json.loads((tmp_path / "small" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_dry_run_says_what_the_file_holds_and_writes_nothing(here: Here, file: Path, tmp_path: Path) -> None:
    ran = here("model", "import", str(file), "--out", "small", "--dry-run")
    assert ran.returncode == 0 and "Small (llama, " in ran.stdout and "10 F32, 1 Q4_K" in ran.stdout
    assert not (tmp_path / "small").exists()


def test_a_folder_that_holds_something_stays_as_it_is(here: Here, file: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "mine").write_text("kept")
    ran = here("model", "import", str(file), "--out", "small")
    assert ran.returncode == 1 and "small is there already; name another directory with --out" in ran.stderr
    assert [path.name for path in (tmp_path / "small").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda raw: raw[: len(raw) - 500], "the file is truncated: download it again"),
        (lambda raw: b"PK" + raw[2:], "is no GGUF file"),
        (lambda raw: raw.replace(b"\x05\x00\x00\x00\x00\x00\x00\x00llama", b"\x05\x00\x00\x00\x00\x00\x00\x00mamba"), "the architecture 'mamba'"),
        (lambda raw: b"", "is empty"),
    ],
    ids=["cut", "other", "architecture", "empty"],
)  # fmt: skip
def test_a_file_that_can_not_be_read_gets_one_line_and_leaves_nothing(
    here: Here, file: Path, tmp_path: Path, damage, message: str
) -> None:
    file.write_bytes(damage(file.read_bytes()))
    ran = here("model", "import", str(file), "--out", "small")
    assert ran.returncode == 1 and message in ran.stderr and ran.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir() if "small" in path.name] == ["small.gguf"]

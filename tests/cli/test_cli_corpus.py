"""`etude corpus`: what a person asks, and what comes back."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from here import Here, document
from tokenizers import Tokenizer

NANO = Path(__file__).parents[2] / "checkpoints" / "sft-nano"

RECIPE = """
[corpus.sources.mine]
kind = "folder"
path = "code"
"""
CODE = '"""Adds up."""\n\n\ndef total(items):\n    """The sum of the items."""\n    return sum(items)\n'


def lay_out(folder: Path) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "total.py").write_text(CODE)
    (folder / "code" / "picture.png").write_bytes(b"\x89PNG\0" * 50)
    (folder / "mine.toml").write_text(RECIPE)


def test_a_library_is_built_counted_and_looked_into(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    built = document(here("corpus", "build", "mine.toml", "--out", "lib", "--json"))
    assert built["sources"]["mine"]["texts"] == 1 and built["copies"]["kept"] == 1
    assert document(here("corpus", "show", "lib", "--summary", "--json")) == built
    assert document(here("corpus", "build", "mine.toml", "--out", "lib", "--json")) == built, (
        "a second build changes nothing"
    )
    shown = document(here("corpus", "show", "lib", "--number", "0", "--json"))
    assert shown["text"] == CODE and shown["language"] == "python"
    text = here("corpus", "show", "lib", "--summary").stdout
    assert "mine: 1 projects, 1 texts" in text and "refused (files): binary by name 1" in text
    assert "def total(items)" in here("corpus", "show", "lib").stdout


def test_a_copy_says_so_and_is_not_exported(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "code" / "again.py").write_text(CODE)
    here("corpus", "build", "mine.toml", "--out", "lib")
    assert document(here("corpus", "show", "lib", "--number", "1", "--json"))["kept_instead"] == 0
    assert "; a copy of 0" in here("corpus", "show", "lib", "--number", "1").stdout
    written = document(here("corpus", "export", "lib", "--out", "texts.jsonl", "--json"))
    (line,) = (tmp_path / "texts.jsonl").read_text().splitlines()
    assert written["documents"] == 1 and json.loads(line)["text"] == CODE
    refused = here("corpus", "export", "lib", "--out", "t.jsonl", "--form", "books")
    assert refused.returncode != 0 and "--form 'books': one of files, projects, changes" in refused.stderr


def test_a_dry_run_lists_the_projects_and_reads_none(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert document(here("corpus", "build", "mine.toml", "--out", "lib", "--dry-run", "--json")) == {
        "projects": [{"id": "mine/code", "released": ""}]
    }
    assert not (tmp_path / "lib" / "manifest.jsonl").exists()


def test_what_a_suite_asks_for_does_not_get_into_a_library(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    gold = (
        "\n".join(f"    value_{i} = compute(value_{i - 1}, scale=factor_{i}, offset={i})" for i in range(1, 9)) + "\n"
    )
    (tmp_path / "code" / "leaked.py").write_text("def solve(value_0):\n" + gold + "    return value_8\n")
    (tmp_path / "gold.patch").write_text(gold)
    made = document(
        here("corpus", "fingerprint", "ours", "gold.patch", "--project", "secret", "--out", "ours.fp", "--json")
    )
    assert made["texts"] == 1 and made["grams"] > 10 and made["too_short"] == 0
    words = ("--set", 'corpus.library.fingerprints=["ours.fp"]')
    built = document(here("corpus", "build", "mine.toml", "--out", "lib", *words, "--json"))
    assert built["sources"]["mine"]["texts"] == 1
    assert [reason for reason in built["refused"] if "ours" in reason]


def test_perplexity_of_a_checkpoint_on_a_folder(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "code" / "more.py").write_text(CODE.replace("total", "summed"))
    found = document(here("corpus", "perplexity", str(NANO), "--of", "code", "--window", "48", "--json"))
    (row,) = found["checkpoints"]
    assert found["files"] == 2 and found["bytes"] == 2 * len(CODE) + 1 and row["window"] == 48 and row["stride"] == 24
    assert row["nats"] == pytest.approx(row["bits_per_byte"] * math.log(2) * found["bytes"])
    low, high = row["ci95"]
    assert low <= row["bits_per_byte"] <= high


def test_perplexity_refuses_what_does_not_fit(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "empty holds no text worth measuring on" in here("corpus", "perplexity", str(NANO), "--of", "empty").stderr
    assert "there is no such folder" in here("corpus", "perplexity", str(NANO), "--of", "gone").stderr
    too_long = here("corpus", "perplexity", str(NANO), "--of", "code", "--window", "1000000").stderr
    assert "a window of 1000000 tokens, but the checkpoint's positions end at" in too_long
    shutil.copytree(NANO, tmp_path / "other")
    tokenizer = Tokenizer.from_file(str(NANO / "tokenizer.json"))
    tokenizer.add_tokens(["one-too-many"])
    tokenizer.save(str(tmp_path / "other" / "tokenizer.json"))
    assert "they are not of one checkpoint" in here("corpus", "perplexity", "other", "--of", "code").stderr


def test_errors_say_what_to_do(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    assert "names no source" in here("corpus", "build", "--out", "lib").stderr
    assert "run `etude corpus build` first" in here("corpus", "show", "code", "--summary").stderr
    assert "there is no such recipe file" in here("corpus", "build", "gone.toml").stderr
    here("corpus", "build", "mine.toml", "--out", "lib")
    assert "no text of language 'rust'; there are: python" in here("corpus", "show", "lib", "--language", "rust").stderr

"""`etude base compare`: what a person asks, and what comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from here import Here, document

NANO = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
CODE = '"""Adds up."""\n\n\ndef total(items):\n    """The sum of the items."""\n    return sum(items)\n'


@pytest.fixture
def asked(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "total.py").write_text(CODE)
    shutil.copytree(NANO, tmp_path / "other")
    return ("base", "compare", str(NANO), "other", "--on", "code", "--out", "kept", "--measure", "perplexity")


def test_equal_checkpoints_differ_by_nothing_and_the_table_names_both(here: Here, asked: tuple[str, ...]) -> None:
    found = document(here(*asked, "--json"))
    first, second = found["checkpoints"]
    assert first["name"] == "sft-nano" and second["name"] == "other"
    assert second["perplexity"]["over_first"] == {"value": 0.0, "ci95": None} and first["perplexity"]["value"] > 0
    table = here(*asked)
    assert (
        table.returncode == 0 and "codebase, bits a byte" in table.stdout and table.stderr == ""
    )  # nothing is read again
    for words in ("sft-nano", "other", "Left out, state: no history.", "Left out, knowledge: no sessions"):
        assert words in table.stdout


def test_a_dry_run_says_what_would_be_asked_and_measures_nothing(
    here: Here, asked: tuple[str, ...], tmp_path: Path
) -> None:
    found = document(here(*asked, "--dry-run", "--json"))
    assert found["files"] == 1 and found["kept"] == {"sft-nano": [], "other": []} and not (tmp_path / "kept").exists()
    here(*asked)
    assert "other: perplexity measured already" in here(*asked, "--dry-run").stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--measure", "speed"), "no measure 'speed'; there are perplexity, state, knowledge, cost"),
        (("--on", "nowhere"), "nowhere: there is no such folder"),
        (("--on", "empty"), "empty holds no text worth measuring on"),
        (("--sessions", "nowhere"), "no such folder of sessions"),
        (("--context", "100000"), "a context of 100,000 tokens"),
    ],
)
def test_what_is_wrong_is_reported_in_a_line(
    here: Here, asked: tuple[str, ...], tmp_path: Path, change: tuple[str, ...], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    done = here(*asked, *change)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_a_folder_that_is_no_checkpoint_and_a_foreign_tokenizer_are_refused(
    here: Here, asked: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty is not a checkpoint directory" in here(*asked[:2], "empty", *asked[3:]).stderr
    config = tmp_path / "other" / "config.json"
    config.write_text(config.read_text().replace('"vocab_size": 768', '"vocab_size": 500'))
    done = here(*asked)
    assert (
        done.returncode == 1
        and "not of one checkpoint; copy the tokenizer.json that came with the weights" in done.stderr
    )

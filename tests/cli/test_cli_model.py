"""`etude model check`: a table, a document, an exit status, and one line for what is no checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from here import Here, document

NANO = Path(__file__).parents[2] / "checkpoints" / "sft-nano"


def test_a_sound_checkpoint_is_told_so(here: Here) -> None:
    ran = here("model", "check", str(NANO))
    assert ran.returncode == 0 and ran.stdout.rstrip().endswith("sound") and "round trip" in ran.stdout
    found = document(here("model", "check", str(NANO), "--json"))
    assert found["sound"] and found["family"] == "nano" and {c["state"] for c in found["checks"]} == {"ok", "skipped"}


def test_an_unsound_one_exits_with_1_and_names_what_failed_and_the_remedy(here: Here, tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    (tmp_path / "other" / "config.json").write_text(json.dumps(config | {"vocab_size": 700}))
    ran = here("model", "check", "other")
    assert ran.returncode == 1
    assert "NO  vocabulary" in ran.stdout and "etude tokenizer extend" in ran.stdout
    assert ran.stdout.rstrip().endswith("not sound: vocabulary")


def test_what_is_no_checkpoint_gets_one_line(here: Here, tmp_path: Path) -> None:
    assert "gone is no directory" in here("model", "check", "gone").stderr
    (tmp_path / "tokenizer.json").write_text("{")
    ran = here("model", "check", str(tmp_path))
    assert ran.returncode == 1 and "tokenizer.json" in ran.stdout and "Traceback" not in ran.stderr

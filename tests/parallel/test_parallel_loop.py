"""Two and four ranks train as one process does, and go on from each other's states."""

from __future__ import annotations

from pathlib import Path

import pytest
from layout_lab import MODELS
from loop_lab import largest_difference, trained
from parallel_lab import run_ranks

pytestmark = pytest.mark.nightly  # test_parallel_stage.py trains over ranks in every run
LAYOUTS = {
    "FSDP": (2, {"shard": 2}),
    "CP": (2, {"shard": 2, "context": 2}),
    "HSDP + EP": (4, {"replicate": 2, "shard": 2, "experts": 2}),
}
CASES = [
    ("qwen3", "FSDP", "muon"),
    ("deepseek_v3", "FSDP", "adamw"),
    ("deepseek_v3", "CP", "muon"),
    ("deepseek_v3", "HSDP + EP", "muon"),
    ("qwen3_moe", "HSDP + EP", "adamw"),
]


@pytest.mark.parametrize(("name", "layout", "matrices"), CASES)
def test_ranks_train_as_one_process_does_and_resume_on_any_layout(
    name: str, layout: str, matrices: str, tmp_path: Path
) -> None:
    assert name in MODELS
    count, given = LAYOUTS[layout]
    folders = {part: str(tmp_path / part) for part in ("alone", "ranks", "mixed")}
    alone = trained(name, {}, folders["alone"], 6, matrices)
    together = run_ranks(count, trained, name, given, folders["ranks"], 6, matrices)
    for found in together:
        assert abs(found["loss"] - alone["loss"]) <= 1e-5 * alone["loss"] and found["tokens"] == alone["tokens"]
        assert largest_difference(found["weights"], alone["weights"]) <= 3e-5
    run_ranks(count, trained, name, given, folders["mixed"], 2, matrices)
    trained(name, {}, folders["mixed"], 4, matrices)
    for found in run_ranks(count, trained, name, given, folders["mixed"], 6, matrices):
        assert largest_difference(found["weights"], alone["weights"]) <= 3e-5


def test_ranks_that_were_stopped_go_on_bit_for_bit(tmp_path: Path) -> None:
    whole, halves = str(tmp_path / "whole"), str(tmp_path / "halves")
    (expected, _) = run_ranks(2, trained, "qwen3", {"shard": 2}, whole, 4, "muon")
    run_ranks(2, trained, "qwen3", {"shard": 2}, halves, 2, "muon")
    for found in run_ranks(2, trained, "qwen3", {"shard": 2}, halves, 4, "muon"):
        assert largest_difference(found["weights"], expected["weights"]) == 0

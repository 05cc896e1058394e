"""The bench of weight sync: what it says of a step is so, and it compares real checkpoints too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from etude.cli import weights
from etude.learn.weights.inspect import read_state, step
from etude.learn.weights.measure import extrapolate, measure
from etude.learn.weights.state import state_digest


def test_a_synthetic_step_of_rl_changes_few_weights_and_more_at_a_higher_learning_rate() -> None:
    shares = []
    for rate in (0.0, 1e-6, 1e-5):
        before, after = step(2_000_000, rate)
        shares.append(float((before["layer.0000.weight"] != after["layer.0000.weight"]).float().mean()))
    assert shares[0] == 0 and 0.005 < shares[1] < 0.02 < shares[2]


def test_the_same_seed_makes_the_same_step() -> None:
    assert [state_digest(s) for s in step(10_000, 1e-6)] == [state_digest(s) for s in step(10_000, 1e-6)]


def test_a_step_of_rl_travels_in_a_fiftieth_of_the_state(tmp_path: Path) -> None:
    document = measure(*step(4_000_000, 1e-6), repeats=1, place=tmp_path)
    json.dumps(document)
    assert document["bars"]["wire_share"]["met"] and 0 < document["wire_share"] <= 0.02
    assert document["extrapolated"]["is_extrapolation"]
    with pytest.raises(ValueError, match="holds weights already"):
        measure(*step(1000, 1e-6), repeats=1, place=tmp_path)


def test_the_extrapolation_is_arithmetic_on_what_was_measured() -> None:
    giant = extrapolate({"wire_share": 0.01, "encode_gb_s": 1.0, "apply_gb_s": 2.0})
    assert giant["wire_bytes"] == 20e9 and giant["transfer_s"] == pytest.approx(16)
    assert giant["encode_s"] == pytest.approx(2 * giant["apply_s"]) == pytest.approx(2000 / 64)


def test_the_command_compares_two_checkpoints(tmp_path: Path) -> None:
    for name, scale in (("a", 1.0), ("b", 1.001)):
        (tmp_path / name).mkdir()
        save_file({"w": torch.linspace(1, 2, 1000).mul(scale).bfloat16()}, tmp_path / name / "model.safetensors")
    answer = weights.bench(megabytes=1, learning_rate=0, real=(tmp_path / "a", tmp_path / "b"), repeats=1, store=None)
    assert answer.document["raw_bytes"] == 2000 and 0 < answer.document["changed_share"] < 1
    assert "EXTRAPOLATED, not measured" in answer.text
    with pytest.raises(FileNotFoundError, match="no .*safetensors"):
        read_state(tmp_path)

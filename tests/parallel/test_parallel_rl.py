"""RL's trainer over ranks that each hold a part of the model ends with what one process would have, and repeats to the bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import split_rl_lab
import torch
from parallel_lab import run_ranks
from pydantic import ValidationError

from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore
from etude.rl.settings import RlSettings


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a checkpoint and groups."""
    folder = tmp_path_factory.mktemp("run")
    split_rl_lab.prepare(folder)
    return folder


def copied(prepared: Path, to: Path) -> tuple[Path, Path]:
    """The checkpoint, and a run's own folder."""
    shutil.copytree(prepared / "groups", to / "groups")
    return prepared / "model", to


def apart(found: dict[str, Any], wanted: dict[str, Any], start: dict[str, Any]) -> float:
    """Adam divides by the gradient's size, so where that is all rounding a weight may go either way: of the other differences the largest, as a
    share of the way that a weight went."""
    off = [(found[name] - w).abs() / (w - start[name]).abs().clamp(min=1e-4) for name, w in wanted.items()]
    return float(torch.cat([x.flatten() for x in off]).quantile(0.99))


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_split_trainer_ends_where_one_process_does_and_repeats_to_the_bit(
    prepared: Path, tmp_path: Path, lora: bool
) -> None:
    checkpoint, folder = copied(prepared, tmp_path / "split")
    ranks = run_ranks(2, split_rl_lab.live, checkpoint, folder, lora)
    alone = split_rl_lab.by_one(*copied(prepared, tmp_path / "one"), lora=lora)
    assert ranks[0]["digests"] == ranks[1]["digests"] and len(set(ranks[0]["digests"])) == split_rl_lab.STEPS
    assert ranks[0]["again"] == ranks[0]["digests"][split_rl_lab.SAVED :]
    alone.export(tmp_path / "one" / "exported")
    start, wanted = dict(load_checkpoint(checkpoint).state_dict()), split_rl_lab.exported(tmp_path / "one")
    assert apart(split_rl_lab.exported(folder), wanted, start) < 0.02
    whole = sum(parameter.numel() for parameter in alone.trainer.model.parameters())
    assert all(rank["numbers"] <= whole * 0.55 for rank in ranks), (ranks, whole)


def test_a_split_trainer_publishes_its_weights_once_and_none_of_an_earlier_version(
    prepared: Path, tmp_path: Path
) -> None:
    checkpoint, folder = copied(prepared, tmp_path)
    ranks = run_ranks(2, split_rl_lab.live, checkpoint, folder, False)
    assert [rank["published"] for rank in ranks] == [(True, False)] * 2 and ranks[0]["cost"][
        "version"
    ] == split_rl_lab.STEPS
    received = Receiver(WeightStore(folder / "weights")).catch_up()
    assert received.version == split_rl_lab.STEPS
    assert all(torch.equal(received.state[name], tensor) for name, tensor in split_rl_lab.exported(folder).items())


@pytest.mark.nightly
def test_a_split_trainer_goes_on_from_the_state_of_one_process_and_one_process_from_its(
    prepared: Path, tmp_path: Path
) -> None:
    checkpoint, one = copied(prepared, tmp_path / "one")
    wanted = split_rl_lab.by_one(checkpoint, one)
    wanted.export(one / "exported")
    start, whole = dict(load_checkpoint(checkpoint).state_dict()), split_rl_lab.exported(one)
    run_ranks(2, split_rl_lab.go_on, checkpoint, one)
    assert apart(split_rl_lab.exported(one), whole, start) < 0.02
    checkpoint, folder = copied(prepared, tmp_path / "split")
    run_ranks(2, split_rl_lab.live, checkpoint, folder, False)
    assert (folder / "states" / f"state-{split_rl_lab.SAVED:08d}.ranks").is_dir()
    split_rl_lab.by_one(checkpoint, folder, split_rl_lab.SAVED).export(folder / "exported")
    assert apart(split_rl_lab.exported(folder), whole, start) < 0.02


def test_a_rank_that_is_gone_is_a_loss_and_no_error_of_the_others(prepared: Path, tmp_path: Path) -> None:
    checkpoint, folder = copied(prepared, tmp_path)
    with pytest.raises(RuntimeError, match="a rank ended before its answer"):
        run_ranks(2, split_rl_lab.lose_a_rank, checkpoint, folder)
    assert (folder / "said").read_text().startswith("rank 0 of 2 lost another one: ")


@pytest.mark.nightly
def test_copies_of_a_part_that_differ_are_found_out_at_once(prepared: Path, tmp_path: Path) -> None:
    checkpoint, folder = copied(prepared, tmp_path)
    for said in run_ranks(2, split_rl_lab.spoil_a_copy, checkpoint, folder):
        assert "after step 1 copies of the same part of the model differ" in said


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"ranks": 2}, "rl.ranks = 2"),
        ({"feedback": {"weight": 0.5}}, "rl.feedback.weight = 0.5"),
        ({"drafts": {"every": 1}}, "rl.drafts.every = 1"),
    ],
)
def test_what_does_not_go_with_a_split_model_is_refused_by_its_name(more: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=f"over 2 ranks, which does not go with {named} so far"):
        RlSettings.model_validate({"parallel": {"shard": 2}} | more)

"""Training states of several ranks: each writes its parts, and what is damaged or unfinished is no state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from loop_lab import STEPS, largest_difference, stopped_by_a_full_disk, trained
from parallel_lab import run_ranks

from etude.learn.train.checkpoint import TrainingStateError, load_state, newest_state

NAME, LAYOUT = "deepseek_v3", {"shard": 2, "experts": 2}


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that two ranks ended after four steps, with the states of the second and the fourth."""
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(2, trained, NAME, LAYOUT, str(folder), 4, "adamw")
    return folder


def test_each_rank_writes_what_it_has_and_one_process_reads_all_of_it(states: Path) -> None:
    newest = newest_state(states / "state")
    assert newest is not None and newest.name == "state-00000004.ranks"
    assert [path.name for path in sorted((states / "state").iterdir())] == ["state-00000002.ranks", newest.name]
    sizes = [path.stat().st_size for path in sorted(newest.glob("*.safetensors"))]
    assert len(sizes) == 2 and max(sizes) < 1.2 * min(sizes)
    plain = torch.load(newest / "plain.pt", weights_only=True)["state"]
    assert plain["progress"]["step"] == 4 and plain["model"] is None
    state = load_state(newest)
    held = [
        *state["model"].values(),
        *(t for part in state["optimizers"] for m in part["state"].values() for t in m.values() if t.ndim),
    ]
    assert sum(t.numel() * t.element_size() for t in held) <= sum(sizes)
    assert any(".experts." in name for name in state["model"]) and not any(".local." in name for name in state["model"])


def test_one_process_goes_on_from_it(states: Path, tmp_path: Path) -> None:
    alone = trained(NAME, {}, str(tmp_path / "alone"), STEPS, "adamw")
    shutil.copytree(states, tmp_path / "mixed")
    assert (
        largest_difference(trained(NAME, {}, str(tmp_path / "mixed"), STEPS, "adamw")["weights"], alone["weights"])
        <= 3e-5
    )
    names = [path.name for path in sorted((tmp_path / "mixed/state").iterdir())]
    assert names == ["state-00000004.ranks", "state-00000006.pt"]


@pytest.mark.parametrize("harm", ["cut", "gone", "no plain part"])
def test_a_damaged_state_is_named_with_the_remedy(states: Path, tmp_path: Path, harm: str) -> None:
    shutil.copytree(states / "state", tmp_path / "state")
    newest = newest_state(tmp_path / "state")
    assert newest is not None
    shard = sorted(newest.glob("*.safetensors"))[0]
    if harm == "cut":
        shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    else:
        (shard if harm == "gone" else newest / "plain.pt").unlink()
    with pytest.raises(
        TrainingStateError, match=r"cannot read the training state .*00000004.ranks: .*; remove it to go on without"
    ):
        load_state(newest)


def test_what_a_kill_left_is_no_state_and_goes_with_the_next(states: Path, tmp_path: Path) -> None:
    shutil.copytree(states, tmp_path / "run")
    shutil.copytree(tmp_path / "run/state/state-00000004.ranks", tmp_path / "run/state/state-00000006.part")
    newest = newest_state(tmp_path / "run/state")
    assert newest is not None and newest.name == "state-00000004.ranks"
    trained(NAME, {}, str(tmp_path / "run"), STEPS, "adamw")
    assert not list((tmp_path / "run/state").glob("*.part"))


@pytest.mark.nightly
def test_a_full_disk_leaves_the_states_before(states: Path, tmp_path: Path) -> None:
    shutil.copytree(states, tmp_path / "full")
    said = run_ranks(2, stopped_by_a_full_disk, NAME, LAYOUT, str(tmp_path / "full"), 20_000)
    assert any(
        "cannot write the training state of step 6" in words and "state-00000004.ranks is intact" in words
        for words in said
    ), said
    assert [path.name for path in sorted((tmp_path / "full/state").iterdir())] == [
        "state-00000002.ranks",
        "state-00000004.ranks",
    ]

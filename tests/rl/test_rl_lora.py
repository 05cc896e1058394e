"""RL with adapters: engines get merged weights, a restored trainer has the same, and the stage leaves checkpoint and adapter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_in_threads import a_run

from etude.learn.model.adapters import has_adapters, is_adapter_tensor
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.named_checkpoint import checkpoint_folder
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore
from etude.rl.learner import Learner


def a_learner(checkpoint: Path, folder: Path) -> Learner:
    run = a_run(checkpoint, folder)
    update = run.settings.update.model_copy(update={"lora": LoraSettings(rank=2)})
    return Learner(run.checkpoint, run.folder, run.settings.model_copy(update={"update": update}), 1)


def changed(learner: Learner) -> None:
    for name, tensor in learner.trainer.model.state_dict().items():
        if is_adapter_tensor(name):
            tensor.add_(0.1)


def test_engines_receive_merged_weights_under_the_names_of_a_plain_model(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    learner = a_learner(checkpoint, tmp_path)
    changed(learner)
    assert learner.publish(0) and learner.publication_cost(0) is not None
    received = Receiver(WeightStore(learner.folder / "weights")).catch_up().state
    learner.export(tmp_path / "out" / "checkpoint")
    exported = load_checkpoint(tmp_path / "out" / "checkpoint").state_dict()
    assert has_adapters(learner.trainer.model) and received.keys() == exported.keys()
    assert all(torch.equal(received[name], tensor) for name, tensor in exported.items())
    merged = load_checkpoint(checkpoint_folder(tmp_path / "out" / "adapter")).state_dict()
    assert all(torch.equal(merged[name], tensor) for name, tensor in exported.items())


def test_a_restored_trainer_has_the_same_adapters(checkpoint: Path, tmp_path: Path) -> None:
    learner = a_learner(checkpoint, tmp_path)
    changed(learner)
    learner.save(1)
    restored = a_learner(checkpoint, tmp_path)
    restored.restore(1)
    expected = learner.trainer.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in restored.trainer.model.state_dict().items())

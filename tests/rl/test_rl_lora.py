"""RL with adapters: engines get these alone and serve merged weights, a restored trainer has the same, and both are left by the stage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from run_in_threads import a_run, live

from etude.learn.engine.adapter_merger import AdapterMerger
from etude.learn.model.adapters import has_adapters, is_adapter_tensor
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.named_checkpoint import checkpoint_folder
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore
from etude.rl.learner import Learner
from etude.rl.steps import read


def a_learner(checkpoint: Path, folder: Path) -> Learner:
    run = a_run(checkpoint, folder)
    update = run.settings.update.model_copy(update={"lora": LoraSettings(rank=2)})
    return Learner(run.checkpoint, run.folder, run.settings.model_copy(update={"update": update}), 1)


def changed(learner: Learner) -> None:
    for name, tensor in learner.trainer.model.state_dict().items():
        if is_adapter_tensor(name):
            tensor.add_(0.1)


def test_engines_receive_adapters_and_serve_the_weights_that_are_exported(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    learner = a_learner(checkpoint, tmp_path)
    changed(learner)
    assert learner.publish(0) and learner.publication_cost(0) is not None
    received = Receiver(WeightStore(learner.folder / "weights")).catch_up().state
    assert received and all(is_adapter_tensor(name) or name.endswith("router.bias") for name in received)
    learner.export(tmp_path / "out" / "checkpoint")
    exported = load_checkpoint(tmp_path / "out" / "checkpoint").state_dict()
    served = AdapterMerger(checkpoint, learner.settings.update.lora)(received)
    assert has_adapters(learner.trainer.model) and served.keys() == exported.keys()
    assert all(torch.equal(served[name], tensor) for name, tensor in exported.items())
    merged = load_checkpoint(checkpoint_folder(tmp_path / "out" / "adapter")).state_dict()
    assert all(torch.equal(merged[name], tensor) for name, tensor in exported.items())


def test_a_run_with_adapters_samples_what_it_trains_and_publishes_a_fraction(checkpoint: Path, tmp_path: Path) -> None:
    run = a_run(checkpoint, tmp_path / "rl", update={"lora": {"rank": 2}})
    live(run)
    steps = read(run.folder / "steps.jsonl")
    assert len(steps) == run.settings.steps
    assert steps[0].values["drift_k3"] < 1e-9
    published = Receiver(WeightStore(run.folder / "weights")).catch_up()
    assert published.version == run.settings.steps
    whole = load_checkpoint(run.folder / "checkpoint").state_dict()
    assert state_digest(AdapterMerger(checkpoint, run.settings.update.lora)(published.state)) == state_digest(whole)
    assert 10 * sum(t.nbytes for t in published.state.values()) < sum(t.nbytes for t in whole.values())


def test_a_restored_trainer_has_the_same_adapters(checkpoint: Path, tmp_path: Path) -> None:
    learner = a_learner(checkpoint, tmp_path)
    changed(learner)
    learner.save(1)
    restored = a_learner(checkpoint, tmp_path)
    restored.restore(1)
    expected = learner.trainer.model.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in restored.trainer.model.state_dict().items())

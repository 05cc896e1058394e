"""Training adapters: the base stays as it was, states hold the adapters alone, and merged weights give what the trainer scored."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from etude.core.events.log import EventLog
from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.shards import write_shards
from etude.learn.model.adapters import adapters_off, add_adapters, is_adapter_tensor, merged_state
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.train.checkpoint import load_state, newest_state
from etude.learn.train.optimizer import Muon, build_optimizers
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.pretrain import run_pretrain
from etude.learn.train.settings import (
    LoopSettings,
    OptimizerSettings,
    PhaseSettings,
    PolicyStepSettings,
    PretrainSettings,
    SftSettings,
)
from etude.learn.train.sft import run_sft

LORA = LoraSettings(rank=4, alpha=8, targets=["attention", "dense", "experts"])


def settings(steps: int, lora: LoraSettings = LORA) -> SftSettings:
    return SftSettings(
        batch_tokens=256, epochs=100, lora=lora, optimizer=OptimizerSettings(adam_lr=0.02),
        loop=LoopSettings(steps=steps, checkpoint_every=3, threads=1),
    )  # fmt: skip


def lessons(make, model: CausalLM) -> list:
    return [segment for rollout in make.rollouts(model, 12) for segment in rollout.segments]


@pytest.mark.sample(2)
@pytest.mark.parametrize("lora", [LORA, LoraSettings(rank=4, dora=True)])
def test_sft_trains_adapters_alone_and_the_loss_falls(make, model, tmp_path: Path, lora: LoraSettings) -> None:
    before, data = copy.deepcopy(model.state_dict()), lessons(make, model)
    first = run_sft(
        settings(1, lora), make.model(family=model.config.family), data, tmp_path / "first", EventLog.null()
    )
    last = run_sft(settings(40, lora), model, data, tmp_path / "last", EventLog.null())
    assert last.loss < first.loss
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in merged_state(model).items())


def test_a_state_holds_the_adapters_alone_and_resumes_bit_identical(make, tmp_path: Path) -> None:
    data = lessons(make, make.model())
    whole, halves = make.model(), make.model()
    run_sft(settings(6), whole, data, tmp_path / "whole", EventLog.null())
    run_sft(settings(3), halves, data, tmp_path / "halves", EventLog.null())
    path = newest_state(tmp_path / "halves" / "state")
    assert path is not None
    saved, parameters = load_state(path)["model"], dict(halves.named_parameters())
    assert all(is_adapter_tensor(name) for name in saved if name in parameters)
    resumed = make.model()
    run_sft(settings(6), resumed, data, tmp_path / "halves", EventLog.null())
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def pretrain(model: CausalLM, folder: Path, steps: int, lora: LoraSettings) -> float:
    """The loss at the end of a phase on random documents, the same in every call."""
    rng = np.random.default_rng(0)
    documents = [rng.integers(3, 30, 40).tolist() for _ in range(30)]
    shards = {"files": write_shards(folder / "shards", documents)}
    settings = PhaseSettings(
        row_tokens=64, batch_rows=2, lora=lora, optimizer=OptimizerSettings(adam_lr=0.02),
        loop=LoopSettings(steps=steps, checkpoint_every=3, threads=1),
    )  # fmt: skip
    return run_pretrain("short", settings, model, Mixture(shards, {"files": 1.0}, 0), folder, EventLog.null()).loss


@pytest.mark.parametrize("lora", [LORA, LoraSettings(rank=4, dora=True)])
def test_pretraining_trains_adapters_alone_and_resumes_bit_identical(make, tmp_path: Path, lora: LoraSettings) -> None:
    before = {name: tensor.clone() for name, tensor in make.model().state_dict().items()}
    whole, halves, resumed = make.model(), make.model(), make.model()
    loss = pretrain(whole, tmp_path / "whole", 6, lora)
    assert loss < pretrain(make.model(), tmp_path / "first", 1, lora)
    after, merged = whole.state_dict(), merged_state(whole)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert any(not torch.equal(merged[name], tensor) for name, tensor in before.items())
    pretrain(halves, tmp_path / "halves", 3, lora)
    pretrain(resumed, tmp_path / "halves", 6, lora)
    assert all(torch.equal(resumed.state_dict()[name], tensor) for name, tensor in after.items())


def test_adapters_of_a_new_model_are_refused() -> None:
    with pytest.raises(ValueError, match="base has lora.rank=2, but its model is new"):
        PretrainSettings(base=PhaseSettings(lora=LoraSettings(rank=2)))


def test_a_state_of_other_adapters_is_refused(make, tmp_path: Path) -> None:
    data = lessons(make, make.model())
    run_sft(settings(3), make.model(), data, tmp_path, EventLog.null())
    with pytest.raises(ValueError, match="other adapters"):
        run_sft(settings(6, LoraSettings(rank=4)), make.model(), data, tmp_path, EventLog.null())


def test_muon_sees_no_adapter(model) -> None:
    add_adapters(model, LORA)
    optimizers = build_optimizers(model, OptimizerSettings())
    assert not any(isinstance(part, Muon) for part in optimizers.parts)
    trained = {id(p) for part in optimizers.parts for group in part.param_groups for p in group["params"]}
    assert trained == {id(p) for name, p in model.named_parameters() if is_adapter_tensor(name)}


def test_policy_steps_move_adapters_and_the_reference_is_the_base(make, model) -> None:
    base, rollouts = copy.deepcopy(model), make.rollouts(model, 8)
    add_adapters(model, LORA)
    trainer = PolicyTrainer(model, model, PolicyStepSettings(lr=0.01))
    for _ in range(3):
        trainer.update(rollouts, [1.0, -1.0] * 4, trainer.score(rollouts))
    scores = trainer.score(rollouts)
    plain = PolicyTrainer(base, None, PolicyStepSettings(router_replay=False)).score(rollouts)
    assert scores.reference is not None
    flat = lambda parts: torch.cat([torch.as_tensor(row) for rollout in parts for row in rollout])
    assert (flat(scores.reference) - flat(plain.current)).abs().max() <= 1e-5
    assert (flat(scores.current) - flat(plain.current)).abs().max() > 1e-3
    with adapters_off(model), torch.no_grad():
        ids = torch.arange(12)[None]
        assert torch.equal(model(ids).logits, base(ids).logits)


def test_what_the_merged_weights_sample_has_the_trainers_logprobs(make, model) -> None:
    """An engine holds `merged_state`. The trainer measures no mismatch on what it samples."""
    add_adapters(model, LORA)
    trainer = PolicyTrainer(model, None, PolicyStepSettings(lr=0.01))
    rollouts = make.rollouts(model, 8)
    trainer.update(rollouts, [1.0, -1.0] * 4, trainer.score(rollouts))
    served = CausalLM(model.config)
    served.load_state_dict(merged_state(model))
    assert abs(trainer.score(make.rollouts(served, 8, seed=1)).mismatch.k3) <= 1e-9
    saved = trainer.state_dict()["model"]
    assert sum(tensor.numel() for tensor in saved.values()) < 0.5 * sum(t.numel() for t in served.state_dict().values())

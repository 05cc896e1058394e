"""Draft layers learn what the trunk's head says; the trunk learns nothing from them, and no target crosses a document."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.events.log import EventLog
from etude.core.trace.segment import Segment
from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.packing import PackedRows
from etude.learn.corpus.shards import write_shards
from etude.learn.model.init import with_drafts
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.mask import DocumentMask
from etude.learn.train.batch import padded_batch
from etude.learn.train.checkpoint import newest_state
from etude.learn.train.losses import divergence
from etude.learn.train.mtp_settings import MtpSettings
from etude.learn.train.next_token import NextToken
from etude.learn.train.optimizer import build_optimizers
from etude.learn.train.pretrain import JointLearner, learner_of
from etude.learn.train.self_distillation import DraftLearner, draft_layers, draft_states, draft_weights, run_mtp
from etude.learn.train.settings import LoopSettings, OptimizerSettings, SftSettings
from etude.learn.train.sft import run_sft
from etude.learn.train.sources import PackedSource, packed_batch

VOCABULARY = 40


@pytest.fixture
def drafted(model):
    return with_drafts(model, 2, seed=1)


def batch(seed=0, rows=3, length=24):
    """Packed rows of three documents each."""
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, VOCABULARY, length) for _ in range(rows)]
    return packed_batch(ids, [np.sort(rng.integers(0, 3, length)) for _ in range(rows)])


def segments(count=60, seed=0):
    """A random prompt, then the same tokens again as the policy's own."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(count):
        half = rng.integers(0, VOCABULARY, rng.integers(4, 12))
        ids = np.concatenate((half, half)).astype(np.int32)
        sampled = np.arange(len(ids)) >= len(half)
        out.append(Segment(ids, sampled, np.zeros(len(ids), np.float32), np.where(sampled, 0, -1).astype(np.int32)))
    return out


def train_mtp(model, out: Path, steps: int, **loop):
    """One thread in every process: sums over another number of threads differ in their last bits."""
    rng = np.random.default_rng(0)
    shards = write_shards(out / "shards", [rng.integers(0, 40, rng.integers(5, 60)).tolist() for _ in range(30)])
    chosen = MtpSettings(loop=LoopSettings(steps=steps, checkpoint_every=4, threads=1, **loop))
    return run_mtp(
        chosen,
        model,
        PackedSource(PackedRows(Mixture({"all": shards}, {"all": 1.0}, seed=0), 16), 4),
        out,
        EventLog.null(),
    )


def state_of(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


# What is learnt


def test_the_loss_is_the_divergence_from_the_trunks_own_next_distribution(drafted):
    """Written out token by token for one document."""
    ids = torch.randint(0, VOCABULARY, (1, 9), generator=torch.Generator().manual_seed(0))
    one = padded_batch([ids[0].numpy()], [np.array([0, *np.linspace(0.5, 1, 8)], np.float32)])
    with torch.no_grad():
        out = drafted(ids)
        wanted = 0.0
        for depth, (states, _) in enumerate(draft_states(drafted, out.hidden, ids, DocumentMask.rows(1, 9)), 1):
            q, p = drafted.head(states[0]).log_softmax(-1), out.logits[0].log_softmax(-1)
            total = weight = 0.0
            for i in range(9 - depth - 1):
                w = float(one.weights[0, i + depth + 1])
                total += w * float((p[i + depth].exp() * (p[i + depth] - q[i])).sum())
                weight += w
            wanted += total / weight / 2
    learner = DraftLearner(drafted, 0.01)
    assert float(learner.loss(one).detach()) == pytest.approx(wanted, rel=1e-5)
    assert learner.figures["draft_loss"] == pytest.approx(wanted, rel=1e-5)


def test_divergence_in_chunks_is_the_divergence(monkeypatch):
    from etude.learn.train import losses

    torch.manual_seed(0)
    head = torch.nn.Linear(6, 11, bias=False)
    hidden, teacher = torch.randn(20, 6, requires_grad=True), torch.randn(20, 6, requires_grad=True)
    whole = divergence(hidden, teacher, head)
    p, q = head(teacher).softmax(-1), head(hidden).softmax(-1)
    assert torch.allclose(whole, (p * (p / q).log()).sum(-1), atol=1e-5)
    (gradient,) = torch.autograd.grad(whole.sum(), hidden)
    monkeypatch.setattr(losses, "CHUNK_POSITIONS", 7)
    chunked = divergence(hidden, teacher, head)
    assert torch.allclose(chunked, whole) and (whole > 0).all()
    assert torch.allclose(torch.autograd.grad(chunked.sum(), hidden)[0], gradient, atol=1e-6)
    divergence(hidden, teacher, head).sum().backward()
    assert teacher.grad is None
    assert divergence(hidden, hidden, head).abs().max() < 1e-6


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(1, 4))
def test_no_target_crosses_a_document(lengths, depth):
    """Documents laid end to end: a place has a target exactly if all of the way to it is one document."""
    documents = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[None]
    mask = DocumentMask.packed(documents)
    weights = torch.rand(documents.shape, generator=torch.Generator().manual_seed(0)) + 0.1
    found = draft_weights(weights, mask, depth)
    for i in range(documents.shape[1]):
        target = i + depth + 1
        inside = target < documents.shape[1] and documents[0, target] == documents[0, i]
        assert found[0, i] == (weights[0, target] if inside else 0)


def test_another_document_in_the_row_changes_nothing(drafted):
    """Neither its states nor its targets: the loss of a packed row is that of its documents one by one."""
    first, second = np.arange(10) % VOCABULARY, (np.arange(14) * 7) % VOCABULARY
    packed = packed_batch([np.concatenate((first, second))], [np.repeat([0, 1], [10, 14])])
    apart = [packed_batch([ids], [np.zeros(len(ids), np.int64)]) for ids in (first, second)]
    with torch.no_grad():
        together = float(DraftLearner(drafted, 0.0).loss(packed))
        (one, targets), (other, others) = (divergences(drafted, alone) for alone in apart)
    # Each depth averages over its own number of targets.
    wanted = ((one * targets + other * others) / (targets + others)).mean()
    assert together == pytest.approx(float(wanted), rel=1e-5)


def divergences(model, alone):
    """Mean divergence of each depth over a row that is one document, and the number of its targets."""
    mask, means, targets = alone.mask(), [], []
    hidden = model(alone.ids, mask).hidden
    for depth, (states, _) in enumerate(draft_states(model, hidden, alone.ids, mask), 1):
        inside = alone.ids.shape[1] - depth - 1
        kl = divergence(states[0, :inside], hidden[0, depth : depth + inside], model.head)
        means.append(float(kl.mean()))
        targets.append(inside)
    return np.array(means), np.array(targets)


def test_a_batch_without_a_target_teaches_nothing(drafted):
    short = padded_batch([np.array([1, 2])], [np.array([0, 1], np.float32)])
    loss = DraftLearner(drafted, 0.01).loss(short)
    loss.backward()
    assert not loss.detach()
    assert all(p.grad is None or not p.grad.any() for p in drafted.parameters())


def test_drafts_come_to_agree_with_the_trunk(make, tmp_path):
    model = with_drafts(make.model(), 1, seed=0)
    result = train_mtp(model, tmp_path, 60)
    first = DraftLearner(with_drafts(make.model(), 1, seed=0), 0.0)
    assert result.loss < 0.5 * float(first.loss(batch()).detach())


# What stays as it is


def test_the_frozen_trunk_has_no_gradient_and_keeps_every_bit(drafted, tmp_path):
    before = state_of(drafted)
    DraftLearner(drafted, 0.01).loss(batch()).backward()
    for name, parameter in drafted.named_parameters():
        assert (parameter.grad is not None) == name.startswith("mtp."), name
    drafted.zero_grad()
    train_mtp(drafted, tmp_path, 6)
    for name, tensor in drafted.state_dict().items():
        moved = name.startswith("mtp.") and not (name.endswith("bias") and drafted.config.family == "qwen3_moe")
        assert torch.equal(tensor, before[name]) != moved, name


def test_in_joint_training_the_trunks_gradient_is_that_without_drafts(drafted):
    JointLearner(drafted, 0.01, every=1).loss(batch()).backward()
    joint = {name: p.grad.clone() for name, p in drafted.named_parameters()}
    drafted.zero_grad()
    NextToken(drafted, 0.01).loss(batch()).backward()
    for name, parameter in drafted.named_parameters():
        if name.startswith("mtp."):
            assert parameter.grad is None and joint[name].any(), name
        else:
            assert torch.equal(parameter.grad, joint[name]), name


@pytest.mark.parametrize("matrices", ["muon", "adamw"])
def test_sft_with_drafts_ends_with_the_trunk_of_sft_without(make, tmp_path, matrices):
    chosen = SftSettings(
        batch_tokens=128, epochs=50, optimizer=OptimizerSettings(matrices=matrices, clip_norm=0.1),
        loop=LoopSettings(steps=12, threads=1),
    )  # fmt: skip
    plain, drafted = make.model(), with_drafts(make.model(), 1, seed=0)
    before = state_of(drafted.mtp)
    results = [
        run_sft(chosen, model, segments(), tmp_path / name, EventLog.null(), draft_every=2)
        for name, model in (("plain", plain), ("drafted", drafted))
    ]
    assert results[0].loss == results[1].loss
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, drafted.state_dict()[name]), name
    assert any(not torch.equal(tensor, before[name]) for name, tensor in drafted.mtp.state_dict().items())


def test_one_batch_in_every_teaches_the_drafts(make):
    model = with_drafts(make.model(), 1, seed=0)
    learner = JointLearner(model, 0.0, every=3)
    taught = 0
    for seed in range(120):
        model.zero_grad()
        learner.loss(batch(seed, rows=1, length=8)).backward()
        taught += model.mtp[0].eh_proj.weight.grad is not None
        assert ("draft_loss" in learner.after_step()) == bool(taught)
    assert 25 <= taught <= 55  # 40 expected


def test_a_draft_loss_that_is_not_finite_makes_a_bad_step(make):
    model = with_drafts(make.model(), 1, seed=0)
    with torch.no_grad():
        model.mtp[0].eh_proj.weight[0, 0] = float("nan")
    assert not torch.isfinite(JointLearner(model, 0.0, every=1).loss(batch()))


def test_the_selection_biases_of_drafts_move_apart_from_the_trunks(make):
    model = with_drafts(make.model(), 1, seed=0)
    before = state_of(model)
    learner = DraftLearner(model, 0.01)
    learner.loss(batch())
    learner.after_step()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) != (name == "mtp.0.block.feed.router.bias"), name


def test_trunk_and_drafts_are_clipped_each_by_its_own_norm(make):
    model = with_drafts(make.model(), 1, seed=0)
    optimizers = build_optimizers(model, OptimizerSettings(clip_norm=1.0))
    for name, parameter in model.named_parameters():
        parameter.grad = torch.full_like(parameter, 1.0 if name.startswith("mtp.") else 1e-6)
    small = sum(p.grad.square().sum() for n, p in model.named_parameters() if not n.startswith("mtp.")) ** 0.5
    assert optimizers.clip() == pytest.approx(float(small))
    assert torch.equal(model.head.weight.grad, torch.full_like(model.head.weight, 1e-6))
    drafts = sum(p.grad.square().sum() for p in model.mtp.parameters()) ** 0.5
    assert float(drafts) == pytest.approx(1.0, rel=1e-4)
    model.mtp[0].eh_proj.weight.grad[0, 0] = float("inf")
    assert not np.isfinite(optimizers.clip())


def test_a_model_without_drafts_is_refused_where_they_are_needed(model, tmp_path):
    with pytest.raises(ValueError, match="no draft layers"):
        draft_layers(model)
    with pytest.raises(ValueError, match="no draft layers"):
        train_mtp(model, tmp_path, 1)
    assert type(learner_of(model, 0.01, 2, LoraSettings())) is NextToken


# Killed and resumed

KILLED = """
import importlib.util, sys
def load(path):
    spec = importlib.util.spec_from_file_location("loaded", path); module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module); return module
load({test!r}).train({stage!r}, load({conftest!r}).tiny_model(), __import__("pathlib").Path({out!r}), {steps})
"""


def train(stage, trunk, out, steps):
    model = with_drafts(trunk, 1, seed=0)
    if stage == "mtp":
        train_mtp(model, out, steps)
    else:
        chosen = SftSettings(batch_tokens=128, epochs=50, loop=LoopSettings(steps=steps, checkpoint_every=4, threads=1))
        run_sft(chosen, model, segments(), out, EventLog.null(), draft_every=2)
    return model


def saved_step(out):
    state = newest_state(out / "state")
    return -1 if state is None else int(state.stem.split("-")[1])


@pytest.mark.parametrize("stage", [pytest.param("mtp", marks=pytest.mark.nightly), "joint"])
def test_a_run_killed_anywhere_goes_on_bit_identical(make, tmp_path, stage):
    steps, out = 40, tmp_path / "killed"
    conftest = os.path.join(os.path.dirname(__file__), "conftest.py")
    script = KILLED.format(test=__file__, conftest=conftest, stage=stage, out=str(out), steps=steps)
    child = subprocess.Popen([sys.executable, "-c", script])
    while saved_step(out) < 4:
        assert child.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert saved_step(out) < steps
    resumed = train(stage, make.model(), out, steps)
    straight = train(stage, make.model(), tmp_path / "straight", steps)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name

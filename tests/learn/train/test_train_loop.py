"""A stage survives kill -9, bad steps and full disks; budgets end it; what it learns it learns."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from etude.core.events.log import EventLog
from etude.core.trace.segment import Segment
from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.shards import write_shards
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.stretch import stretch
from etude.learn.train.checkpoint import TrainingStateError, load_state, newest_state, save_state
from etude.learn.train.loop import TrainingDiverged
from etude.learn.train.midway import Midway
from etude.learn.train.pretrain import run_pretrain
from etude.learn.train.regression import Regression
from etude.learn.train.settings import LoopSettings, PhaseSettings, RegressionSettings, SftSettings
from etude.learn.train.sft import run_sft
from etude.learn.train.sources import token_weights


def documents(out, count=30, seed=0):
    rng = np.random.default_rng(seed)
    lengths = {"short": (5, 60), "long": (100, 300)}
    shards = {
        name: write_shards(out / name, [rng.integers(0, 40, rng.integers(*bounds)).tolist() for _ in range(count)])
        for name, bounds in lengths.items()
    }
    return Mixture(shards, {"short": 0.8, "long": 0.2}, seed)


def segments(count=60, seed=0):
    """Copy tasks: a random prompt, then the same tokens again as the policy's own."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        half = rng.integers(0, 40, rng.integers(4, 12))
        ids = np.concatenate((half, half)).astype(np.int32)
        sampled = np.arange(len(ids)) >= len(half)
        out.append(Segment(ids, sampled, np.zeros(len(ids), np.float32), np.where(sampled, 0, -1).astype(np.int32)))
    return out


def pretrain_settings(steps=8, **loop):
    return PhaseSettings(row_tokens=16, batch_rows=4, loop=LoopSettings(steps=steps, checkpoint_every=4, **loop))


def sft_settings(steps=8, **loop):
    return SftSettings(batch_tokens=128, epochs=50, loop=LoopSettings(steps=steps, checkpoint_every=4, **loop))


def train(stage, model, out, steps):
    """One thread in every process: sums over another number of threads differ in their last bits."""
    if stage != "sft":
        settings = pretrain_settings(steps, threads=1).model_copy(update={"packing": stage != "unpacked"})
        watches = []
        if stage == "long":
            model = stretch(model, 16, 4)
            settings = settings.model_copy(update={"row_tokens": 64})
            watches = [guard(model, out), Midway(0.5, lambda: save_checkpoint(model, out / "midway"))]
        return run_pretrain(stage, settings, model, documents(out), out, EventLog.null(), watches), model
    return run_sft(sft_settings(steps, threads=1), model, segments(), out, EventLog.null()), model


def guard(model, out, **settings):
    """Measures what only the weights decide: a resumed run has to find the same figures."""
    held = RegressionSettings(every=3, **settings)
    return Regression(
        held, model, lambda: float(model.head.weight.detach().abs().mean()), out / "regression", "long", EventLog.null()
    )


KILLED = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("loop_tests", {test!r}); tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)
spec = importlib.util.spec_from_file_location("makers", {conftest!r}); makers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(makers)
from pathlib import Path
tests.train({stage!r}, makers.tiny_model(), Path({out!r}), {steps})
"""


def saved_step(out):
    state = newest_state(out / "state")
    return -1 if state is None else int(state.stem.split("-")[1])


_NIGHTLY = [pytest.param(stage, marks=pytest.mark.nightly) for stage in ("unpacked", "long")]


@pytest.mark.sample(1)
@pytest.mark.parametrize("stage", ["base", "sft", *_NIGHTLY])
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

    _, resumed = train(stage, make.model(seed=7), out, steps)
    _, straight = train(stage, make.model(), tmp_path / "straight", steps)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    if stage == "long":
        left = [load_checkpoint(folder / "midway").state_dict() for folder in (out, tmp_path / "straight")]
        assert all(torch.equal(left[0][name], left[1][name]) for name in left[0])


def test_a_state_is_saved_after_a_time_where_steps_are_slow(make, tmp_path, monkeypatch):
    monkeypatch.setattr("etude.learn.train.loop.SAVE_AFTER_S", 0.0)
    saved = []
    monkeypatch.setattr("etude.learn.train.loop.save_state", lambda folder, step, *_: saved.append(step))
    train("base", make.model(), tmp_path, 3)  # checkpoint_every is 4
    assert saved == [1, 2, 3]


def test_a_finished_stage_trains_no_more(make, tmp_path):
    first, _ = train("base", make.model(), tmp_path, 4)
    again, model = train("base", make.model(seed=7), tmp_path, 4)
    assert again == first
    assert torch.equal(model.embed.weight, torch_state(tmp_path)["model"]["embed.weight"])


def torch_state(out):
    return load_state(newest_state(out / "state"))


def test_sft_learns_to_copy(make, tmp_path):
    settings = SftSettings(batch_tokens=512, epochs=1000, loop=LoopSettings(steps=60, checkpoint_every=1000))
    log = EventLog(tmp_path / "events.jsonl")
    result = run_sft(settings, make.model(), segments(8), tmp_path, log)
    assert result.loss < 0.5  # a memory of 8 sequences; the first loss is above ln 40 = 3.7
    assert result.skipped == 0 and result.steps == 60
    text = (tmp_path / "events.jsonl").read_text()
    assert '"tokens_per_core_s"' in text and '"kind": "progress"' in text


def test_bad_steps_never_touch_the_weights_and_end_the_run(make, tmp_path):
    model = make.model()
    train("base", model, tmp_path, 4)
    with torch.no_grad():
        model.head.weight[0, 0] = float("nan")
    state = torch_state(tmp_path)
    state["model"]["head.weight"][0, 0] = float("nan")
    save_state(tmp_path / "state", 4, state, keep=1)
    log = EventLog(tmp_path / "events.jsonl")
    with pytest.raises(TrainingDiverged, match="3 bad steps in a row.*not finite"):
        run_pretrain("base", pretrain_settings(50, bad_steps_limit=3), model, documents(tmp_path), tmp_path, log)
    assert torch.equal(model.embed.weight, state["model"]["embed.weight"])
    assert (tmp_path / "events.jsonl").read_text().count("skipped: loss is not finite") == 3


@pytest.mark.parametrize("stage", ["base", "long"])
def test_one_bad_batch_is_skipped_and_recorded(make, tmp_path, monkeypatch, stage):
    from etude.learn.train import next_token

    calls = []
    real = next_token.weighted_cross_entropy

    def sometimes_infinite(*args):
        calls.append(0)
        return real(*args) * (float("inf") if len(calls) == 3 else 1.0)

    monkeypatch.setattr(next_token, "weighted_cross_entropy", sometimes_infinite)
    result, _ = train(stage, make.model(), tmp_path, 8)
    assert (result.steps, result.skipped) == (8, 1) and np.isfinite(result.loss)


@pytest.mark.parametrize("stage", ["base", "long"])
def test_a_loss_spike_is_skipped(make, tmp_path, monkeypatch, stage):
    from etude.learn.train import next_token

    calls = []
    real = next_token.weighted_cross_entropy

    def spiking(*args):
        calls.append(0)
        return real(*args) * (50.0 if len(calls) == 25 else 1.0)

    monkeypatch.setattr(next_token, "weighted_cross_entropy", spiking)
    result, _ = train(stage, make.model(), tmp_path, 30)
    assert result.skipped == 1


def test_a_core_time_budget_ends_the_run_in_time(make, tmp_path):
    settings = PhaseSettings(row_tokens=16, batch_rows=4, loop=LoopSettings(budget_core_s=0.5))
    result = run_pretrain("base", settings, make.model(), documents(tmp_path), tmp_path, EventLog.null())
    assert 0.5 <= result.core_s < 0.8 and result.steps > 3


def test_sft_ends_with_its_epochs(make, tmp_path):
    settings = SftSettings(batch_tokens=128, epochs=2, loop=LoopSettings(budget_core_s=1000))
    result = run_sft(settings, make.model(), segments(40), tmp_path, EventLog.null())
    assert result.tokens == pytest.approx(2 * sum(len(s) for s in segments(40)), rel=0.1)


def test_the_router_bias_moves_towards_balance(make, tmp_path):
    model = make.model()
    settings = PhaseSettings(row_tokens=16, batch_rows=4, router_bias_rate=0.01, loop=LoopSettings(steps=5))
    run_pretrain("base", settings, model, documents(tmp_path), tmp_path, EventLog.null())
    biases = [b for name, b in model.named_buffers() if name.endswith("router.bias")]
    assert biases and all(0.01 <= b.abs().max() <= 0.05 + 1e-6 for b in biases)


def test_sft_without_sampled_tokens_is_refused(make, tmp_path):
    (segment,) = segments(1)
    segment.sampled[:] = False
    with pytest.raises(ValueError, match="no segment with a sampled token"):
        run_sft(sft_settings(), make.model(), [segment], tmp_path, EventLog.null())


def test_weights_of_prompt_answers_and_tool_output():
    sampled = np.array([0, 0, 1, 1, 0, 0, 1], bool)
    segment = Segment(np.arange(7, dtype=np.int32), sampled, np.zeros(7, np.float32), np.zeros(7, np.int32))
    np.testing.assert_allclose(token_weights(segment, 0.1, 0.02), [0, 0.02, 1, 1, 0.1, 0.1, 1])


def test_old_states_are_removed_and_a_torn_one_is_never_taken(tmp_path):
    for step in (2, 4, 6):
        save_state(tmp_path, step, {"step": step}, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-00000004.pt", "state-00000006.pt"]
    (tmp_path / "state-00000008.part").write_bytes(b"half")
    newest = newest_state(tmp_path)
    assert newest is not None and load_state(newest) == {"step": 6}
    save_state(tmp_path, 10, {"step": 10}, keep=2)
    assert not list(tmp_path.glob("*.part"))


def test_a_broken_state_is_named(tmp_path):
    (tmp_path / "state-00000001.pt").write_bytes(b"not a state")
    with pytest.raises(TrainingStateError, match="state-00000001.pt.*remove it"):
        load_state(newest_state(tmp_path))


FULL_DISK = """
import resource, signal, torch
from pathlib import Path
from etude.learn.train.checkpoint import TrainingStateError, save_state
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in (0, 10_000, 3_999_000):  # like a full disk: writes beyond it fail
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        save_state(Path({out!r}), 2, {{"weights": torch.zeros(1_000_000)}}, keep=1)
    except TrainingStateError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(error)
"""


def test_a_full_disk_is_a_clear_error_and_the_old_state_stays(tmp_path):
    save_state(tmp_path, 1, {"weights": torch.ones(3)}, keep=1)
    command = [sys.executable, "-c", FULL_DISK.format(out=str(tmp_path))]
    child = subprocess.run(command, capture_output=True, text=True, timeout=100)
    errors = child.stdout.splitlines()
    assert len(errors) == 3, child.stderr
    for error in errors:
        assert "step 2" in error and "state-00000001.pt is intact" in error and "free space" in error
    newest = newest_state(tmp_path)
    assert newest is not None and torch.equal(load_state(newest)["weights"], torch.ones(3))
    assert [p.name for p in tmp_path.iterdir()] == ["state-00000001.pt"]

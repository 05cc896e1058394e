"""What SFT can't learn from is found before its first step: sessions beyond the model's positions by name, and segments without a token of weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.events.log import EventLog
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.segment import Segment
from etude.core.trace.session import Recorder
from etude.learn.train.learnable import SessionTooLong, fit_segments, learnable
from etude.learn.train.loop import OtherData
from etude.learn.train.optimizer import Optimizers, OtherOptimizers
from etude.learn.train.session_loss import session_loss
from etude.learn.train.settings import LoopSettings, OptimizerSettings, SftSettings
from etude.learn.train.sft import run_sft
from etude.learn.train.sources import token_weights


def segment(length: int, session: str = "", seed: int = 0) -> Segment:
    sampled = np.arange(length) > 2
    ids = np.random.default_rng(seed).integers(0, 40, length).astype(np.int32)
    return Segment(ids, sampled, np.zeros(length, np.float32), np.where(sampled, 0, -1).astype(np.int32), None, session)


def unlearnable(length: int = 9) -> Segment:
    found = segment(length)
    found.sampled[:] = np.arange(length) == 0
    return found


def settings(**changes: object) -> SftSettings:
    return SftSettings.model_validate(
        {"batch_tokens": 64, "loop": LoopSettings(steps=20, checkpoint_every=2)} | changes
    )


@pytest.fixture
def short(make):
    """A model of 2048 positions whose config says 32."""
    from etude.learn.model.init import new_model
    from etude.learn.model.settings import ModelSettings

    wanted = ModelSettings.model_validate(
        dict(hidden_size=16, layers=2, heads=2, experts=4, max_positions=32, init_head_std=0.3)
    )
    return new_model(wanted, 40)


def test_a_session_beyond_the_positions_stops_sft_before_its_first_step_by_name(short, tmp_path):
    data = [segment(20, f"s{n}") for n in range(30)] + [segment(33, "task-7#2.1")]
    with pytest.raises(
        SessionTooLong,
        match=r"segment 31 of 31 \(session task-7#2.1\) has 33 tokens, and the model\'s positions end at 32.*sft.too_long",
    ):
        run_sft(settings(), short, data, tmp_path, EventLog.null())
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(("how", "lengths"), [("cut", [20, 32, 32, 5]), ("drop", [20, 32, 5])])
def test_it_is_cut_or_dropped_where_the_recipe_says_so_and_counted(how, lengths):
    notes: list[str] = []
    data = [segment(20), segment(40, "long"), segment(32), segment(5)]
    found = fit_segments(data, 32, how, notes.append)
    assert sorted(map(len, found)) == sorted(lengths)
    for own in found:
        assert len(own.ids) == len(own.sampled) == len(own.logprobs) == len(own.versions)
    (note,) = notes
    assert "segment 2 of 4 (session long) has 40 tokens" in note and "1 of 4 are too long" in note
    assert fit_segments(data[:1], 32, how, notes.append) == data[:1] and len(notes) == 1


def test_sft_with_the_choice_made_ends(short, tmp_path):
    for how in ("cut", "drop"):
        data = [segment(20, seed=n) for n in range(6)] + [segment(60)]
        assert run_sft(settings(too_long=how), short, data, tmp_path / how, EventLog.null()).steps > 0


def test_held_out_sessions_are_looked_at_too(short):
    with pytest.raises(SessionTooLong, match="held-out segment 2 of 2 .session x."):
        session_loss(short, [segment(20), segment(33, "x")])


@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=8),
    st.integers(2, 50),
    st.sampled_from(["cut", "drop"]),
)
def test_whatever_is_kept_fits_and_nothing_that_fits_is_touched(rows, positions, how):
    data = [segment(length, seed=n) for n, (length, _) in enumerate(rows)]
    found = fit_segments(data, positions, how, lambda line: None)
    assert all(len(own) <= positions for own in found)
    assert [own for own in data if len(own) <= positions] == [
        own for own in found if any(own is other for other in data)
    ]


@pytest.mark.parametrize("observation_weight", [0.0, 0.1])
@pytest.mark.parametrize("odd", [1, 6, 8])
def test_a_segment_without_a_token_of_weight_costs_no_step(make, tmp_path, odd, observation_weight):
    data = [*(unlearnable() for _ in range(odd)), *(segment(30, seed=n) for n in range(8))]
    result = run_sft(
        settings(observation_weight=observation_weight), make.model(), data, tmp_path, EventLog(tmp_path / "e.jsonl")
    )
    assert result.skipped == 0 and result.steps > 0
    said = f"{odd} segments hold no token to learn from" in (tmp_path / "e.jsonl").read_text()
    assert said == (observation_weight == 0)
    held, idle = learnable(data, lambda own: token_weights(own, observation_weight, 0.0))
    assert idle == (odd if observation_weight == 0 else 0) and len(held) + idle == len(data)


def test_nothing_but_such_segments_is_refused(make, tmp_path):
    with pytest.raises(ValueError, match="no segment with a sampled token to learn from"):
        run_sft(settings(observation_weight=0.0), make.model(), [unlearnable()] * 3, tmp_path, EventLog.null())


def test_a_sessions_segments_know_whose_they_are():
    recorder = Recorder(SessionHeader("task-1#0.2"))
    recorder.append("completion", {}, tokens=EntryTokens([1, 2, 3], 1, [-0.1, -0.2], [0, 0]))
    (found,) = recorder.session.segments()
    assert found.session == "task-1#0.2"


class Killed(Exception):
    pass


def killed(model, data, out, chosen, at=4):
    step = Optimizers.step
    count = 0

    def dying(self):
        nonlocal count
        count += 1
        if count > at:
            raise Killed
        step(self)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Optimizers, "step", dying)
        run_sft(chosen, model, data, out, EventLog.null())


DATA = [segment(10 + n % 17, seed=n) for n in range(40)]


@pytest.mark.parametrize(
    "other",
    [
        DATA[:30],
        [*DATA, segment(12)],
        DATA[:3],
        [segment(len(own), seed=500 + n) for n, own in enumerate(DATA)],
        DATA[::-1],
    ],
    ids=["fewer", "more", "few", "others", "reversed"],
)
def test_a_resumed_stage_refuses_other_data(make, tmp_path, other):
    killed(make.model(), DATA, tmp_path, settings())
    with pytest.raises(OtherData, match="was trained on other data than this run has"):
        run_sft(settings(), make.model(), other, tmp_path, EventLog.null())
    assert run_sft(settings(), make.model(), DATA, tmp_path, EventLog.null()).steps > 4


def test_a_resumed_stage_takes_the_optimizers_settings_of_today_and_says_so(make, tmp_path):
    killed(make.model(), DATA, tmp_path, settings())
    today = OptimizerSettings(adam_lr=1e-4, muon_lr=1e-3, adam_betas=(0.5, 0.6), muon_momentum=0.5, weight_decay=0.3)
    seen: list[dict] = []
    step = Optimizers.step

    def spy(self):
        seen.extend(
            {k: v for k, v in group.items() if k != "params"} for part in self.parts for group in part.param_groups
        )
        step(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimizers, "step", spy)
        run_sft(settings(optimizer=today), make.model(), DATA, tmp_path, EventLog(tmp_path / "e.jsonl"))
    muon, adam = seen[0], seen[1]
    assert (muon["momentum"], muon["weight_decay"]) == (0.5, 0.3) and tuple(adam["betas"]) == (0.5, 0.6)
    text = (tmp_path / "e.jsonl").read_text()
    assert "with other settings of the optimizer than before: momentum was 0.95, is 0.5" in text


def test_a_state_of_other_optimizers_is_refused_with_the_settings(make, tmp_path):
    killed(make.model(), DATA, tmp_path, settings())
    with pytest.raises(OtherOptimizers, match="put optimizer.matrices and optimizer.low_rank back"):
        run_sft(
            settings(optimizer=OptimizerSettings(matrices="adamw", low_rank="adamw")),
            make.model(),
            DATA,
            tmp_path,
            EventLog.null(),
        )

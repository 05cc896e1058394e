"""What a run asks of vLLM that vLLM does not give is refused before anything starts, or reported."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from recording import RecordingObserver

from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.found import NoVllm
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.rl.reloader import check_engine, log_engine
from etude.rl.settings import RlSettings

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
VLLM = EngineSettings.model_validate({"kind": "vllm", "vllm": {"python": sys.executable}})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"update": {"router_replay": True}}, "rl.update.router_replay = true .* nothing to replay"),
        ({"drafts": {"every": 2}}, "rl.drafts.every = 2 .* set it to 0"),
    ],
)
def test_what_vllm_cannot_do_is_refused_by_name_and_our_engine_is_asked_nothing(wrong, message):
    settings = RlSettings.model_validate(wrong)
    with pytest.raises(ValueError, match=message):
        check_engine(settings, VLLM, CHECKPOINT)
    check_engine(settings, EngineSettings(), CHECKPOINT)


def test_a_family_for_which_vllm_is_not_shown_to_agree_with_the_trainer_is_refused(tmp_path):
    model = new_model(ModelSettings(family="deepseek_v3", hidden_size=32, layers=1), 50)
    save_checkpoint(model, tmp_path / "latent")
    with pytest.raises(ValueError, match="latent, which is deepseek_v3"):
        check_engine(RlSettings(), VLLM, tmp_path / "latent")
    check_engine(RlSettings(), EngineSettings(), tmp_path / "latent")


@pytest.mark.parametrize("update", [{}, {"router_replay": False}])
def test_replay_that_no_one_demanded_is_no_error(update):
    settings = RlSettings.model_validate({"update": update})
    check_engine(settings, VLLM, CHECKPOINT)
    again = RlSettings.model_validate_json(settings.model_dump_json())
    check_engine(again, VLLM, CHECKPOINT)


def test_a_python_without_vllm_ends_the_run_before_it_begins():
    observer = RecordingObserver()
    with pytest.raises(NoVllm, match="has no vLLM"):
        log_engine(VLLM, observer)
    log_engine(EngineSettings(), observer)
    assert not observer.notes


def test_that_replay_is_off_is_said(monkeypatch):
    monkeypatch.setattr("etude.rl.reloader.vllm_version", lambda python: "9.9")
    observer = RecordingObserver()
    log_engine(VLLM, observer)
    assert observer.notes == ["vLLM 9.9 answers, in float32; router replay is off, for it tells no routed experts"]


def test_vllm_is_refused_for_a_model_that_transformers_computes() -> None:
    with pytest.raises(ValueError, match='engine.kind = "vllm" is for models of our own code'):
        check_engine(RlSettings(), VLLM, CHECKPOINT, "transformers")

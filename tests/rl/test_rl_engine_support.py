"""What a run asks of vLLM that vLLM does not give is refused before anything starts, or reported."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from recording import RecordingObserver

from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.probe import EngineMismatch, compare
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.found import NoVllm
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.rl.reloader import check_engine, log_engine
from etude.rl.settings import RlSettings
from etude.rl.training_run import check_outside_engines

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
VLLM = EngineSettings.model_validate({"kind": "vllm", "vllm": {"python": sys.executable}})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"drafts": {"every": 2}}, "rl.drafts.every = 2 .* set it to 0"),
    ],
)
def test_what_vllm_cannot_do_is_refused_by_name_and_our_engine_is_asked_nothing(wrong, message):
    settings = RlSettings.model_validate(wrong)
    with pytest.raises(ValueError, match=message):
        check_engine(settings, VLLM, CHECKPOINT)
    check_engine(settings, EngineSettings(), CHECKPOINT)


def test_a_family_whose_files_are_laid_out_otherwise_than_memory_is_refused(tmp_path):
    model = new_model(ModelSettings(family="gpt_oss", hidden_size=32, layers=1), 50)
    save_checkpoint(model, tmp_path / "oss")
    with pytest.raises(ValueError, match="oss, which is gpt_oss.* take our own engine"):
        check_engine(RlSettings(), VLLM, tmp_path / "oss")
    check_engine(RlSettings(), EngineSettings(), tmp_path / "oss")


def with_engines(*models):
    """A run's context and services, of engines that sample from these models next to a trainer that holds the first."""
    home = [
        SimpleNamespace(
            client=EnginePolicy.start(model, EngineSettings()), lifeline=SimpleNamespace(name=f"engine {n}")
        )
        for n, model in enumerate(models)
    ]

    async def compared(sampled):
        return compare(models[0], sampled)

    run = SimpleNamespace(engine=VLLM, settings=RlSettings(), observer=RecordingObserver())
    return run, SimpleNamespace(engines=SimpleNamespace(home=home), compare=compared)


def model_of_base(base):
    model = new_model(ModelSettings(family="llama", hidden_size=64, layers=1, init_head_std=0.3, rope_theta=base), 100)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.mul_(4.0 if "attention" in name and tensor.ndim > 1 else 1.0)
    return model


async def test_engines_of_other_code_are_probed_before_anything_is_trained_and_each_has_to_pass():
    run, services = with_engines(model_of_base(1e4), model_of_base(1e4))
    await check_outside_engines(run, services, 100)
    assert len(run.observer.notes) == 2 and "engine 1 samples what the trainer computes" in run.observer.notes[1]
    run, services = with_engines(model_of_base(1e4), model_of_base(5.0))
    asked, complete = [], services.engines.home[0].client.complete
    services.engines.home[0].client.complete = lambda request: asked.append(request.session_id) or complete(request)
    with pytest.raises(EngineMismatch, match=r"vLLM \(engine 1\) samples from another distribution"):
        await check_outside_engines(run, services, 100)
    at_the_end = {f"probe-{n}" for n in range(len(asked))}
    assert asked and not at_the_end & set(asked), "the last probe begins sessions that no engine has cached"
    run.engine = EngineSettings()
    await check_outside_engines(run, services, 100)


def test_replay_is_refused_where_vllm_compiles_and_so_reports_no_experts():
    compiled = VLLM.model_copy(update={"vllm": VLLM.vllm.model_copy(update={"arguments": {}})})
    settings = RlSettings.model_validate({"update": {"router_replay": True}})
    check_engine(settings, VLLM, CHECKPOINT)
    with pytest.raises(ValueError, match="rl.update.router_replay = true, but .* leaves out enforce_eager = true"):
        check_engine(settings, compiled, CHECKPOINT)


@pytest.mark.parametrize("update", [{}, {"router_replay": False}])
def test_replay_that_no_one_demanded_is_no_error(update):
    settings = RlSettings.model_validate({"update": update})
    check_engine(settings, VLLM, CHECKPOINT)
    again = RlSettings.model_validate_json(settings.model_dump_json())
    check_engine(again, VLLM, CHECKPOINT)


def test_sessions_whose_queries_vllm_does_not_scale_are_refused_before_anything_starts(tmp_path):
    settings = {
        "family": "ministral3",
        "hidden_size": 64,
        "layers": 1,
        "yarn": {"factor": 4.0, "original_positions": 64},
    }
    save_checkpoint(new_model(ModelSettings.model_validate(settings), 100), tmp_path / "c")
    short = VLLM.model_copy(update={"max_len": 64})
    check_engine(RlSettings(), short, tmp_path / "c")
    with pytest.raises(
        ValueError, match="engine.max_len = 65 and a ministral3 model: .* set engine.max_len = 64, or take our own"
    ):
        check_engine(RlSettings(), short.model_copy(update={"max_len": 65}), tmp_path / "c")


def test_a_python_without_vllm_ends_the_run_before_it_begins():
    observer = RecordingObserver()
    with pytest.raises(NoVllm, match="has no vLLM"):
        log_engine(VLLM, observer)
    log_engine(EngineSettings(), observer)
    assert not observer.notes


@pytest.mark.parametrize(
    ("arguments", "rest"),
    [({"enforce_eager": True}, ""), ({}, "; without enforce_eager it reports no routed experts, so none are replayed")],
)
def test_that_replay_is_off_is_said(monkeypatch, arguments, rest):
    monkeypatch.setattr("etude.rl.reloader.vllm_version", lambda python: "9.9")
    observer = RecordingObserver()
    log_engine(VLLM.model_copy(update={"vllm": VLLM.vllm.model_copy(update={"arguments": arguments})}), observer)
    assert observer.notes == [f"vLLM 9.9 answers, in float32{rest}"]


def test_vllm_is_refused_for_a_model_that_transformers_computes() -> None:
    with pytest.raises(ValueError, match='engine.kind = "vllm" is for models of our own code'):
        check_engine(RlSettings(), VLLM, CHECKPOINT, "transformers")

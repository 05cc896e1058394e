"""A stage whose loop names a layout trains over processes that it starts, and ends with what one process would have."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from layout_lab import VOCABULARY, model_of
from loop_lab import Batches

from etude.core.events.log import EventLog
from etude.learn.model.adapters import add_adapters
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.device import DeviceMissing
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.parallel.launched import RankLost
from etude.learn.train.batch import TrainBatch, padded_batch
from etude.learn.train.loop import TrainingResult
from etude.learn.train.midway import Midway
from etude.learn.train.pretrain import learner_of
from etude.learn.train.settings import PhaseSettings
from etude.learn.train.stage import train_stage
from etude.learn.train.watch import TrainingWatch

STEPS = 4
LORA = {"rank": 2, "targets": ["attention"]}


def trained(
    model: CausalLM,
    folder: Path,
    layout: dict[str, int],
    source: Any = None,
    watches: tuple[TrainingWatch, ...] = (),
    **loop: Any,
) -> TrainingResult:
    settings = PhaseSettings.model_validate(
        {
            "optimizer": {"adam_lr": 1e-3, "matrices": "muon" if model.mtp else "adamw", "clip_norm": 0.5},
            "loop": {"steps": STEPS, "checkpoint_every": 2, "log_every": 1, "parallel": layout, **loop},
            "lora": LORA if folder.name.endswith("lora") else {},
        }
    )
    learner = learner_of(model, settings.router_bias_rate, 2, settings.lora)
    log = EventLog(folder / "events.jsonl")
    return train_stage(
        "short", "pretrain.short", settings, model, model, source or Batches(STEPS), learner, folder, log, watches
    )


def difference(
    found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor], start: dict[str, torch.Tensor]
) -> float:
    """2-norm of the difference of two models, as a share of the way that training went."""
    apart, moved = (
        sum(float((tensor - other[name]).square().sum()) for name, tensor in one.items())
        for one, other in ((found, wanted), (wanted, start))
    )
    return (apart / moved) ** 0.5


CASES = [
    pytest.param("qwen3", {"shard": 2}, "whole", {}, marks=pytest.mark.nightly),
    pytest.param("qwen3", {"shard": 2}, "lora", {}, marks=pytest.mark.nightly),
    pytest.param("qwen3", {"replicate": 2}, "whole", {"recompute": True}, marks=pytest.mark.nightly),
    pytest.param("deepseek_v3", {"shard": 2, "experts": 2}, "drafts", {}),
    pytest.param("qwen3_moe", {"shard": 4, "experts": 2}, "whole", {"recompute": True}, marks=pytest.mark.nightly),
    pytest.param("qwen3_moe", {"shard": 2, "context": 2}, "whole", {"recompute": True}, marks=pytest.mark.nightly),
    pytest.param("qwen3", {"replicate": 2, "shard": 2, "context": 2}, "lora", {}, marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("name", "layout", "kind", "loop"), CASES)
def test_a_stage_over_ranks_ends_with_the_weights_of_one_process(
    name: str, layout: dict[str, int], kind: str, loop: dict[str, Any], tmp_path: Path
) -> None:
    alone, split = model_of(name, drafts=kind == "drafts"), model_of(name, drafts=kind == "drafts")
    expected = trained(alone, tmp_path / f"alone-{kind}", {}, **loop)
    result = trained(split, tmp_path / f"split-{kind}", layout, **loop)
    assert result.tokens == expected.tokens and result.loss == pytest.approx(expected.loss, rel=1e-5)
    start = model_of(name, drafts=kind == "drafts")
    if kind == "lora":
        add_adapters(start, LoraSettings.model_validate(LORA))
    assert difference(split.state_dict(), alone.state_dict(), start.state_dict()) <= 1e-3
    assert not torch.distributed.is_initialized() and all(type(p) is torch.nn.Parameter for p in split.parameters())


class Long(Batches):
    """One document after the other, each a batch."""

    length = 8192

    def next(self) -> TrainBatch | None:
        if self.step == self.end:
            return None
        self.step += 1
        ids = np.random.default_rng(self.step).integers(0, 9, self.length).cumsum() % VOCABULARY
        weights = np.ones(self.length, np.float32)
        weights[0] = 0.0
        return padded_batch([ids], [weights])


class Longest(Long):
    length = 32768


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "documents", "steps"), [("qwen3", Long, 2), ("deepseek_v3", Long, 1), ("qwen3", Longest, 1)]
)
def test_a_long_document_is_shared_by_ranks(name: str, documents: type[Long], steps: int, tmp_path: Path) -> None:
    alone, split = (model_of(name, max_positions=documents.length) for _ in range(2))
    expected = trained(alone, tmp_path / "alone", {}, documents(steps))
    result = trained(split, tmp_path / "split", {"shard": 2, "context": 2}, documents(steps))
    assert result.steps == steps and result.loss == pytest.approx(expected.loss, rel=1e-6)
    start = model_of(name, max_positions=documents.length).state_dict()
    assert difference(split.state_dict(), alone.state_dict(), start) <= 1e-3


def test_a_watch_sees_the_weights_of_its_step_and_may_go_back(tmp_path: Path) -> None:
    seen: dict[str, list[dict[str, torch.Tensor]]] = {"alone": [], "split": []}

    class Back(Midway):
        def after(self, step: int, done: float) -> str:
            super().after(step, done)
            if step < STEPS - 1:
                return ""
            model.load_state_dict(seen[kind][0])
            return "worse"

    for kind, layout in (("alone", {}), ("split", {"shard": 2})):
        model = model_of("qwen3")
        keep = lambda: seen[kind].append({n: t.clone() for n, t in model.state_dict().items()})  # noqa: B023
        result = trained(model, tmp_path / kind, layout, watches=(Back(0.5, keep),))
        assert result.stopped == "worse" and result.steps == STEPS - 1
        keep()
    (alone, _), (split, end) = seen["alone"], seen["split"]
    assert difference(split, alone, model_of("qwen3").state_dict()) <= 1e-3
    assert all(torch.equal(tensor, end[name]) for name, tensor in split.items())


class Deadly(Batches):
    """Kills one of the other ranks before the third batch."""

    def next(self) -> TrainBatch | None:
        if self.step == 2:
            own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
            ranks = [pid for pid in own if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(int(ranks[-1]), signal.SIGKILL)
        return super().next()


class Unreadable(Batches):
    """Gives a batch that one of two ranks can't compute: its rows hold a token that the vocabulary does not have."""

    def next(self) -> TrainBatch | None:
        batch = super().next()
        if batch is not None and self.step == 1:
            batch.ids[1:] = 10_000
        return batch


def test_a_rank_that_fails_is_named_with_its_error(tmp_path: Path) -> None:
    with pytest.raises(RankLost, match=r"rank 1 of 2 is lost: IndexError: .* \(.*py:[0-9]+\); what"):
        trained(model_of("qwen3"), tmp_path, {"shard": 2}, Unreadable(STEPS))


def test_a_killed_rank_ends_the_stage_with_its_number_and_the_next_run_goes_on(tmp_path: Path) -> None:
    alone, split = model_of("qwen3"), model_of("qwen3")
    trained(alone, tmp_path / "alone", {"shard": 2})
    with pytest.raises(
        RankLost, match="rank 1 of 2 is lost: its process was killed by SIGKILL; perhaps memory ran out"
    ):
        trained(split, tmp_path / "split", {"shard": 2}, Deadly(STEPS))
    trained(split, tmp_path / "split", {"shard": 2})
    assert difference(split.state_dict(), alone.state_dict(), model_of("qwen3").state_dict()) == 0


def test_ranks_on_gpus_are_refused_before_any_process_starts_where_there_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(DeviceMissing, match=r'pretrain\.short\.loop\.device = "cuda".* finds no GPU in this process'):
        trained(model_of("qwen3"), tmp_path / "refused", {"shard": 2}, device="cuda")
    with (
        patch("torch.cuda.is_available", return_value=True),
        patch("torch.cuda.device_count", return_value=1),
        pytest.raises(DeviceMissing, match=r"2 ranks on this machine, which has 1 GPUs: a rank needs one"),
    ):
        trained(model_of("qwen3"), tmp_path / "refused", {"shard": 2}, device="cuda")
    assert not (tmp_path / "refused/state").exists()


@pytest.mark.parametrize(
    ("name", "loop", "message"),
    [
        ("qwen3", {"parallel": {"shard": 2, "experts": 2}}, "pretrain.short.loop.parallel: experts = 2, and the model's layers have no experts"),
        ("qwen3_moe", {"parallel": {"shard": 3, "experts": 3}}, "experts = 3, and the model's layers have 4 experts: take a divisor"),
    ],
)  # fmt: skip
def test_a_layout_that_a_model_can_not_have_is_refused_before_any_process_starts(
    name: str, loop: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        trained(model_of(name), tmp_path / "refused", loop.pop("parallel"), **loop)
    assert not (tmp_path / "refused/state").exists()

"""Engines that get adapters serve, bit by bit, the weights that the trainer's model merges to (promise 7)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_lab import small_model
from vllm_lab import checkpoint_of

from etude.learn.engine.adapter_merger import AdapterMerger, merger_for
from etude.learn.engine.core import EngineCore
from etude.learn.engine.service import EngineService
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.host_copy import FILE, HostCopy, StateFile
from etude.learn.model.adapters import add_adapters, is_adapter_tensor, merged_state, trained_state
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest
from etude.learn.weights.store import WeightStore

WAYS = {
    "lora": LoraSettings(rank=2),
    "dora": LoraSettings(rank=2, dora=True),
    "experts": LoraSettings(rank=3, targets=["attention", "experts"]),
}


class Trainer:
    """A model with adapters that change from version to version, and the store that they are published in."""

    def __init__(self, folder: Path, way: str) -> None:
        self.checkpoint = checkpoint_of(small_model("qwen3_moe"), folder / "checkpoint")
        self.lora = WAYS[way]
        self.model: CausalLM = load_checkpoint(self.checkpoint)
        add_adapters(self.model, self.lora)
        self.store = WeightStore(folder / "weights")
        self.publisher = Publisher(self.store)
        self.publisher.join("engine")

    def publish(self, version: int) -> str:
        """The digest of the merged weights."""
        with torch.no_grad():
            for name, tensor in self.model.state_dict().items():
                if is_adapter_tensor(name):
                    tensor.add_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(version)), alpha=0.02)
        self.publisher.publish(trained_state(self.model), version)
        self.publisher.acknowledge("engine", version)
        return state_digest(merged_state(self.model))

    def merger(self) -> AdapterMerger:
        return AdapterMerger(self.checkpoint, self.lora)


@pytest.fixture(params=WAYS)
def trainer(request: pytest.FixtureRequest, tmp_path: Path) -> Trainer:
    return Trainer(tmp_path, request.param)


def test_the_store_holds_adapters_alone_and_they_merge_to_the_trainers_bits(trainer: Trainer) -> None:
    merge, receiver = trainer.merger(), Receiver(trainer.store)
    for version in (1, 2):
        digest = trainer.publish(version)
        published = receiver.catch_up().state
        assert not {name for name in published if name.endswith("weight")}, "the base stays where it is"
        assert state_digest(merge(published)) == digest


def test_our_engine_serves_the_merged_weights_of_each_version(trainer: Trainer) -> None:
    core = EngineCore(load_checkpoint(trainer.checkpoint), EngineSettings(max_len=64, max_slots=2))
    service = EngineService(core, trainer.store, trainer.merger())
    for version in (1, 2):
        digest = trainer.publish(version)
        assert service.stage() == version and service.apply() == version
        served = service._thread.call(lambda core: state_digest(core.model.state_dict())).result()
        assert served == digest
    service.close()


def test_vllms_copy_holds_the_merged_weights_for_all_engines_of_a_node(trainer: Trainer, tmp_path: Path) -> None:
    one, other = (HostCopy(tmp_path / "copy", trainer.checkpoint, trainer.merger()) for _ in range(2))
    receiver = Receiver(trainer.store)
    for version, copy in ((1, one), (2, other), (3, one)):
        digest = trainer.publish(version)
        received = copy.bring(receiver)
        assert received.version == version
        with other.reading() as held:
            assert state_digest(StateFile(held.file).state) == digest == state_digest(received.state)
    assert received.walked == ("delta-2", "delta-3"), "from the adapters that this process received last"
    (tmp_path / "copy" / FILE).touch()
    before = (tmp_path / "copy" / FILE).stat().st_mtime_ns
    assert other.bring(receiver).version == 3
    assert (tmp_path / "copy" / FILE).stat().st_mtime_ns == before, "another engine wrote it already"


def test_adapters_of_other_settings_are_refused_and_the_engine_keeps_what_it_serves(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, "lora")
    core = EngineCore(load_checkpoint(trainer.checkpoint), EngineSettings(max_len=64, max_slots=2))
    merge = AdapterMerger(trainer.checkpoint, WAYS["dora"])
    service = EngineService(core, trainer.store, merge)
    before = state_digest(core.model.state_dict())
    trainer.publish(1)
    service.stage()
    with pytest.raises(ValueError, match="trained with other adapters"):
        service.apply()
    assert service._thread.call(lambda core: (core.version, state_digest(core.model.state_dict()))).result() == (
        0,
        before,
    )
    service.close()


def test_draft_layers_come_through_as_they_were_published(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path, "lora")
    trained = trained_state(trainer.model) | {"mtp.0.norm.weight": torch.full((4,), 7.0)}
    whole = trainer.merger()(trained)
    assert torch.equal(whole["mtp.0.norm.weight"], torch.full((4,), 7.0))


def test_all_weights_are_trained_without_a_rank_and_nothing_is_merged(tmp_path: Path) -> None:
    assert merger_for(tmp_path / "no checkpoint", LoraSettings()) is None

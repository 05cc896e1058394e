"""A node's copy of the weights is bit by bit what was published, in Hugging Face layout, or it is not there (promise 7)."""

from __future__ import annotations

import json

import pytest
import torch
from engine_lab import small_model
from safetensors import safe_open
from vllm_lab import checkpoint_of, published

from etude.learn.engine.vllm.host_copy import FILE, HELD, HostCopy, StateFile, changed_tensors, write_state_file
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_keys import to_hf
from etude.learn.model.settings import Architecture
from etude.learn.weights.errors import Unreachable
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import state_digest

FAMILIES = ("qwen3_moe", "deepseek_v3")


@pytest.mark.parametrize("family", FAMILIES)
def test_one_file_holds_both_layouts_in_the_same_bytes(family, tmp_path):
    model = small_model(family)
    state, config = model.state_dict(), model.config
    path = tmp_path / "model.safetensors"
    write_state_file(path, state, config)
    file = StateFile(path)
    assert state_digest(file.state) == state_digest(state)
    with safe_open(path, framework="pt") as read:
        theirs = dict(to_hf(state, config))
        assert set(read.keys()) == set(theirs)
        assert all(torch.equal(read.get_tensor(key), tensor) for key, tensor in theirs.items())
    name = "blocks.1.feed.experts.gate_up"
    file.state[name][2, 0, 0] = 41.0
    with safe_open(path, framework="pt") as read:
        assert read.get_tensor("model.layers.1.mlp.experts.2.gate_proj.weight")[0, 0] == 41.0


def test_types_of_different_widths_lie_together(tmp_path):
    state = {"norm.weight": torch.ones(3, dtype=torch.bfloat16), "head.weight": torch.rand(5, 3)}
    write_state_file(tmp_path / "f", state, small_model("qwen3_moe").config)
    assert state_digest(StateFile(tmp_path / "f").state) == state_digest(state)


def test_a_type_without_a_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="norm.weight is int64"):
        write_state_file(
            tmp_path / "f", {"norm.weight": torch.ones(3, dtype=torch.int64)}, small_model("qwen3_moe").config
        )


@pytest.fixture(params=FAMILIES)
def world(request, tmp_path):
    model, publisher, store = published(tmp_path, request.param)
    checkpoint = checkpoint_of(model, tmp_path / "checkpoint")
    return model, publisher, Receiver(store), HostCopy(tmp_path / "copy", checkpoint)


def step(model, publisher, version: int) -> None:
    publisher.join("engine") if version == 1 else None
    publisher.acknowledge("engine", version - 1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.view(-1)[version::7] += 0.01
    publisher.publish(model.state_dict(), version)


def whole(model, copy: HostCopy, version: int) -> bool:
    """Whether the copy is the model, by every reader that there is."""
    with copy.reading() as held:
        ours = StateFile(held.file).state
        back = load_checkpoint(copy.folder)
        digests = {key for part in StateFile(held.file).parts.values() for key in part}
        return (
            held.version == version
            and state_digest(ours) == state_digest(model.state_dict()) == state_digest(back.state_dict())
            and set(held.digests) == digests
        )


def test_the_copy_follows_deltas_bit_by_bit_and_any_reader_takes_it(world):
    model, publisher, receiver, copy = world
    copy.bring(receiver)
    assert whole(model, copy, 0)
    for version in (1, 2):
        step(model, publisher, version)
        received = copy.bring(receiver, version)
        assert received.walked == (f"delta-{version}",)
        assert whole(model, copy, version)
    assert copy.bring(receiver).walked == (), "it is there already"


def test_one_copy_serves_all_engines_of_a_node_and_goes_wherever_one_asks(world):
    model, publisher, receiver, copy = world
    copy.bring(receiver)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    step(model, publisher, 1)
    other = HostCopy(copy.folder, copy.folder.parent / "checkpoint")
    other.bring(receiver)
    assert whole(model, copy, 1)
    copy.bring(receiver, 0)
    with other.reading() as held:
        assert held.version == 0 and state_digest(StateFile(held.file).state) == state_digest(before)


def test_a_flipped_bit_in_the_copy_is_found_and_it_comes_again(world):
    model, publisher, receiver, copy = world
    copy.bring(receiver)
    path = copy.folder / FILE
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    step(model, publisher, 1)
    received = copy.bring(receiver)
    assert received.refused and "anchor-0" in received.walked
    assert whole(model, copy, 1)


def test_a_kill_while_it_is_written_leaves_a_copy_that_is_made_again(world, monkeypatch):
    model, publisher, receiver, copy = world
    copy.bring(receiver)
    step(model, publisher, 1)

    def killed(state) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("etude.learn.engine.vllm.host_copy.state_digest", killed)
        copy.bring(receiver)
    assert not (copy.folder / HELD).exists()
    with pytest.raises(LookupError, match="holds no weights"), copy.reading():
        pass
    copy.bring(receiver)
    assert whole(model, copy, 1)


def test_a_version_that_the_store_does_not_have_leaves_the_copy_as_it_was(world):
    model, _, receiver, copy = world
    copy.bring(receiver)
    with pytest.raises(Unreachable, match="no version 9"):
        copy.bring(receiver, 9)
    assert whole(model, copy, 0)


def test_digests_of_the_file_change_for_what_changed_alone(world):
    model, publisher, receiver, copy = world
    copy.bring(receiver)
    before = json.loads((copy.folder / HELD).read_text())["digests"]
    publisher.join("engine")
    publisher.acknowledge("engine", 0)
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        model.blocks[1].feed.experts.down[1, 0, 0] += 1
    assert changed_tensors(old, model.state_dict()) == ["blocks.1.feed.experts.down"]
    publisher.publish(model.state_dict(), 1)
    copy.bring(receiver)
    after = json.loads((copy.folder / HELD).read_text())["digests"]
    assert {key for key in after if after[key] != before[key]} == {"model.layers.1.mlp.experts.1.down_proj.weight"}


def test_a_family_whose_files_lay_tensors_out_otherwise_is_refused(tmp_path):
    model = CausalLM(
        ModelConfig.from_settings(Architecture.model_validate({"family": "gpt_oss", "hidden_size": 16}), 11)
    )
    with pytest.raises(ValueError, match="feed.experts.* of gpt_oss is laid out otherwise"):
        write_state_file(tmp_path / "f", model.state_dict(), model.config)

"""The directory of an adapter is taken wherever a checkpoint is: base and adapter are found, checked and merged in memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from etude.agent.app.errors import UsageError
from etude.agent.app.model import ModelChoice, open_model
from etude.agent.proxy.settings import CaptureSettings
from etude.cli.capture import Upstream, _book
from etude.evaluate.bench.bases.compared_checkpoint import compared_checkpoints
from etude.learn.model.adapter_files import save_adapter
from etude.learn.model.adapters import adapted_modules, add_adapters, is_adapter_tensor, merged_state
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, load_config, save_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.named_checkpoint import checkpoint_folder, find_checkpoint
from etude.learn.serve.served_model import open_model as open_served
from etude.learn.weights.adapter_folder import BaseError, innermost_base
from etude.learn.weights.hf_files import CheckpointError
from etude.pipeline.run.checkpoint_identity import identity
from etude.pipeline.run.judges import answering

NANO = Path(__file__).parents[3] / "checkpoints" / "sft-nano"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


def write_adapter(folder: Path, base: Path, seed: int = 0, **settings) -> dict[str, torch.Tensor]:
    """An adapter that changes the weights; the state of the merged model."""
    model, lora = load_checkpoint(base), LoraSettings(rank=2, seed=seed, **settings)
    add_adapters(model, lora)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if is_adapter_tensor(name):
                tensor.add_(torch.empty(tensor.shape).normal_(0, 0.1, generator=generator))
    save_adapter(model, lora, folder, base)
    return merged_state(model)


def equal(model: CausalLM, state: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(model.state_dict()[name], tensor) for name, tensor in state.items())


def edit(adapter: Path, **changes: object) -> None:
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("settings", [{"targets": ["attention", "dense", "experts"]}, {"dora": True}])
def test_an_adapter_loads_as_its_base_with_the_adapter_merged(tmp_path: Path, settings: dict) -> None:
    merged = write_adapter(tmp_path / "run" / "adapter", NANO, **settings)
    folder, title = find_checkpoint("run/adapter")
    model = load_checkpoint(folder)
    assert title == "adapter" and equal(model, merged) and not adapted_modules(model)
    assert load_config(folder) == load_config(NANO) and innermost_base(folder) == NANO
    assert all(p.requires_grad for p in model.parameters())
    half = load_checkpoint(folder, dtype=torch.bfloat16)
    assert torch.equal(half.embed.weight, merged["embed.weight"].bfloat16())
    assert not any(path.is_file() and not path.is_symlink() for path in folder.iterdir())  # no copy of weights


def test_the_directory_of_links_is_the_same_until_files_change(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "base")
    write_adapter(tmp_path / "adapter", tmp_path / "base")
    folder = checkpoint_folder("adapter")
    first = identity(folder)
    (folder / "tokenizer.json").unlink()  # by a cleaner of caches
    assert checkpoint_folder("adapter") == folder and (folder / "tokenizer.json").is_file()
    write_adapter(tmp_path / "adapter", tmp_path / "base", seed=1)
    assert checkpoint_folder("adapter") == folder and identity(folder) != first
    (tmp_path / "base" / "LICENSE").write_text("as it was")
    assert (checkpoint_folder("adapter") / "LICENSE").is_file()


def test_an_adapter_on_an_adapter_is_merged_in_order(tmp_path: Path) -> None:
    write_adapter(tmp_path / "one", NANO)
    both = write_adapter(tmp_path / "two", checkpoint_folder("one"), seed=1)
    named = json.loads((tmp_path / "two" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(named) == tmp_path / "one"
    assert equal(load_checkpoint(checkpoint_folder("two")), both)
    edit(tmp_path / "one", base_model_name_or_path="two")
    with pytest.raises(BaseError, match="which is an adapter on this one"):
        checkpoint_folder("two")


def test_what_is_saved_from_it_is_whole_and_its_card_names_both(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "base")
    (tmp_path / "base" / "LICENSE").write_text("as it was")
    write_adapter(tmp_path / "run" / "adapter", tmp_path / "base")
    folder = checkpoint_folder("run/adapter")
    save_checkpoint(load_checkpoint(folder), tmp_path / "out", tokenizer_from=folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "LICENSE"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "base" / name).read_bytes()
    text = (tmp_path / "out" / "README.md").read_text()
    assert "| adapter | run/adapter, merged |" in text and folder.name not in text


async def test_the_agent_a_judge_and_the_capture_proxy_open_an_adapter(tmp_path: Path) -> None:
    write_adapter(tmp_path / "mine", NANO)
    model = await open_model(ModelChoice("mine"))
    model.close()
    assert model.policy.name == "mine"
    async with answering("checkpoint:mine", "NO_KEY", "--judge") as policy:
        assert policy.name == "mine"
    upstream = Upstream("default", "NO_KEY", (), "max_tokens", "etude capture serve")
    with _book("mine", upstream, None, CaptureSettings(tmp_path / "sessions")) as book:
        assert book.policy.name == "mine"
    edit(tmp_path / "mine", base_model_name_or_path="gone/away/far")
    with pytest.raises(
        UsageError, match="--model mine: the adapter mine names the base gone/away/far, and there is no"
    ):
        await open_model(ModelChoice("mine"))


def test_a_server_and_a_comparison_of_bases_take_an_adapter(tmp_path: Path) -> None:
    merged = write_adapter(tmp_path / "mine", NANO)
    folder = checkpoint_folder("mine")
    served, _ = open_served(folder, "mine", sessions=1, context=None, threads=1)
    assert served.renderer is not None and served.window <= load_config(NANO).context_length
    (compared,) = compared_checkpoints([folder])
    first = compared.identity()
    assert equal(compared.load(), merged)
    edit(tmp_path / "mine", lora_alpha=64)
    assert compared.identity() != first


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "the adapter mine names no base"),
        ("/nowhere/base", "names the base /nowhere/base, and there is no such directory here"),
        ("owner/model", "names the base owner/model, which can't be had: HF_HUB_OFFLINE is set and the cache has no owner/model"),
    ],
)  # fmt: skip
def test_a_base_that_cannot_be_had_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, problem: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    write_adapter(tmp_path / "mine", NANO)
    edit(tmp_path / "mine", base_model_name_or_path=name)
    with pytest.raises(ValueError) as failed:
        find_checkpoint("mine")
    text = str(failed.value)
    assert problem in text and "\n" not in text and "--base" not in text
    assert text.endswith(
        "set base_model_name_or_path in mine/adapter_config.json to the directory or hub name of its base"
    )


def test_another_base_is_refused_when_its_weights_are_loaded(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "base")
    write_adapter(tmp_path / "mine", tmp_path / "base")
    (file,) = (tmp_path / "base").glob("model*.safetensors")
    tensors = load_file(file)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] + 1
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(
        BaseError, match="was trained on another base than .*/base; set base_model_name_or_path in"
    ) as failed:
        load_checkpoint(checkpoint_folder("mine"))
    assert "--base" not in str(failed.value)


def test_whole_weights_in_the_directory_of_an_adapter_are_refused(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "both")
    write_adapter(tmp_path / "both", NANO)
    with pytest.raises(CheckpointError, match=r"both holds adapter_model.safetensors and the whole weights of model"):
        checkpoint_folder("both")
    (tmp_path / "both" / "adapter_model.safetensors").unlink()  # left by a merge: the directory is a plain checkpoint
    assert checkpoint_folder("both") == Path("both")


def test_the_plain_loader_says_what_to_do_with_an_adapter(tmp_path: Path) -> None:
    write_adapter(tmp_path / "mine", NANO)
    with pytest.raises(CheckpointError, match="it holds an adapter: merge it first, with etude model merge"):
        load_checkpoint(tmp_path / "mine")

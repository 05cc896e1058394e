"""An adapter's repository on a hub is taken as its directory is: with its base, pinned by a run, refused in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from here import Here, document

sys.path.insert(
    0, str(Path(__file__).parents[1] / "learn" / "weights")
)  # tests are no package: this is how they share a module

from hub_server import HubServer, serve

from etude.cli.prepare import prepare
from etude.learn.model.adapter_files import save_adapter
from etude.learn.model.adapters import add_adapters, merged_state
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.pipeline.run.ledger import StageLedger

NANO = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
INIT = ["model.init=me/lora"]
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
Weights = dict[str, torch.Tensor]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "links"))
    with serve(tmp_path / "cache", monkeypatch) as found:
        found.add("owner/nano", {path.name: path.read_bytes() for path in NANO.iterdir() if path.is_file()})
        yield found


@pytest.fixture
def merged(hub: HubServer, tmp_path: Path) -> Weights:
    """The weights of `owner/nano` with the adapter of `me/lora`."""
    model, lora = load_checkpoint(NANO), LoraSettings(rank=2)
    add_adapters(model, lora)
    for name, tensor in model.named_parameters():
        if name.endswith("lora_b"):
            tensor.data.add_(0.1)
    save_adapter(model, lora, tmp_path / "made", NANO)
    hub.add("me/lora", files(tmp_path / "made"))
    return merged_state(model)


def files(folder: Path) -> dict[str, bytes]:
    config = json.loads((folder / CONFIG).read_text()) | {"base_model_name_or_path": "owner/nano"}
    return {CONFIG: json.dumps(config).encode(), TENSORS: (folder / TENSORS).read_bytes(), "README.md": b"# card"}


def test_verbs_take_an_adapter_by_its_hub_name(here: Here, hub: HubServer, merged: Weights, tmp_path: Path) -> None:
    ran = here("model", "fetch", "me/lora")
    assert ran.returncode == 0 and "an adapter on owner/nano, which is brought when the adapter is used" in ran.stdout
    ran = here("model", "check", "me/lora")
    assert ran.returncode == 0 and "LoRA of rank 2" in ran.stdout and ran.stdout.rstrip().endswith("\nsound")
    assert here("model", "merge", "me/lora", "--out", "merged").returncode == 0
    found = load_checkpoint(tmp_path / "merged").state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in merged.items())


def test_a_run_begins_with_an_adapter_of_the_hub_and_goes_on_with_its_commit(
    here: Here, hub: HubServer, merged: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = prepare(["ci"], INIT, tmp_path / "run")
    found = load_checkpoint(run.located.model.init).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in merged.items())
    (corpus, *_), ledger = run.graph, StageLedger(run.folder / "ledger.jsonl")
    ledger.start(corpus.name, run.settings(corpus), {})
    ledger.finish(corpus.name)
    (run.folder / corpus.name).mkdir(parents=True)
    (run.folder / "manifest.jsonl").write_text('{"etude": "run directory", "format": 1}\n')
    old = run.hub_checkpoints["model.init"].commit
    assert old.startswith(hub.repositories["me/lora"].branches["main"] + " on ")
    hub.repositories["me/lora"].commit(files(tmp_path / "made") | {"README.md": b"# another"})
    again = prepare(["ci"], INIT, tmp_path / "run")
    assert again.hub_checkpoints["model.init"].commit == old
    assert [step.action for step in again.plan(["corpus"])] == ["skip"]
    assert prepare(["ci"], INIT, tmp_path / "other").hub_checkpoints["model.init"].commit != old
    planned = here("run", "ci", "--set", *INIT, "--set", "corpus.fim_rate=0", "--dry-run", "--json")
    assert planned.returncode == 0 and document(planned)["recipe"]["model"]["init"] == "me/lora"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({TENSORS: None, "adapter_model.bin": b"p"}, "adapters in pickles (.bin) are not"),
        ({CONFIG: b'{"base_model_name_or_path": "owner/none", "peft_type": "LORA"}'}, "names the base owner/none, which can't be had"),
        ({CONFIG: b'{"peft_type": "LORA"}'}, "names no base"),
        ({CONFIG: b'{"base_model_name_or_path": "owner/nano", "peft_type": "IA3"}'}, "only LORA is supported"),
    ],
)  # fmt: skip
def test_an_adapter_that_can_not_be_used_is_one_line(
    changed: dict[str, bytes | None], words: str, here: Here, hub: HubServer, merged: Weights, tmp_path: Path
) -> None:
    given = files(tmp_path / "made") | changed
    hub.add("me/odd", {name: content for name, content in given.items() if content is not None})
    ran = here("run", "ci", "--set", "model.init=me/odd", "--dry-run")
    assert ran.returncode == 1 and words in ran.stderr and "model.init = me/odd" in ran.stderr
    assert "Traceback" not in ran.stderr

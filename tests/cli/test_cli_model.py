"""`etude model check`: a table, a document, an exit status, and one line for what is no checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from here import Here, document

from etude.learn.model.adapter_files import save_adapter
from etude.learn.model.adapters import add_adapters
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.lora_settings import LoraSettings

NANO = Path(__file__).parents[2] / "checkpoints" / "sft-nano"


def test_a_sound_checkpoint_is_reported(here: Here) -> None:
    ran = here("model", "check", str(NANO))
    assert ran.returncode == 0 and ran.stdout.rstrip().endswith("\nsound") and "round trip" in ran.stdout
    found = document(here("model", "check", str(NANO), "--json"))
    assert found["sound"] and found["family"] == "nano" and {c["state"] for c in found["checks"]} == {"ok", "skipped"}


def test_an_unsound_one_exits_with_1_and_names_what_failed_and_the_remedy(here: Here, tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    (tmp_path / "other" / "config.json").write_text(json.dumps(config | {"vocab_size": 700}))
    ran = here("model", "check", "other")
    assert ran.returncode == 1
    assert "NO  vocabulary" in ran.stdout and "etude tokenizer extend" in ran.stdout
    assert ran.stdout.rstrip().endswith("not sound: vocabulary, model code")


def test_what_is_no_checkpoint_gets_one_line(here: Here, tmp_path: Path) -> None:
    assert "gone is no directory" in here("model", "check", "gone").stderr
    (tmp_path / "tokenizer.json").write_text("{")
    ran = here("model", "check", str(tmp_path))
    assert ran.returncode == 1 and "tokenizer.json" in ran.stdout and "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"model_type": "nonesuch"}, "model_type is 'nonesuch'; supported are deepseek_v2, deepseek_v3"),
        ({"model_type": "llama"}, "the model code does not know this key of llama"),
        ({"num_hidden_layers": 10**9}, "layers: Input should be less than or equal to 1000"),
        ({"quantization_config": {"bits": 4}}, "weights are quantised"),
    ],
)
def test_a_checkpoint_that_the_model_code_can_not_load_is_not_sound(
    here: Here, tmp_path: Path, changes: dict, named: str
) -> None:
    for path in NANO.iterdir():
        if path.is_file():
            (tmp_path / path.name).symlink_to(path.resolve())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(json.loads((NANO / "config.json").read_text()) | changes))
    ran = here("model", "check", str(tmp_path))
    assert ran.returncode == 1 and "model code" in ran.stdout and named in ran.stdout


def test_an_index_that_leads_out_of_the_directory_is_not_sound(here: Here, tmp_path: Path) -> None:
    for path in NANO.iterdir():
        if path.is_file():
            (tmp_path / path.name).symlink_to(path.resolve())
    index = tmp_path / "model.safetensors.index.json"
    index.unlink()
    index.write_text(json.dumps({"weight_map": {"lm_head.weight": "../../../../etc/passwd"}}))
    ran = here("model", "check", str(tmp_path))
    assert ran.returncode == 1 and "names '../../../../etc/passwd' as the file of lm_head.weight" in ran.stdout


def test_a_checkpoint_that_lacks_a_file_is_sound_and_the_file_is_named(here: Here, tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "other")
    (tmp_path / "other" / "generation_config.json").unlink()
    (tmp_path / "other" / "chat_template.jinja").unlink()
    ran = here("model", "check", "other")
    assert ran.returncode == 0 and "!!  files" in ran.stdout
    assert ran.stdout.rstrip().endswith(
        "sound; but it lacks generation_config.json, a chat template (chat_template.jinja)"
    )


def test_an_adapter_is_checked_and_merged(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, lora = load_checkpoint(NANO), LoraSettings(rank=2)
    add_adapters(model, lora)
    save_adapter(model, lora, tmp_path / "adapter", NANO)
    ran = here("model", "check", "adapter")
    assert ran.returncode == 0 and "LoRA of rank 2" in ran.stdout
    ran = here("model", "merge", "adapter", "--out", "merged")
    assert ran.returncode == 0 and (tmp_path / "merged" / "tokenizer.json").is_file()
    assert here("model", "check", "merged").returncode == 0
    assert "exists" in here("model", "merge", "adapter", "--out", "merged").stderr
    assert "no adapter_config.json" in here("model", "merge", str(NANO), "--out", "more").stderr
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "gone/far/away"}))
    for words in (("check", "adapter"), ("merge", "adapter", "--out", "more")):
        ran = here("model", *words)
        assert (
            ran.returncode
            and "there is no such directory here" in ran.stderr
            and "or give it with --base" in ran.stderr
        )
    assert here("model", "merge", "adapter", "--out", "more", "--base", str(NANO)).returncode == 0
    other = load_checkpoint(NANO)
    with torch.no_grad():
        other.norm.weight.add_(1)
    save_checkpoint(other, tmp_path / "other")
    ran = here("model", "merge", "adapter", "--out", "most", "--base", "other")
    assert ran.returncode and "was trained on another base than" in ran.stderr and "with --base" in ran.stderr

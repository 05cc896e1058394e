"""The stages with draft layers: mtp leaves the trunk it was given, SFT the trunk it would have left without drafts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from etude.chat.byte_tokenizer import byte_tokenizer
from etude.corpus.shards import write_shards
from etude.events.log import EventLog
from etude.model.checkpoint import load_checkpoint, save_checkpoint
from etude.model.init import new_model
from etude.model.settings import ModelSettings
from etude.recipe.recipe import Recipe
from etude.run.stage import Context
from etude.run.stages import mtp, sft
from etude.run.stages.base import CHECKPOINT
from etude.trace.segment import Segment

RECIPE = {
    "model": {
        "family": "qwen3_moe", "hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16,
        "dense_intermediate": 32, "moe_intermediate": 16, "experts": 2, "experts_per_token": 1, "init_head_std": 0.2,
    },
    "mtp": {"layers": 2, "every": 1, "row_tokens": 32, "batch_rows": 4, "loop": {"steps": 4, "threads": 1}},
    "sft": {"batch_tokens": 128, "epochs": 9, "loop": {"steps": 4, "threads": 1}},
}  # fmt: skip


def context_of(stage: str, run: Path) -> Context:
    return Context(Recipe.model_validate(RECIPE), run, stage, EventLog.null())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory in which corpus and base are done."""
    rng, corpus = np.random.default_rng(0), tmp_path / "corpus"
    for name, count in (("train", 40), ("heldout", 6)):
        write_shards(corpus / name, [rng.integers(0, 200, 50).tolist() for _ in range(count)])
    (corpus / "summary.json").write_text(json.dumps({"heldout_documents": 6}))
    tokenizer = byte_tokenizer()
    tokenizer.save(str(corpus / "tokenizer.json"))
    model = new_model(ModelSettings.model_validate(RECIPE["model"]), tokenizer.get_vocab_size())
    save_checkpoint(model, tmp_path / "base" / CHECKPOINT, tokenizer_from=corpus)
    return tmp_path


def trunk(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(folder / CHECKPOINT).state_dict())


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(tensor, b[name]) for name, tensor in a.items())


def test_the_stage_adds_draft_layers_to_the_base_and_says_how_well_they_do(run: Path) -> None:
    mtp.run(context_of("mtp", run))
    assert same(trunk(run / "mtp"), trunk(run / "base"))
    assert (run / "mtp" / CHECKPOINT / "tokenizer.json").is_file()
    assert load_checkpoint(run / "mtp" / CHECKPOINT, drafts=True).config.mtp_layers == 2
    summary = json.loads((run / "mtp" / "summary.json").read_text())
    assert summary["steps"] == 4 and summary["layers"] == 2 and summary["parameters"] > 0
    measured = summary["acceptance"]
    assert [entry["depth"] for entry in measured["depths"]] == [1, 2]
    # Of documents of 50 tokens the first 32 are read; the first two, or three, have no draft.
    assert [sum(p["drafts"] for p in d["by_position"].values()) for d in measured["depths"]] == [6 * 30, 6 * 29]
    assert 1 <= measured["tokens_per_pass"] <= 3


def test_sft_teaches_the_drafts_and_leaves_the_trunk_of_its_control(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mtp.run(context_of("mtp", run))
    (run / "sessions").mkdir()
    (run / "sessions" / "summary.json").write_text("{}")
    ids, sampled = np.arange(24, dtype=np.int32), np.arange(24) > 5
    segment = Segment(ids, sampled, np.zeros(24, np.float32), np.where(sampled, 0, -1).astype(np.int32))
    monkeypatch.setattr(sft, "segments", lambda _folder, **_which: [segment] * 20)  # the same for both stages
    sft.run(context_of("sft", run))
    sft.run_competent(context_of("competent_sft", run))
    assert same(trunk(run / "sft"), trunk(run / "competent_sft"))
    assert not same(trunk(run / "sft"), trunk(run / "base"))
    before, after = (load_checkpoint(run / s / CHECKPOINT, drafts=True).mtp.state_dict() for s in ("mtp", "sft"))
    assert after.keys() == before.keys() and not same(dict(after), dict(before))
    assert load_checkpoint(run / "competent_sft" / CHECKPOINT, drafts=True).config.mtp_layers == 0


def test_without_held_out_documents_nothing_is_measured(run: Path) -> None:
    (run / "corpus" / "summary.json").write_text(json.dumps({"heldout_documents": 0}))
    mtp.run(context_of("mtp", run))
    assert json.loads((run / "mtp" / "summary.json").read_text())["acceptance"] is None

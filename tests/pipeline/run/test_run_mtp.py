"""The stages with draft layers: mtp leaves the trunk it was given, long and SFT the trunks they would have left without drafts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.core.events.log import EventLog
from etude.core.trace.segment import Segment
from etude.learn.corpus.shards import write_shards
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.stage import Context
from etude.pipeline.run.stages import long, mtp, sft
from etude.pipeline.run.stages.pretraining import CHECKPOINT, MIDWAY

LOOP = {"steps": 4, "threads": 1}
RECIPE = {
    "model": {
        "family": "qwen3_moe", "hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16,
        "dense_intermediate": 32, "moe_intermediate": 16, "experts": 2, "experts_per_token": 1, "init_head_std": 0.2,
    },
    "pretrain": {
        "base": {"row_tokens": 32}, "short": {"row_tokens": 32},
        "long": {"form": "projects", "row_tokens": 128, "batch_rows": 2, "yarn_factor": 4, "regression": None, "loop": LOOP},
    },
    "mtp": {"layers": 2, "every": 1, "row_tokens": 32, "batch_rows": 4, "loop": LOOP},
    "sft": {"batch_tokens": 128, "epochs": 9, "loop": LOOP},
}  # fmt: skip


def context_of(stage: str, run: Path) -> Context:
    return Context(Recipe.model_validate(RECIPE), run, stage, EventLog(run / "events.jsonl"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory in which corpus and short are done; its middle and its end are two models."""
    rng, corpus = np.random.default_rng(0), tmp_path / "corpus"
    for split, count in (("train", 40), ("heldout", 6)):
        for form, length in (("files", 50), ("projects", 300)):
            documents = [rng.integers(0, 200, length).tolist() for _ in range(count)]
            write_shards(corpus / split / f"ours.{form}", documents)
    tokenizer = byte_tokenizer()
    tokenizer.save(str(corpus / "tokenizer.json"))
    for seed, name in enumerate((MIDWAY, CHECKPOINT)):
        settings = ModelSettings.model_validate(RECIPE["model"] | {"seed": seed})
        model = new_model(settings, tokenizer.get_vocab_size())
        save_checkpoint(model, tmp_path / "short" / name, tokenizer_from=corpus)
    return tmp_path


def trunk(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(folder).state_dict())


def drafts(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_checkpoint(folder / CHECKPOINT, drafts=True).mtp.state_dict())


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(tensor, b[name]) for name, tensor in a.items())


def test_the_stage_adds_draft_layers_to_the_middle_of_short_and_says_how_well_they_do(run: Path) -> None:
    mtp.run(context_of("mtp", run))
    assert same(trunk(run / "mtp" / CHECKPOINT), trunk(run / "short" / MIDWAY))
    assert (run / "mtp" / CHECKPOINT / "tokenizer.json").is_file()
    assert load_checkpoint(run / "mtp" / CHECKPOINT, drafts=True).config.mtp_layers == 2
    summary = json.loads((run / "mtp" / "summary.json").read_text())
    assert summary["steps"] == 4 and summary["layers"] == 2 and summary["parameters"] > 0
    measured = summary["acceptance"]
    assert [entry["depth"] for entry in measured["depths"]] == [1, 2]
    # Of files of 50 tokens the first 32 are read; the first two, or three, have no draft.
    assert [sum(p["drafts"] for p in d["by_position"].values()) for d in measured["depths"]] == [6 * 30, 6 * 29]
    assert 1 <= measured["tokens_per_pass"] <= 3


def test_without_a_middle_it_starts_from_the_end_and_says_so(run: Path) -> None:
    shutil.rmtree(run / "short" / MIDWAY)
    shutil.rmtree(run / "corpus" / "heldout")
    mtp.run(context_of("mtp", run))
    assert same(trunk(run / "mtp" / CHECKPOINT), trunk(run / "short" / CHECKPOINT))
    assert "short left no midway checkpoint" in (run / "events.jsonl").read_text()
    assert json.loads((run / "mtp" / "summary.json").read_text())["acceptance"] is None


def test_long_goes_on_with_the_drafts_of_mtp_next_to_the_trunk_of_short(run: Path) -> None:
    mtp.run(context_of("mtp", run))
    long.run(context_of("long", run))
    model = load_checkpoint(run / "long" / CHECKPOINT, drafts=True)
    assert (model.config.max_positions, model.config.mtp_layers) == (128, 2)
    assert not same(drafts(run / "long"), drafts(run / "mtp"))
    with_drafts = trunk(run / "long" / CHECKPOINT)
    shutil.rmtree(run / "long")
    plain = context_of("long", run)
    plain.recipe.mtp.every = 10**9  # no batch teaches them
    long.run(plain)
    assert same(trunk(run / "long" / CHECKPOINT), with_drafts) and same(drafts(run / "long"), drafts(run / "mtp"))


def test_sft_teaches_the_drafts_and_leaves_the_trunk_of_its_control(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mtp.run(context_of("mtp", run))
    long.run(context_of("long", run))
    (run / "sessions").mkdir()
    (run / "sessions" / "summary.json").write_text('{"sessions": 20}')
    ids, sampled = np.arange(24, dtype=np.int32), np.arange(24) > 5
    segment = Segment(ids, sampled, np.zeros(24, np.float32), np.where(sampled, 0, -1).astype(np.int32))
    monkeypatch.setattr(sft, "_scripted", lambda _context, **_which: [segment] * 20)  # the same for both stages
    monkeypatch.setattr(sft, "held_segments", lambda _context: [segment])
    sft.run(context_of("sft", run))
    sft.run_competent(context_of("competent_sft", run))
    assert same(trunk(run / "sft" / CHECKPOINT), trunk(run / "competent_sft" / CHECKPOINT))
    assert not same(trunk(run / "sft" / CHECKPOINT), trunk(run / "long" / CHECKPOINT))
    assert drafts(run / "sft") and not same(drafts(run / "sft"), drafts(run / "long"))
    assert not drafts(run / "competent_sft")

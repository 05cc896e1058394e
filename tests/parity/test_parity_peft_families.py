"""In every family, adapters that PEFT writes give PEFT's logits here, and those that are written here give the same logits there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from family_lab import VOCABULARY, transformers_model
from peft_lab import MERGED, ask_peft, draw_adapters, near
from safetensors.torch import save_file
from torch import Tensor

from etude.learn.model.adapter_files import put_adapter, save_adapter
from etude.learn.model.adapters import adaptable, add_adapters, fold_adapters, hf_modules
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.families import FAMILIES
from etude.learn.model.lora_settings import ATTENTION, DENSE, EXPERTS, LoraSettings

pytestmark = pytest.mark.nightly
IDS = torch.randint(
    0, VOCABULARY, (2, 40), generator=torch.Generator().manual_seed(5)
)  # more than the 32 of LongRoPE's short factors
WITHOUT_STACKS = ("gpt_oss",)  # whose experts take no adapters


class Compared(NamedTuple):
    """Logits on IDS of one family: of the base; of an adapter from PEFT, there; of one of ours, here and there."""

    folder: Path
    base: Tensor
    theirs: Tensor
    ours: Tensor
    ours_there: Tensor


def groups(family: str) -> list[str]:
    """What an adapter of ours is put on. PEFT takes names of dense layers for experts where a family has these."""
    if FAMILIES[family].switches.get("experts") == 0:
        return [ATTENTION, DENSE]
    return [ATTENTION] if family in WITHOUT_STACKS else [ATTENTION, EXPERTS]


def attention_modules(model: CausalLM) -> list[str]:
    """As the class of transformers names them."""
    keys = {key for name, module in adaptable(model) if ".attention." in name for key in hf_modules(name, model)}
    return sorted({key.rpartition(".")[2] for key in keys})


def options(model: CausalLM, family: str) -> dict[str, Any]:
    """Of PEFT's LoraConfig."""
    dense = DENSE in groups(family)
    return {"target_modules": "all-linear", "use_dora": True} if dense else {"target_modules": attention_modules(model)}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Compared]:
    """Of every family; one process of PEFT answers for all."""
    root, asked, mine = tmp_path_factory.mktemp("peft"), [], {}
    for family in FAMILIES:
        here, there = root / family / "here", root / family / "there"
        for folder in (here, there):
            transformers_model(family, 3).save_pretrained(folder / "base")  # type: ignore[operator]
            save_file({"ids": IDS}, folder / "ids.safetensors")
        model, lora = load_checkpoint(here / "base"), LoraSettings(rank=4, alpha=8, targets=groups(family))
        with torch.no_grad():
            base = model(IDS).logits
            asked += [(there, options(model, family)), (here, None)]
            add_adapters(model, lora)
            draw_adapters(model)
            save_adapter(model, lora, here / "adapter", here / "base")
            mine[family] = (there, base, model(IDS).logits)
    answers = iter(ask_peft(asked))
    return {
        family: Compared(folder, base, next(answers), ours, next(answers))
        for family, (folder, base, ours) in mine.items()
    }


@torch.no_grad()
@pytest.mark.parametrize("family", list(FAMILIES))
def test_adapters_have_the_same_logits_here_and_in_peft(family: str, compared: dict[str, Compared]) -> None:
    case = compared[family]
    assert near(case.ours, case.ours_there) and not near(case.base, case.ours_there)
    model = load_checkpoint(case.folder / "base")
    put_adapter(model, case.folder / "adapter", case.folder / "base")
    assert near(model(IDS).logits, case.theirs) and not near(case.base, case.theirs)
    fold_adapters(model)
    assert near(model(IDS).logits, case.theirs, MERGED)

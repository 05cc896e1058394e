"""Asking PEFT, in a Python of its own, for the logits of adapters."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import torch
from environments import require_python
from safetensors.torch import load_file
from torch import Tensor

from etude.learn.model.adapters import is_adapter_tensor
from etude.learn.model.causal_lm import CausalLM

HERE = Path(__file__).parent
TOLERANCE = 3e-5  # of the logits' std, at least of 1
MERGED = 1e-4  # merging rounds once more, which Qwen3-Next's recurrent layers amplify (up to 5.5e-5 here)


def ask_peft(asked: list[tuple[Path, dict[str, Any] | None]]) -> list[Tensor]:
    """PEFT's logits in each folder, with the adapter there or one that it writes with these options."""
    lines = "".join(json.dumps({"folder": str(folder), "options": options}) + "\n" for folder, options in asked)
    words = [require_python("peft"), HERE / "peft_oracle.py"]
    done = subprocess.run(words, input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    print(done.stdout.partition("\n")[0])  # the version, shown with -s
    return [load_file(folder / "theirs.safetensors")["logits"] for folder, _ in asked]


def draw_adapters(model: CausalLM) -> None:
    """Noise on all adapters, whose change of a weight begins as none. Under torch.no_grad."""
    for name, tensor in model.state_dict().items():
        if is_adapter_tensor(name):
            tensor.add_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(3)), alpha=0.1)


def near(ours: Tensor, theirs: Tensor, tolerance: float = TOLERANCE) -> bool:
    return float((ours - theirs).abs().max()) <= tolerance * max(1.0, float(theirs.std()))

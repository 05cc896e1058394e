"""Runs under a Python that has `peft`: JSON objects in, one a line, each with a `folder` that holds `base` and `ids.safetensors`.

With `options` of PEFT's LoraConfig an adapter with drawn weights is written to `adapter`; without, the one there is read. The logits go to
`theirs.safetensors`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import peft
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM


def main() -> None:
    print(json.dumps({"version": peft.__version__}))
    for line in sys.stdin:
        asked = json.loads(line)
        folder = Path(asked["folder"])
        base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
        if asked["options"] is None:
            model = peft.PeftModel.from_pretrained(base, folder / "adapter").eval()
        else:
            config = peft.LoraConfig(
                r=4, lora_alpha=8, task_type="CAUSAL_LM", init_lora_weights=False, **asked["options"]
            )
            model = peft.get_peft_model(base, config).eval()
            model.save_pretrained(folder / "adapter")
        with torch.no_grad():
            save_file(
                {"logits": model(load_file(folder / "ids.safetensors")["ids"]).logits}, folder / "theirs.safetensors"
            )
        print(json.dumps({"written": asked["options"] is not None}), flush=True)


if __name__ == "__main__":
    main()

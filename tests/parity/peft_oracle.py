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
import transformers
from safetensors.torch import load_file, save_file


def main() -> None:
    print(json.dumps({"version": peft.__version__}))
    for line in sys.stdin:
        asked = json.loads(line)
        folder = Path(asked["folder"])
        config = transformers.AutoConfig.from_pretrained(folder / "base")
        # Not every class of text is registered as a causal LM; a file of ours may name no class.
        kind = getattr(transformers, (config.architectures or ["AutoModelForCausalLM"])[0])
        base = kind.from_pretrained(folder / "base", dtype=torch.float32)
        torch.manual_seed(0)  # of the drawn adapter
        if asked["options"] is None:
            model = peft.PeftModel.from_pretrained(base, folder / "adapter").eval()
        else:
            lora = peft.LoraConfig(
                r=4, lora_alpha=8, task_type="CAUSAL_LM", init_lora_weights=False, **asked["options"]
            )
            model = peft.get_peft_model(base, lora).eval()
            model.save_pretrained(folder / "adapter")
        with torch.no_grad():
            save_file(
                {"logits": model(load_file(folder / "ids.safetensors")["ids"]).logits}, folder / "theirs.safetensors"
            )
        print(json.dumps({"written": asked["options"] is not None}), flush=True)


if __name__ == "__main__":
    main()

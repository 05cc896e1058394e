"""Runs under a Python that has `transformers`: checkpoint folders in, one a line; logits and greedy tokens for their `ids.safetensors` out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file

NEW_TOKENS = 8


def main() -> None:
    print(json.dumps({"version": transformers.__version__, "file": transformers.__file__}))
    for line in sys.stdin:
        folder = Path(line.strip())
        ids = load_file(folder / "ids.safetensors")["ids"]
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            logits = model(ids).logits
        mask = torch.ones_like(ids)
        tokens = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, attention_mask=mask)
        save_file({"logits": logits, "tokens": tokens[:, ids.shape[1] :].contiguous()}, folder / "theirs.safetensors")
        print(json.dumps({"class": type(model).__name__}), flush=True)


if __name__ == "__main__":
    main()

"""Speculative decoding against plain decoding of the same requests, one thread.

    OMP_NUM_THREADS=1 python benchmarks/speculative.py CHECKPOINT SESSIONS [--temperature T …] [--layers N …] [--json FILE]

CHECKPOINT has draft layers (a run's `sft/checkpoint`), SESSIONS is a folder of recorded sessions (a run's `sessions`). Prompts are
what an agent asks: every turn of some sessions, each turn's recorded beginning, in the session's own slot; answers are sampled
at temperature T (1; 0 is greedy). Prints, by batch and by the number of tokens guessed ahead: medians of CPU time taken in
turns, the share of guesses kept by depth, tokens a forward, and whether all answers were identical.

`--layers N` inserts blocks that add nothing to the stream, up to N in all: the model says exactly the same, its drafts are as good
as before, and every forward costs what it would with N layers. A draft costs one layer, so speculation gains more in a deeper model.
A laptop's model has four layers; those that people serve have thirty to sixty.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path

import torch

from etude.agent.policy.protocol import Request
from etude.core.trace.reader import read_session
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.speedup import measure
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint

BATCHES, GUESSES, REPEATS = (1, 2, 4, 8), (1, 2, 3, 4), 3
MAX_TOKENS, MAX_LEN = 96, 640
# A little over 100 turns, with three sessions for each place of the largest batch.
SESSIONS = 24


def turns(folder: Path, count: int, stop: int, temperature: float) -> list[Request]:
    """Requests for every turn of the last `count` sessions of a folder, whose ids are their session's."""
    requests: list[Request] = []
    for path in sorted(folder.glob("*.jsonl"))[-count:]:
        for number, segment in enumerate(read_session(path).segments()):
            begins = [n for n in range(1, len(segment)) if segment.sampled[n] and not segment.sampled[n - 1]]
            for place in begins:
                name, ids = f"{path.stem}.{number}", tuple(segment.ids[:place].tolist())
                options = {"prompt_ids": ids, "max_tokens": MAX_TOKENS, "stop_ids": (stop,), "seed": len(requests)}
                requests.append(Request(name, (), temperature=temperature, **options))
    return requests


@torch.no_grad()
def deepened(model: CausalLM, layers: int) -> CausalLM:
    """The same function of its input, with `layers` blocks. The blocks inserted before the last one are its copies, with outputs of zero."""
    last = model.config.layers - 1
    deep = CausalLM(model.config.model_copy(update={"layers": layers})).eval()
    for name in ("embed", "norm", "head", "mtp"):
        getattr(deep, name).load_state_dict(getattr(model, name).state_dict())
    for number, block in enumerate(deep.blocks):
        block.load_state_dict(model.blocks[number if number < last else last].state_dict())
        if last <= number < layers - 1:
            for name, parameter in block.named_parameters():
                if name == "attention.out.weight" or ".down" in name:
                    parameter.zero_()
    return deep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--temperature", type=float, nargs="+", default=[1.0])
    parser.add_argument("--layers", type=int, nargs="*", help="blocks in all (default: the checkpoint's own)")
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--guesses", type=int, nargs="+", default=GUESSES)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load_checkpoint(options.checkpoint, drafts=True).eval()
    stop = json.loads((options.checkpoint / "config.json").read_text())["eos_token_id"]
    figures = []
    for layers, temperature in itertools.product(options.layers or [model.config.layers], options.temperature):
        requests = turns(options.sessions, SESSIONS, stop, temperature)
        deep = model if layers == model.config.layers else deepened(model, layers)
        for batch, guesses in itertools.product(options.batch, options.guesses):
            settings = EngineSettings(max_len=MAX_LEN, draft_tokens=guesses)
            found = measure(deep, requests, settings, batch=batch, repeats=REPEATS)
            figures.append({"layers": layers, "temperature": temperature, **found.reading()})
            depths = " ".join(f"{share:.2f}" for share in found.acceptance)
            print(
                f"layers {layers} temperature {temperature:g} batch {batch} guesses {guesses}: {found.ratio:.2f}x "
                f"({found.whole_ratio:.2f}x with prompts), {found.tokens_per_step:.2f} tokens a forward, kept by depth {depths}, "
                f"{found.same} of {found.requests} answers the same",
                flush=True,
            )
    if options.json:
        report = {"parameters": sum(p.numel() for p in model.parameters()), "draft_layers": len(model.mtp)}
        options.json.write_text(json.dumps(report | {"measured": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()

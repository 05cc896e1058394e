"""A published model in Etude, transformers, vLLM's CPU build and llama.cpp, in turns on this machine: decoding and a training step.

    python benchmarks/published_model.py smollm2-135m --peer-python PYTHON --vllm-python PYTHON [--gguf FILE] [--rounds N] [--out FILE]

`--peer-python` has torch, transformers, peft and xllamacpp; `--vllm-python` has vLLM. Every measurement is a process of its own. Decoding counts
tokens behind prompts that are in the cache already, greedy; a step of training is forward, backward and AdamW. Figures are medians over rounds,
ratios medians of each round's ratio. llama.cpp reads 4-bit weights, which is another model: it is in the table for orientation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from etude.pipeline.run.machine import machine

HERE = Path(__file__).resolve().parent
PEERS = HERE / "published_peers.py"
BATCHES = [1, 8, 32]
PROMPT_TOKENS, NEW_TOKENS = 256, 48
THREADS = 2
BEGINNING, OWN, SESSIONS = (
    1_497,
    260,
    4,
)  # tokens of SmolLM2's prompt with the tools of search_replace, and of what follows it in a session
ROWS, LENGTH = 4, 512  # rows that have nothing in common
Job = dict[str, Any]


def decode(job: Job) -> dict[str, Any]:
    """Our engine, as the bench and RL ask it."""
    from published_peers import prompts

    from etude.agent.policy.protocol import Request
    from etude.learn.engine.policy import EnginePolicy
    from etude.learn.engine.service import leave_cores_to_engine
    from etude.learn.engine.settings import EngineSettings
    from etude.learn.model.checkpoint import load_checkpoint

    leave_cores_to_engine()
    most = max(job["batches"])
    limits = {"max_slots": most, "max_batch": most, "max_len": job["prompt_tokens"] + job["new_tokens"] + 8}
    precision = "bf16" if job["dtype"] == "bfloat16" else "fp32"
    settings = EngineSettings.model_validate(limits | {"compute": precision, "threads": job["threads"]})
    policy = EnginePolicy.start(load_checkpoint(Path(job["checkpoint"])), settings)

    async def answers(asked: list[list[int]], batch: int, count: int) -> list[list[int]]:
        one = [
            Request(f"{batch} {row}", (), prompt_ids=tuple(ids), max_tokens=count, temperature=0.0)
            for row, ids in enumerate(asked)
        ]
        return [list(done.tokens.ids) for done in await asyncio.gather(*map(policy.complete, one))]

    async def measure() -> dict[str, float]:
        rates = {}
        for batch in job["batches"]:
            asked = prompts(job, batch)
            held = [ids + new for ids, new in zip(asked, await answers(asked, batch, 2), strict=True)]
            began = time.perf_counter()
            await answers(held, batch, job["new_tokens"])
            rates[str(batch)] = batch * job["new_tokens"] / (time.perf_counter() - began)
            for row in range(batch):
                await policy.release(f"{batch} {row}")
        return rates

    try:
        return {"rates": asyncio.run(measure())}
    finally:
        policy.close()


def train(job: Job) -> dict[str, Any]:
    """Our SFT step: what the rows begin with is computed once."""
    import numpy as np
    import torch

    from etude.learn.model.adapters import add_adapters
    from etude.learn.model.checkpoint import load_checkpoint
    from etude.learn.model.compute import compute_in
    from etude.learn.model.heap import fit_heap
    from etude.learn.model.lora_settings import LoraSettings
    from etude.learn.train.batch import shared_batch
    from etude.learn.train.next_token import NextToken
    from etude.learn.train.optimizer import build_optimizers
    from etude.learn.train.settings import OptimizerSettings

    torch.set_num_threads(job["threads"])
    model = load_checkpoint(Path(job["checkpoint"]))
    fit_heap(model)
    if job["way"] == "lora":
        add_adapters(model, LoraSettings(rank=16))
    compute_in(model, "bf16" if job["dtype"] == "bfloat16" else "fp32", False)
    learner = NextToken(model, 0.0)
    optimizers = build_optimizers(model, OptimizerSettings(matrices="adamw", low_rank="adamw", adam_lr=1e-4))
    rows = [np.array(row) for row in job["rows"]]
    batch = shared_batch(rows, [(np.arange(len(row)) >= job["beginning"]).astype(np.float32) for row in rows])
    seconds = []
    for _ in range(job["steps"] + 1):
        began = time.perf_counter()
        loss = learner.loss(batch)
        loss.backward()
        optimizers.clip()
        optimizers.step()
        optimizers.zero_grad()
        seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": median(seconds[1:]), "loss": float(loss.detach()), "peak_bytes": peak}


OURS = {"decode": decode, "train": train}


def asked(words: list[str], job: Job) -> dict[str, Any]:
    """The figures of one process; what it printed goes into the message if it fails."""
    done = subprocess.run([*words, json.dumps(job)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def engines(given: argparse.Namespace, dtypes: list[str]) -> dict[str, tuple[list[str], Job]]:
    """By name: the command of a process that decodes, and what its job has in addition."""
    found: dict[str, tuple[list[str], Job]] = {}
    for dtype in dtypes:
        found[f"etude {dtype}"] = [sys.executable, __file__, "--ours", "decode"], {"dtype": dtype}
        found[f"transformers {dtype}"] = [given.peer_python, str(PEERS), "transformers"], {"dtype": dtype}
        found[f"vllm {dtype}"] = [given.vllm_python, str(PEERS), "vllm"], {"dtype": dtype}
    if given.gguf:
        found["llama.cpp, quantised"] = [given.peer_python, str(PEERS), "llama.cpp"], {"gguf": given.gguf}
    return found


def workloads(vocabulary: int) -> dict[str, Job]:
    """Rows of a training step, and from which of their tokens on the loss counts."""
    dice = random.Random(0)
    first = dice.choices(range(vocabulary), k=BEGINNING)
    sessions = [first + dice.choices(range(vocabulary), k=OWN) for _ in range(SESSIONS)]
    rows = [dice.choices(range(vocabulary), k=LENGTH) for _ in range(ROWS)]
    # Nothing precedes a row's first token, so nothing predicts it.
    return {"sessions": {"rows": sessions, "beginning": BEGINNING}, "rows": {"rows": rows, "beginning": 1}}


def trainers(given: argparse.Namespace, dtypes: list[str]) -> dict[str, tuple[list[str], Job]]:
    """As `engines`, by workload, way and type."""
    found: dict[str, tuple[list[str], Job]] = {}
    for load, job in workloads(1 << 15).items():
        for way in ("full", "lora"):
            for dtype in dtypes:
                more = job | {"way": way, "dtype": dtype, "steps": given.steps}
                name = f"{load}, {way}, {dtype}"
                found[f"etude: {name}"] = [sys.executable, __file__, "--ours", "train"], more
                found[f"transformers: {name}"] = [given.peer_python, str(PEERS), "train"], more
    return found


def measured(commands: dict[str, tuple[list[str], Job]], common: Job, rounds: int) -> dict[str, list[dict[str, Any]]]:
    """Every command once a round, in turns."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for number in range(rounds):
        for name, (words, more) in commands.items():
            found[name].append(asked(words, common | more | {"seed": number}))
            print(number, name, json.dumps(found[name][-1]), file=sys.stderr, flush=True)
    return found


def decode_table(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rates of each engine and batch, and ours over the faster type of each peer."""
    rates = {
        (name, batch): [one["rates"][str(batch)] for one in rows] for name, rows in found.items() for batch in BATCHES
    }
    rows: list[dict[str, Any]] = []
    for (name, batch), theirs in rates.items():
        ours = max((rates[key, batch] for key in found if key.startswith("etude")), key=median)
        ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
        rows.append(
            {"engine": name, "batch": batch, "tokens_per_s": round(median(theirs), 1), "etude_to_it": round(ratio, 2)}
        )
    return rows


def train_table(found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Seconds and peak memory of a step, and how much quicker ours is."""
    rows = []
    for name, ours in ((name, rows) for name, rows in found.items() if name.startswith("etude: ")):
        theirs = found[name.replace("etude", "transformers", 1)]
        ratios = [b["seconds"] / a["seconds"] for a, b in zip(ours, theirs, strict=True)]
        sides = {
            side: {key: round(median(one[key] for one in side_rows), 4) for key in ("seconds", "peak_bytes", "loss")}
            for side, side_rows in (("etude", ours), ("transformers", theirs))
        }
        rows.append({"step": name.removeprefix("etude: "), **sides, "etude_to_transformers": round(median(ratios), 2)})
    return rows


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a directory or a name that Etude knows")
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--vllm-python", required=True)
    parser.add_argument("--gguf", default="", help="the same model as a GGUF file, for llama.cpp")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--train-rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1, help="timed steps of training in each process")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--train-dtypes", nargs="+", default=["float32"])
    parser.add_argument("--only", choices=("decode", "train"))
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    if sys.argv[1:2] == ["--ours"]:
        print(json.dumps(OURS[sys.argv[2]](json.loads(sys.argv[3]))))
        return
    from etude.learn.model.named_checkpoint import checkpoint_folder

    given = options()
    common = {"checkpoint": str(checkpoint_folder(given.checkpoint)), "threads": THREADS}
    result: dict[str, Any] = {"model": given.checkpoint, "machine": machine(), "threads": THREADS}
    if given.only != "train":
        sizes = {"batches": BATCHES, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS}
        found = measured(engines(given, given.dtypes), common | sizes, given.rounds)
        versions = {
            name.split()[0].rstrip(","): rows[0]["version"] for name, rows in found.items() if "version" in rows[0]
        }
        result |= {"rounds": given.rounds, "versions": versions, **sizes, "decode": decode_table(found)}
    if given.only != "decode":
        found = measured(trainers(given, given.train_dtypes), common, given.train_rounds)
        result |= {"train_rounds": given.train_rounds, "steps": given.steps, "train": train_table(found)}
    text = json.dumps(result, indent=1) + "\n"
    print(text)
    if given.out:
        given.out.write_text(text)


if __name__ == "__main__":
    main()

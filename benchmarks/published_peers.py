"""One measurement of another program, under its own Python: `PYTHON benchmarks/published_peers.py KIND JOB`, where JOB is JSON. Prints JSON.

`published_model.py` starts it. KIND is transformers, vllm or llama.cpp for decoding, and train for a step of transformers (with PEFT).
Nothing of Etude is imported: these environments have none of it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from statistics import median
from typing import Any

Job = dict[str, Any]


def prompts(job: Job, batch: int) -> list[list[int]]:
    """Ids below 2^15 of each row, the same for every engine."""
    import random

    return [
        random.Random(f"{job['seed']} {row}").choices(range(100, 1 << 15), k=job["prompt_tokens"])
        for row in range(batch)
    ]


def decode_transformers(job: Job) -> dict[str, Any]:
    """Greedy, with a static cache: the loop of `generate` without what it does around the model."""
    import torch
    import transformers

    torch.set_num_threads(job["threads"])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job["checkpoint"], dtype=getattr(torch, job["dtype"])
    ).eval()
    rates = {}
    for batch in job["batches"]:
        ids = torch.tensor(prompts(job, batch))
        cache = transformers.StaticCache(config=model.config, max_cache_len=ids.shape[1] + job["new_tokens"] + 1)
        with torch.inference_mode():
            logits = model(ids, past_key_values=cache, logits_to_keep=1).logits
            began = time.perf_counter()
            for _ in range(job["new_tokens"]):
                logits = model(logits[:, -1].argmax(-1, keepdim=True), past_key_values=cache, logits_to_keep=1).logits
            rates[str(batch)] = batch * job["new_tokens"] / (time.perf_counter() - began)
    return {"rates": rates, "version": transformers.__version__}


def decode_vllm(job: Job) -> dict[str, Any]:
    """The prompts are in its prefix cache when the timed tokens begin."""
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{job['threads'] - 1}",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    import vllm

    engine = vllm.LLM(
        job["checkpoint"], dtype=job["dtype"], max_model_len=job["prompt_tokens"] + job["new_tokens"] + 8,
        max_num_seqs=max(job["batches"]), enable_prefix_caching=True, seed=0,
    )  # fmt: skip
    rates = {}
    for batch in job["batches"]:
        asked = [{"prompt_token_ids": ids} for ids in prompts(job, batch)]

        def answer(count: int, asked: list[dict[str, list[int]]] = asked) -> float:
            wanted = vllm.SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
            began = time.perf_counter()
            engine.generate(asked, wanted, use_tqdm=False)
            return time.perf_counter() - began

        answer(2)
        one = median(answer(1) for _ in range(3))
        rates[str(batch)] = batch * job["new_tokens"] / (answer(1 + job["new_tokens"]) - one)
    return {"rates": rates, "version": vllm.__version__}


def train(job: Job) -> dict[str, Any]:
    """Steps of AdamW over rows of ids, all weights or PEFT's adapters; the first step warms up."""
    import torch
    import transformers

    torch.set_num_threads(job["threads"])
    model = transformers.AutoModelForCausalLM.from_pretrained(job["checkpoint"], dtype=torch.float32)
    model.config.use_cache = False
    if job["way"] == "lora":
        import peft

        model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    ids = torch.tensor(job["rows"])
    labels = ids.clone()
    labels[:, : job["beginning"]] = -100
    seconds = []
    for _ in range(job["steps"] + 1):
        began = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=job["dtype"] == "bfloat16"):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    return {
        "seconds": median(seconds[1:]),
        "loss": float(loss.detach()),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "version": transformers.__version__,
    }


def decode_llama_cpp(job: Job) -> dict[str, Any]:
    """As many slots as rows, whose prompts are in their caches when the timed tokens begin."""
    from concurrent.futures import ThreadPoolExecutor
    from importlib.metadata import version

    import xllamacpp

    rates = {}
    for batch in job["batches"]:
        wanted = xllamacpp.CommonParams()
        wanted.model.path, wanted.n_parallel, wanted.warmup, wanted.verbosity = job["gguf"], batch, False, -1
        wanted.n_ctx = batch * (job["prompt_tokens"] + job["new_tokens"] + 16)
        wanted.cpuparams.n_threads = wanted.cpuparams_batch.n_threads = job["threads"]
        server, asked = xllamacpp.Server(wanted), prompts(job, batch)

        def answer(row: int, count: int, server: Any = server, asked: list[list[int]] = asked) -> int:
            body = {
                "prompt": asked[row],
                "n_predict": count,
                "id_slot": row,
                "cache_prompt": True,
                "ignore_eos": True,
                "temperature": 0.0,
            }
            found = server.handle_completions(body)
            return (json.loads(found) if isinstance(found, str) else found)["timings"]["predicted_n"]

        with ThreadPoolExecutor(batch) as pool:
            list(pool.map(answer, range(batch), [1] * batch))
            began = time.perf_counter()
            count = sum(pool.map(answer, range(batch), [job["new_tokens"]] * batch))
            rates[str(batch)] = count / (time.perf_counter() - began)
        del server
    return {"rates": rates, "version": version("xllamacpp")}


KINDS = {"transformers": decode_transformers, "vllm": decode_vllm, "llama.cpp": decode_llama_cpp, "train": train}

if __name__ == "__main__":
    print(json.dumps(KINDS[sys.argv[1]](json.loads(sys.argv[2]))))

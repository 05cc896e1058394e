"""Tokens a second over HTTP against the engine alone, for 1, 8 and 32 clients, in turns on the same engine.

    OMP_NUM_THREADS=1 python benchmarks/serve_speed.py DIR [--tokens N] [--repeats N] [--json FILE]

Every client sends prompts of its own, greedy, through streamed completions. The ratio is HTTP divided by the engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Any

import httpx
import torch

from etude.agent.policy.protocol import Request
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.service import EngineThread
from etude.learn.serve.served_model import ServedModel, open_model
from etude.learn.serve.serving import ServeOptions, running_server

CLIENTS = (1, 8, 32)


def prompt_of(model: ServedModel, client: int, turn: int) -> list[int]:
    """64 tokens that no other prompt begins with."""
    ids = model.tokenizer.encode(f"Client {client}, turn {turn}: write a function. " * 16)
    return [(client * 37 + turn * 11) % 200 + 5, *ids][:64]


async def engine_alone(thread: EngineThread, prompts: list[list[int]], tokens: int) -> float:
    """Tokens a second."""
    policy, start = EnginePolicy(thread), time.perf_counter()
    requests = [
        Request(f"bare-{start}-{i}", (), prompt_ids=tuple(ids), max_tokens=tokens, temperature=0.0)
        for i, ids in enumerate(prompts)
    ]
    done = await asyncio.gather(*(policy.complete(request) for request in requests))
    return sum(one.usage.output_tokens for one in done) / (time.perf_counter() - start)


async def over_http(http: httpx.AsyncClient, model: str, prompts: list[list[int]], tokens: int, stream: bool) -> float:
    """Tokens a second."""

    async def ask(ids: list[int]) -> int:
        body = {"model": model, "prompt": ids, "max_tokens": tokens, "temperature": 0, "stream": stream}
        if not stream:
            return (await http.post("/v1/completions", json=body)).json()["usage"]["completion_tokens"]
        body["stream_options"] = {"include_usage": True}
        last = ""
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                last = line if '"usage"' in line else last
        return json.loads(last.removeprefix("data: "))["usage"]["completion_tokens"]

    start = time.perf_counter()
    return sum(await asyncio.gather(*map(ask, prompts))) / (time.perf_counter() - start)


async def measure(model: ServedModel, thread: EngineThread, tokens: int, repeats: int) -> dict[str, Any]:
    model = ServedModel(**{**vars(model), "ends": frozenset()})  # every answer has all its tokens
    rows: dict[str, Any] = {}
    async with running_server(model, thread, ServeOptions(port=0, sessions=max(CLIENTS))) as running:
        async with httpx.AsyncClient(base_url=running.address, timeout=600, limits=httpx.Limits()) as http:
            for clients in CLIENTS:
                speeds: dict[str, list[float]] = {"engine": [], "whole": [], "stream": []}
                for turn in range(repeats):
                    made = [[prompt_of(model, i, turn * 3 + k) for i in range(clients)] for k in range(3)]
                    speeds["engine"].append(await engine_alone(thread, made[0], tokens))
                    speeds["whole"].append(await over_http(http, model.name, made[1], tokens, False))
                    speeds["stream"].append(await over_http(http, model.name, made[2], tokens, True))
                row = {f"{name}_tokens_per_s": round(statistics.median(of), 1) for name, of in speeds.items()}
                for name in ("whole", "stream"):
                    ratios = [a / b for a, b in zip(speeds[name], speeds["engine"], strict=True)]
                    row[f"{name}_ratio"] = round(statistics.median(ratios), 3)
                rows[str(clients)] = row
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="a checkpoint directory")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each kind, in turns")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, thread = open_model(options.folder, options.folder.name, sessions=max(CLIENTS), context=256, threads=1)
    with thread:
        clients = asyncio.run(measure(model, thread, options.tokens, options.repeats))
    figures = {"model": options.folder.name, "tokens": options.tokens, "repeats": options.repeats, "clients": clients}
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

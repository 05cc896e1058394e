"""Tokens a second over HTTP against the engine alone, for 1, 8 and 32 clients, in turns on the same engine.

    OMP_NUM_THREADS=1 python benchmarks/serve_speed.py DIR [--tokens N] [--repeats N] [--json FILE]

The clients are in a process of their own, as those of a server are. Each sends prompts of its own, greedy, and reads the bytes of its answer
without taking every chunk apart. The ratio is HTTP divided by the engine alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import torch

from etude.agent.policy.protocol import Request
from etude.learn.engine.policy import EnginePolicy
from etude.learn.engine.service import EngineThread
from etude.learn.serve.served_model import ServedModel, open_model
from etude.learn.serve.serving import ServeOptions, running_server

CLIENTS = (1, 8, 32)
CLIENT = "--client"  # the first word of the process of the clients


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


async def ask(port: int, body: dict[str, Any]) -> int:
    """One request on a connection of its own; the tokens of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + data)
    answer = await reader.read(-1)
    writer.close()
    at = answer.rindex(b'"completion_tokens":')  # of the last chunk, or of the whole answer
    return int(answer[at + 20 :].split(b",")[0].split(b"}")[0])


async def answer_orders() -> None:
    """The process of the clients: reads an order a line, asks, writes seconds and tokens a line."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        order, start = json.loads(line), time.perf_counter()
        counts = await asyncio.gather(*(ask(order["port"], body) for body in order["bodies"]))
        print(json.dumps([time.perf_counter() - start, sum(counts)]), flush=True)


@asynccontextmanager
async def client_process():
    """Gives orders to a process of clients: a function of port and bodies that returns tokens a second."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, __file__, CLIENT, stdin=pipe, stdout=pipe, limit=1 << 24
    )
    assert child.stdin is not None and child.stdout is not None
    writer, reader = child.stdin, child.stdout

    async def order(port: int, bodies: list[dict[str, Any]]) -> float:
        writer.write(json.dumps({"port": port, "bodies": bodies}).encode() + b"\n")
        seconds, tokens = json.loads(await reader.readline())
        return tokens / seconds

    try:
        yield order
    finally:
        writer.close()
        await child.wait()


async def measure(model: ServedModel, thread: EngineThread, tokens: int, repeats: int) -> dict[str, Any]:
    model = ServedModel(**{**vars(model), "ends": frozenset()})  # every answer has all its tokens
    rows: dict[str, Any] = {}
    options = ServeOptions(port=0, sessions=max(CLIENTS))
    async with running_server(model, thread, options) as running, client_process() as order:
        port = int(running.address.rpartition(":")[2])

        def bodies(prompts: list[list[int]], **fields: Any) -> list[dict[str, Any]]:
            common = {"model": model.name, "max_tokens": tokens, "temperature": 0, **fields}
            return [common | {"prompt": ids} for ids in prompts]

        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        for clients in CLIENTS:
            speeds: dict[str, list[float]] = {"engine": [], "whole": [], "stream": []}
            for turn in range(repeats + 1):
                made = [[prompt_of(model, i, turn * 3 + k) for i in range(clients)] for k in range(3)]
                speeds["engine"].append(await engine_alone(thread, made[0], tokens))
                speeds["whole"].append(await order(port, bodies(made[1])))
                speeds["stream"].append(await order(port, bodies(made[2], **streamed)))
            rows[str(clients)] = row_of({name: found[1:] for name, found in speeds.items()})  # the first turn warms up
    return rows


def row_of(speeds: dict[str, list[float]]) -> dict[str, float]:
    """Medians, and medians of the ratios of each turn."""
    row = {f"{name}_tokens_per_s": round(statistics.median(found), 1) for name, found in speeds.items()}
    for name in ("whole", "stream"):
        ratios = [a / b for a, b in zip(speeds[name], speeds["engine"], strict=True)]
        row[f"{name}_ratio"] = round(statistics.median(ratios), 3)
    return row


def main() -> None:
    if CLIENT in sys.argv[1:]:
        return asyncio.run(answer_orders())
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

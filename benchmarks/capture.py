"""What capturing costs an agent: requests a second and time added to each, with one session and with many at once.

    python benchmarks/capture.py [--turns 20] [--sessions 1 50] [--out benchmarks/results/capture.json]

The policy answers at once from a script, so that all the time of a request is the endpoint's and the client's: a bare one, in a
process of its own, that sends its whole history each time as agents do. `cpu_ms` is the time of one core that a request
takes in the endpoint's process: on a busy machine the one figure that holds. Written sessions are real files, with tokens (qwen3's
format over the small tokenizer that the tests train) and without. Streams are asked for pieces of four characters.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import runpy
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.policy.protocol import Request
from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.serving import serving
from etude.agent.proxy.settings import CaptureSettings
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message, ToolCall

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
OUTPUT = "    total = total + price * count  # the sum so far\n" * 20  # what a command prints: 1 kB
TEXT = "I look at the next file, then I go on."


class Script:
    """Answers at once, and in pieces where the caller asks for a stream."""

    name = "script"

    def __init__(self, renderer: Renderer | None) -> None:
        self.takes_tokens = renderer is not None
        self._renderer = renderer

    async def complete(self, request: Request) -> Completion:
        made = sum(len(message.calls) for message in request.messages)
        message = Message("assistant", TEXT, calls=(ToolCall(f"k{made}", "bash", {"command": f"cat {made}.py"}),))
        if request.on_delta is not None:
            for at in range(0, len(TEXT), 4):
                request.on_delta("text", TEXT[at : at + 4])
        if self._renderer is None:
            return Completion(message=message)
        ids = self._renderer.answer(message, first_call=made)
        return Completion(tokens=SampledTokens(ids, [-0.5] * len(ids), [1] * len(ids)))

    async def release(self, session_id: str) -> None: ...


async def measured(turns: int, sessions: int, *, tokens: bool, stream: bool) -> dict[str, float | int | bool]:
    """One line of the results."""
    renderer = None
    if tokens:
        conftest = Path(__file__).parents[1] / "tests" / "conftest.py"
        renderer = runpy.run_path(str(conftest))["_family_renderer"]("qwen3")
    with tempfile.TemporaryDirectory() as folder:
        book = SessionRegistry(Script(renderer), CaptureSettings(Path(folder)), renderer)
        async with serving(book) as address:
            keys = [book.open()[1] for _ in range(sessions)]
            asked = json.dumps({"address": address, "keys": keys, "turns": turns, "stream": stream})
            before_s = time.process_time()
            child = await asyncio.create_subprocess_exec(
                sys.executable, __file__, "--client", asked, stdout=asyncio.subprocess.PIPE
            )
            out, _ = await child.communicate()
            if child.returncode:
                raise SystemExit(f"the client ended with status {child.returncode}")
            cpu_ms = round(1000 * (time.process_time() - before_s) / (turns * sessions), 2)
            done = await book.close()
    assert all(summary["turns"] == turns and summary["forks"] == 0 for summary in done)
    return {
        "sessions": sessions,
        "turns": turns,
        "tokens": tokens,
        "stream": stream,
        "cpu_ms": cpu_ms,
        **json.loads(out),
    }


async def client(address: str, keys: list[str], turns: int, stream: bool) -> dict[str, float]:
    """All agents at once, each its turns one after the other: times of requests and their rate."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    start = time.perf_counter()
    times = await asyncio.gather(*(agent(host, int(port), key, turns, stream) for key in keys))
    seconds = time.perf_counter() - start
    all_ms = sorted(1000 * one for session in times for one in session)
    return {
        "requests_per_s": round(len(all_ms) / seconds, 1),
        "p50_ms": round(statistics.median(all_ms), 2),
        "p95_ms": round(all_ms[int(len(all_ms) * 0.95)], 2),
        "first_turn_p50_ms": round(statistics.median(1000 * session[0] for session in times), 2),
        "last_turn_p50_ms": round(statistics.median(1000 * session[-1] for session in times), 2),
    }


async def agent(host: str, port: int, key: str, turns: int, stream: bool) -> list[float]:
    """The seconds of each turn of one conversation."""
    reader, writer = await asyncio.open_connection(host, port)
    talk: list[dict[str, Any]] = [{"role": "system", "content": "You fix."}, {"role": "user", "content": "Fix it"}]
    times = []
    for turn in range(turns):
        body = json.dumps({"model": "m", "messages": talk, "tools": [TOOL], "stream": stream}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        start = time.perf_counter()
        writer.write(head.encode() + body)
        await answered(reader)
        times.append(time.perf_counter() - start)
        call = {"id": f"k{turn}", "type": "function", "function": {"name": "bash", "arguments": ""}}
        call["function"]["arguments"] = json.dumps({"command": f"cat {turn}.py"})
        talk.append({"role": "assistant", "content": TEXT, "tool_calls": [call]})
        talk.append({"role": "tool", "tool_call_id": f"k{turn}", "content": OUTPUT})
    writer.close()
    return times


async def answered(reader: asyncio.StreamReader) -> None:
    """Reads one response, which has a content length or comes in chunks."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise SystemExit(head.decode())
    if b"content-length: " in head:
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


async def everything(arguments: argparse.Namespace) -> list[dict[str, float | int | bool]]:
    rows = []
    for sessions in arguments.sessions:
        for tokens, stream in ((False, False), (False, True), (True, False), (True, True)):
            rows.append(await measured(arguments.turns, sessions, tokens=tokens, stream=stream))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        print(json.dumps(asyncio.run(client(**json.loads(arguments.client)))))
        return
    rows = asyncio.run(everything(arguments))
    if arguments.out:
        machine: dict[str, Any] = {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
        }
        machine["load_1min"] = round(os.getloadavg()[0], 2)
        arguments.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""What the harness costs: the time of a turn outside of model and command, memory along self-summaries, many sessions at once.

    python benchmarks/harness.py [--turns 500] [--mini-swe-agent PYTHON] [--out benchmarks/results/harness.json]

The policy answers at once from a script and the machine is one in memory, so that all the time that passes between an answer and
the next request is ours. Each session runs three times and a turn counts as its fastest: foreign load only adds. Bars: p50 <= 3 ms
a turn, flat to 500 turns and 200,000 tokens. `--mini-swe-agent` names the Python of an environment in which it is installed; it then
does the same turns (`harness_peer.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import runpy
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.renderer import Renderer
from etude.agent.harness.agent import build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.entry import Entry as TraceEntry
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder
from etude.core.trace.writer import SessionWriter
from etude.sandbox.errors import UserError
from etude.sandbox.spec import ExecResult, SandboxSpec

BAR_MS = 3.0
REPEATS = 3
FACTS = TaskFacts("bench", "fix it")
ROW = "    total = total + price * count  # the sum so far\n"
ENVIRONMENT = b"/workspace\0PATH=/usr/bin\0HOME=/home/user\0"  # what the shell tool's wrapper reports after a command


class Machine:
    """In memory; a command and a read answer at once."""

    def __init__(self, output: str) -> None:
        self.spec = SandboxSpec()
        self._output = output.encode()

    async def run(self, argv: Any, **_: Any) -> ExecResult:
        return ExecResult(0, self._output, ENVIRONMENT)

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        if not path.endswith(".py"):
            raise UserError(f"no such file {path}")
        return self._output[:max_bytes]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None: ...
    async def list(self, path: str = ".", **_: Any) -> list[Any]:
        return []

    async def remove(self, path: str) -> None: ...
    async def export(self, path: str = ".", **_: Any) -> dict[str, bytes]:
        return {}


class Script:
    """A policy that makes the same kind of call until `turns` are over, in words or in tokens, and notes when it was asked."""

    name = "script"

    def __init__(
        self, turns: int, call: tuple[str, dict[str, Any]], renderer: Renderer | None, wait_s: float = 0.0
    ) -> None:
        self.takes_tokens = renderer is not None
        self.asked: list[float] = []
        self.answered: list[float] = []
        self.prompt_tokens: list[int] = []
        self._turns, self._call, self._renderer, self._wait_s = turns, call, renderer, wait_s

    async def complete(self, request: Request) -> Completion:
        self.asked.append(time.perf_counter())
        self.prompt_tokens.append(len(request.prompt_ids))
        if self._wait_s:
            await asyncio.sleep(self._wait_s)
        answer = self._answer(request)
        self.answered.append(time.perf_counter())
        return answer

    def _answer(self, request: Request) -> Completion:
        number, (name, arguments) = len(self.answered), self._call
        if request.extra.get("summary"):
            message = Message("assistant", "The sum is wrong in core.py.")
        elif number >= self._turns:
            message = Message("assistant", "It is fixed.")
        else:
            message = Message("assistant", "I look at the next part.", calls=(ToolCall(f"c{number}", name, arguments),))
        if self._renderer is None:
            return Completion(message=message)
        ids = self._renderer.answer(message, first_call=number)
        return Completion(tokens=SampledTokens(ids, [-0.1] * len(ids), [3] * len(ids)))

    async def release(self, session_id: str) -> None: ...

    def overhead_ms(self) -> list[float]:
        """Of each turn: from its answer to the next request."""
        return [1e3 * (begin - end) for end, begin in zip(self.answered, self.asked[1:], strict=False)]


def family_renderer() -> Renderer:
    """Qwen3's format over the small tokenizer that the tests train."""
    conftest = Path(__file__).parents[1] / "tests" / "conftest.py"
    return runpy.run_path(str(conftest))["_family_renderer"]("qwen3")


def settings_of(preset: str, turns: int, trigger: int = 0) -> HarnessSettings:
    return HarnessSettings.full(
        preset=preset, max_turns=turns + 1, max_session_tokens=10**9, summary_trigger_tokens=trigger, max_summaries=1000
    )


def summarise(overhead_ms: list[float]) -> dict[str, Any]:
    """p50 and p90 of all turns, and p50 around some of them."""
    near = {
        str(n): round(statistics.median(overhead_ms[max(0, n - 25) : n + 25]), 3) for n in (1, 100, 200, 300, 400, 475)
    }
    ordered = sorted(overhead_ms)
    return {
        "turns": len(overhead_ms),
        "p50_ms": round(statistics.median(ordered), 3),
        "p90_ms": round(ordered[int(0.9 * (len(ordered) - 1))], 3),
        "p50_ms_around_turn": {n: value for n, value in near.items() if int(n) < len(overhead_ms)},
    }


async def turns_of(
    preset: str, call: tuple[str, dict[str, Any]], renderer: Renderer | None, turns: int, rows: int
) -> dict[str, Any]:
    """One long session, several times."""
    runs = [await session_of(preset, call, renderer, turns, rows) for _ in range(REPEATS)]
    tokens = max(runs[0].prompt_tokens) if renderer is not None else turns * len(ROW) * rows // 4
    return {**summarise(fastest([run.overhead_ms() for run in runs])), "history_tokens": tokens}


def fastest(runs: list[list[float]]) -> list[float]:
    """Turn by turn."""
    return [min(turn) for turn in zip(*runs, strict=True)]


async def session_of(
    preset: str, call: tuple[str, dict[str, Any]], renderer: Renderer | None, turns: int, rows: int
) -> Script:
    """Written to disk line by line as a person's is."""
    policy, settings = Script(turns, call, renderer), settings_of(preset, turns)
    with tempfile.TemporaryDirectory() as folder:
        header = session_header(settings, policy, FACTS, renderer=renderer)
        recorder = SessionWriter(Path(folder) / "s.jsonl", header, every="line")
        agent = build_agent(
            settings, policy, AgentDependencies(Machine(ROW * rows), FACTS, renderer=renderer, recorder=recorder)
        )
        outcome = await agent.run()
        assert outcome.counters["failed_calls"] == 0 and outcome.counters["turns"] >= turns, outcome.counters
    return policy


async def memory(segments: int, tokens: int) -> dict[str, Any]:
    """A chain of self-summaries: megabytes held after each segment, and those that each added."""
    renderer, held = NanoRenderer(byte_tokenizer()), []
    per_turn = 8 * len(ROW)
    turns = tokens // per_turn
    policy, settings = (
        Script(turns, ("view", {"path": "core.py"}), renderer),
        settings_of("nano", turns, tokens // segments),
    )
    recorder = Recorder(session_header(settings, policy, FACTS, renderer=renderer))

    def note(entry: TraceEntry) -> None:
        if entry.type == "summary":
            held.append(tracemalloc.get_traced_memory()[0] / 1e6)

    class Noting:
        def delta(self, part: Any, piece: str) -> None: ...
        def entry(self, entry: TraceEntry) -> None:
            note(entry)

        def idle(self, reason: str, message: str) -> None: ...

    tracemalloc.start()
    agent = build_agent(
        settings,
        policy,
        AgentDependencies(Machine(ROW * 8), FACTS, renderer=renderer, recorder=recorder, watcher=Noting()),
    )
    outcome = await agent.run()
    tracemalloc.stop()
    added = [round(after - before, 2) for before, after in zip(held, held[1:], strict=False)]
    total = sum(len(segment) for segment in outcome.segments)
    return {"summaries": len(held), "tokens": total, "held_mb": [round(one, 1) for one in held], "added_mb": added}


async def many(sessions: int, turns: int, wait_s: float) -> dict[str, Any]:
    """Sessions of one process at once, with a policy that takes `wait_s` a turn; how late the loop was meanwhile."""
    policies = [Script(turns, ("bash", {"command": "cat core.py"}), None, wait_s) for _ in range(sessions)]
    late: list[float] = []

    async def watch() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            late.append(1e3 * (time.perf_counter() - before - 0.01))

    settings = settings_of("minimal", turns)
    watching = asyncio.create_task(watch())
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(
        *(build_agent(settings, p, AgentDependencies(Machine(ROW * 8), FACTS)).run() for p in policies)
    )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    watching.cancel()
    late.sort()
    return {
        "sessions": sessions,
        "turns": turns,
        "policy_ms": 1e3 * wait_s,
        "wall_s": round(wall, 2),
        "turns_per_s": round(sessions * turns / wall, 1),
        "cpu_ms_per_turn": round(1e3 * cpu / (sessions * turns), 3),
        "loop_late_p50_ms": round(statistics.median(late), 1),
        "loop_late_p99_ms": round(late[int(0.99 * (len(late) - 1))], 1),
    }


def peer(python: str, turns: int, rows: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for save in (True, False):
        task = json.dumps({"turns": turns, "output": ROW * rows, "save": save})
        script = Path(__file__).with_name("harness_peer.py")
        quiet = {**os.environ, "MSWEA_SILENT_STARTUP": "1", "PYTHONPATH": ""}
        runs: list[list[float]] = []
        for _ in range(REPEATS):
            ran = subprocess.run([python, str(script), task], check=True, capture_output=True, text=True, env=quiet)
            document = json.loads(ran.stdout.splitlines()[-1])
            runs.append(document["overhead_ms"])
            found["version"] = document["version"]
        found["saved_each_turn" if save else "not_saved"] = summarise(fastest(runs))
    return found


def machine() -> dict[str, Any]:
    return {
        "cpu": next((row.split(":")[1].strip() for row in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in row), ""),
        "cores": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--mini-swe-agent", metavar="PYTHON", default="")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    turns, nano = options.turns, NanoRenderer(byte_tokenizer())
    found: dict[str, Any] = {"machine": machine(), "bar_p50_ms": BAR_MS}
    found["turn"] = {
        "text": asyncio.run(turns_of("minimal", ("bash", {"command": "cat core.py"}), None, turns, 32)),
        "tokens_in_pieces": asyncio.run(turns_of("nano", ("view", {"path": "core.py"}), nano, turns, 8)),
        "tokens_qwen3": asyncio.run(
            turns_of("minimal", ("bash", {"command": "cat core.py"}), family_renderer(), turns, 8)
        ),
    }
    found["memory"] = asyncio.run(memory(10, 1_000_000))
    found["many"] = asyncio.run(many(200, 20, 1.0))
    if options.mini_swe_agent:
        found["mini_swe_agent"] = peer(options.mini_swe_agent, turns, 32)
    text = json.dumps(found, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

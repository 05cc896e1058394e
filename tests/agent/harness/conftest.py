"""A sandbox in memory: the protocol's files for real, commands answered by a function."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Callable, Sequence

import numpy as np
import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.special import SPECIAL_TOKENS
from etude.agent.harness.agent import Agent, build_agent
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message, ToolCall
from etude.learn.corpus.tokenizer import train_tokenizer
from etude.sandbox.errors import UserError
from etude.sandbox.spec import ExecResult, FileEntry, SandboxSpec

Run = Callable[["FakeSandbox", Any], ExecResult]


class FakeSandbox:
    """`run` is given the argv; without one every command succeeds silently."""

    def __init__(self, files: dict[str, str], run: Run | None = None) -> None:
        self.id = "fake"
        self.spec = SandboxSpec()
        self.files = {path: text.encode() for path, text in files.items()}
        self._run = run or (lambda sandbox, argv: ExecResult(0, b"", b""))

    async def run(self, argv: Any, **options: Any) -> ExecResult:
        return self._run(self, argv)

    async def read(self, path: str, *, max_bytes: int = 1 << 20, offset: int = 0) -> bytes:
        if path not in self.files:
            raise UserError(f"no such file {path}")
        return self.files[path][offset : offset + max_bytes]

    async def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        if path.startswith("/") or ".." in path.split("/"):
            raise UserError(f"outside of the workspace: {path}")
        self.files[path] = data

    async def list(self, path: str = ".", *, recursive: bool = True, max_entries: int = 10_000) -> list[FileEntry]:
        return [FileEntry(p, "file", len(data), 0o644) for p, data in sorted(self.files.items())]

    async def remove(self, path: str) -> None:
        self.files.pop(path, None)

    async def export(self, path: str = ".", *, max_bytes: int = 16 << 20) -> dict[str, bytes]:
        return dict(self.files)

    async def kill(self) -> None:
        """Nothing runs."""


FILES = {
    "shop.py": "def total(items):\n    out = 0\n    for x in items:\n        out -= x\n    return out\n",
    "main.py": "from shop import total\n\nprint(total([1, 2]))\n",
}


def run_tests(sandbox: FakeSandbox, argv: Any) -> ExecResult:
    """Green once the bug in FILES is gone."""
    fixed = b"out += x" in sandbox.files["shop.py"]
    return ExecResult(0, b"", b"") if fixed else ExecResult(1, b"total([1, 2]) = -3, not 3 in 0.01s\n", b"")


@pytest.fixture
def sandbox() -> FakeSandbox:
    return FakeSandbox(FILES, run_tests)


@pytest.fixture
def make_sandbox() -> Callable[..., FakeSandbox]:
    return lambda files=FILES, run=run_tests: FakeSandbox(files, run)


@pytest.fixture(scope="session")
def renderer() -> NanoRenderer:
    return NanoRenderer(byte_tokenizer())


@pytest.fixture(scope="session")
def trained() -> NanoRenderer:
    """Over a tokenizer with merges: the same text can be spelled in several ways."""
    return NanoRenderer(train_tokenizer([*FILES.values()] * 4, SPECIAL_TOKENS, 400))


FACTS = TaskFacts("task-1", "fix total", ("python", "check.py"))
ROOMY = HarnessSettings(max_session_tokens=8000, max_tokens_per_turn=400)


def turn(*calls: tuple[str, dict[str, Any]], text: str = "") -> Message:
    return Message(
        "assistant", text, calls=tuple(ToolCall(f"x{i}", name, args) for i, (name, args) in enumerate(calls))
    )


def done(message: str = "fixed") -> Message:
    return turn(("done", {"message": message}))


# Search, two calls in one turn, a green test: what a competent agent does with FILES.
GOOD = (
    turn(("grep", {"pattern": "total"}), text="look"),
    turn(("view", {"path": "shop.py"}), ("test", {})),
    turn(("edit", {"path": "shop.py", "old": "out -= x", "new": "out += x"})),
    turn(("test", {})),
    done(),
)


def token_policy(renderer: NanoRenderer, script: Sequence[Message | list[int]]) -> ScriptedPolicy:
    """A policy that answers in tokens, as an engine does: logprobs, versions, and routes of every forwarded position."""
    state = {"turn": 0, "forwarded": 0, "prompt": ()}

    def answer(request: Request) -> Completion:
        number = state["turn"]
        state["turn"] += 1
        item = script[number]
        ids = item if isinstance(item, list) else renderer.render_message(item)[1:]
        if request.prompt_ids[: len(state["prompt"])] != state["prompt"]:
            state["forwarded"] = 0  # another segment: nothing is cached
        start = state["forwarded"]
        stop = len(request.prompt_ids) + len(ids) - 1
        routes = np.full((stop - start, 2, 1), number, dtype=np.uint8)
        state["forwarded"], state["prompt"] = stop, request.prompt_ids
        finish = "stop" if ids and ids[-1] in request.stop_ids else "length"
        logprobs = [-0.125 * (i + 1) for i in range(len(ids))]
        return Completion(tokens=SampledTokens(ids, logprobs, [number] * len(ids), routes, start), finish=finish)

    return ScriptedPolicy(answer, name="tokens", takes_tokens=True)


@pytest.fixture(scope="session")
def scene() -> SimpleNamespace:
    """The names above, for tests (a test module can't import its conftest)."""
    return SimpleNamespace(
        FACTS=FACTS, FILES=FILES, GOOD=GOOD, ROOMY=ROOMY, Sandbox=FakeSandbox, done=done, run_tests=run_tests,
        token_policy=token_policy, turn=turn,
    )  # fmt: skip


@pytest.fixture
def agent(sandbox: FakeSandbox) -> Callable[..., Agent]:
    """An agent over the fake sandbox; `script` may be a policy."""

    def make(script: Any, settings: HarnessSettings = ROOMY, **options: Any) -> Agent:
        policy = script if hasattr(script, "complete") else ScriptedPolicy(script)
        return build_agent(
            settings, policy, AgentDependencies(options.pop("sandbox", sandbox), options.pop("facts", FACTS), **options)
        )

    return make

"""The process that runs vLLM, in a Python of its own (`program/`), spoken to by lines of JSON over a pair of pipes.

It ends with its owner, however that ends: its input is closed then. When it ends, or a process that it started, a caller that waits or
asks hears `EngineGone`, and nothing of it is left: what it starts dies with it, but for Python's tracker, which removes the shared
memory first.
"""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion, Finish, SampledTokens, Usage
from etude.learn.engine.sampling import NOT_FINITE

# Turns on their way to vLLM and back: a request as a message, an answer as a completion with the version of every
# token (promise 3).


Message = dict[str, Any]
FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length", "abort": "abort"}
SEEDS = 2**63  # vLLM takes signed ones of 64 bits


@dataclass(frozen=True)
class RunningTurn:
    """A request that vLLM is at. `deliver`: takes what becomes of it. `version`: what was served when it was sent."""

    deliver: Callable[[Completion | PolicyError], None]
    prompt_tokens: int
    version: int
    sent_s: float
    wide: bool = False  # routes come as uint16


def seed_of(seed: int, prompt_tokens: int) -> int:
    """vLLM begins a request's random numbers with its seed alone; as in our engine, turns of a session draw different ones."""
    key = np.array([seed % 2**64, prompt_tokens], dtype=np.uint64)
    return int(np.random.Philox(key=key).random_raw() % SEEDS)


def question(number: int, request: Request, seed: int, salt: str, max_len: int, wide: bool = False) -> Message:
    """What vLLM is asked. A turn ends at `max_len` tokens in all, as in our engine. `wide`: routes come as uint16."""
    room = max_len - len(request.prompt_ids)
    return {
        "do": "ask",
        "n": number,
        "prompt": list(request.prompt_ids),
        "stop": list(request.stop_ids),
        "max_tokens": min(request.max_tokens, room),
        "temperature": request.temperature,
        "top_p": request.extra.get("top_p", 1.0),
        "seed": seed_of(seed, len(request.prompt_ids)),
        "salt": salt,
        "wide": wide,
    }


def versions_of(spans: Sequence[tuple[int, int]], count: int, oldest: int) -> list[int]:
    """The version of each of `count` tokens, from spans (version, first token) in order. Tokens that no span covers get `oldest`."""
    versions = [oldest] * count
    for version, start in spans:
        versions[start:] = [version] * max(0, count - start)
    return versions


def completion(turn: RunningTurn, answer: Message, now_s: float) -> Completion | PolicyError:
    """What was sampled; an error of ours where vLLM ended the turn for a reason that none of our own is."""
    if answer["finish"] not in FINISHES:
        return PolicyError(f"vLLM ended a turn with {answer['finish']!r}")
    if not all(map(math.isfinite, answer["logprobs"])):
        return PolicyError(
            f"vLLM gave a token of logprob {next(x for x in answer['logprobs'] if not math.isfinite(x))}: {NOT_FINITE}"
        )
    ids = answer["ids"]
    versions = versions_of(answer["spans"], len(ids), turn.version)
    usage = Usage(turn.prompt_tokens, answer["cached"], len(ids), now_s - turn.sent_s)
    start, routes = _routes_of(answer.get("routes"), turn.wide)
    tokens = SampledTokens(ids, answer["logprobs"], versions, routes, start)
    return Completion(tokens=tokens, finish=FINISHES[answer["finish"]], usage=usage)


def _routes_of(found: tuple[int, list[int], str] | None, wide: bool) -> tuple[int, np.ndarray | None]:
    """First position and routes (N, L_moe, K) of an answer."""
    if found is None:
        return 0, None
    start, shape, data = found
    flat = np.frombuffer(base64.b64decode(data), np.uint16 if wide else np.uint8)
    return start, flat.reshape(shape)


PROGRAM = Path(__file__).resolve().parent / "program" / "etude_vllm_serve.py"
TOLD_LINES, TOLD_CHARACTERS = 3, 200  # of the log, in an error: vLLM's own reason mostly is its last word


class EngineGone(Exception):
    """vLLM's process ended or never came up; the message tells what it said last."""


class VllmChild:
    """From construction on it loads; `call` waits for that, `say` does not."""

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        log: Path,
        heard: Callable[[Message], None],
        ended: Callable[[], None],
    ) -> None:
        """`heard` receives answers and refusals, `ended` is called when nothing more comes; both in a thread of this object."""
        self._log, self._heard, self._ended = log, heard, ended
        self._lock = threading.Lock()
        self._open: dict[int, Future[Message]] = {}  # calls without an answer
        self._calls = 0
        self._why = ""
        self.gone: EngineGone | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        self._sockets = tempfile.mkdtemp(prefix="etude-vllm-")  # short: the path of a socket holds 107 bytes
        with open(log, "wb") as log_file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                env=os.environ | environment | {"VLLM_RPC_BASE_PATH": self._sockets},
                start_new_session=True,  # no signal of a terminal: its owner ends it
            )
        threading.Thread(target=self._listen, name="vllm", daemon=True).start()

    def say(self, message: Message) -> None:
        """Raises EngineGone."""
        if self.gone is not None:
            raise self.gone
        assert self._process.stdin is not None
        line = (json.dumps(message) + "\n").encode()
        try:
            with self._lock:
                self._process.stdin.write(line)
                self._process.stdin.flush()
        except OSError as error:  # it ends just now; the listener learns why
            raise EngineGone(f"vLLM's process no longer listens ({error}); see {self._log}") from error

    def call(self, message: Message) -> Message:
        """Says it; what comes back when it is done. Raises EngineGone."""
        done: Future[Message] = Future()
        with self._lock:
            self._calls += 1
            number = self._calls
            self._open[number] = done
        self.say(message | {"n": number})
        return done.result()

    def close(self) -> None:
        """Ends it, and so all that it started. Idempotent."""
        self._process.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith(b"\n"):  # torn by a kill
                break
            message = json.loads(line)
            if message["said"] == "done":
                self._open.pop(message["n"]).set_result(message)
            elif message["said"] == "failed":
                self._why = message["why"]
            elif message["said"] != "ready":
                self._heard(message)
        code = self._process.wait()
        shutil.rmtree(self._sockets, ignore_errors=True)
        self.gone = EngineGone(f"{self._reason(code)}; see {self._log}")
        for done in list(self._open.values()):
            done.set_exception(self.gone)
        self._ended()

    def _reason(self, code: int) -> str:
        if self._why:
            return f"vLLM failed: {self._why}"
        if code < 0:
            return f"vLLM's process was killed by signal {-code}"
        last = self._log.read_text(errors="replace").strip().splitlines()[-TOLD_LINES:]
        after = " | ".join(line[:TOLD_CHARACTERS] for line in last)
        return f"vLLM's process ended with {code}" + (f", after: {after}" if after else "")


def command(python: str, arguments: Mapping[str, Any]) -> list[str]:
    """What starts it."""
    return [python, str(PROGRAM), json.dumps(dict(arguments))]

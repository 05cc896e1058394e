"""Turns on their way through one process of vLLM: token ids in, tokens with logprobs and versions out, each turn with a seed.

Shared by the engine of RL (`service.py`), whose weights change, and by the policy over one checkpoint directory (`policy.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.core.trace.segment import NO_ROUTE
from etude.learn.engine.mailbox import Result
from etude.learn.engine.running import check
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.child import EngineGone, Message, RunningTurn, VllmChild, command, completion, question
from etude.learn.model.checkpoint import load_config
from etude.learn.model.config import ModelConfig

# Keeps the seeds that requests without one get apart for engines of different seeds.
SEED_STRIDE = 2**32
STEP_TOKENS = 2048  # vLLM's own default


class VllmTurns:
    """Thread-safe. `lock` guards the counts and what is served. Once the process has ended, `ask` raises EngineGone."""

    def __init__(
        self,
        checkpoint: Path,
        settings: EngineSettings,
        log: Path,
        ended: Callable[[], None],
        *,
        version: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Starts vLLM on the checkpoint directory. `version`: of the weights in it. `ended`: called when nothing more comes, from a thread. Raises
        ValueError for a model that vLLM computes otherwise."""
        config = load_config(checkpoint)
        require_same_queries(config, settings.max_len)
        self._vocabulary, self._wide = config.vocab_size, config.experts > NO_ROUTE
        self._max_len = min(settings.max_len, config.context_length)
        self._settings, self._first, self._clock = settings, version, clock
        self._salts = Salts(settings.swap_cache, settings.share_prefix)
        self.tally = RequestTally(clock)
        self.lock = threading.Lock()
        self.served = version
        self._turns: dict[int, RunningTurn] = {}
        self._asked = 0
        words = command(settings.vllm.python, arguments(checkpoint, settings, self._max_len))
        self.child = VllmChild(words, environment(settings), log, self._hear, ended)

    def ask(self, request: Request, deliver: Callable[[Result], None]) -> int:
        """The turn's number, for `abort`. `deliver` gets what becomes of it, from a thread; nothing if the process ends first. Raises PolicyError
        for a request that the engine can't serve, and EngineGone."""
        check(request, self._vocabulary, self._max_len)
        with self.lock:
            self._asked += 1
            number = self._asked
            own = self._settings.seed * SEED_STRIDE + number
            salt = self._salts.of(request.session_id, self.served)
            turn = RunningTurn(deliver, len(request.prompt_ids), self.served, self._clock(), self._wide)
            self._turns[number] = turn
            self.tally.began(turn.prompt_tokens)
            seed = own if request.seed is None else request.seed
            message = question(number, request, seed, salt, self._max_len, self._wide)
        self.child.say(message)
        return number

    def abort(self, number: int) -> None:
        """Ends a turn that is no longer wanted, so that vLLM samples no more for it; one that is over stays as it is."""
        with self.lock:
            running = number in self._turns
        if running:
            with suppress(EngineGone):  # the turn ended with its process
                self.child.say({"do": "abort", "n": number})

    def release(self, sessions: list[str]) -> None:
        with self.lock:
            for session in sessions:
                self._salts.release(session)

    def _hear(self, message: Message) -> None:
        with self.lock:
            turn = self._turns.pop(message["n"])
            if message["said"] == "refused":
                result: Result = PolicyError(f"vLLM refuses a turn: {message['why']}", infra=False)
            elif message["said"] == "aborted":
                result = PolicyError("the turn was cancelled")
            else:
                # Before the first swap vLLM's own name for its weights is -1.
                spans = [(max(version, self._first), start) for version, start in message["spans"]]
                result = completion(turn, message | {"spans": spans}, self._clock())
            self.tally.record_request(result)
        turn.deliver(result)


def require_same_queries(config: ModelConfig, max_len: int) -> None:
    """Raises ValueError for sessions in which the queries of later tokens are scaled by their positions: vLLM (0.32) does not. A probe of short
    prompts would not see it."""
    if config.query_growth and config.yarn is not None and max_len > (first := config.yarn.original_positions):
        raise ValueError(
            f'engine.kind = "vllm" with engine.max_len = {max_len} and a {config.family} model: vLLM does not scale queries by their positions, '
            f"which begins after {first} tokens (docs/vllm.md); set engine.max_len = {first}, or take our own engine"
        )


def arguments(checkpoint: Path, settings: EngineSettings, max_len: int) -> dict[str, Any]:
    """Of vLLM's engine."""
    own = settings.vllm
    return {
        "model": str(checkpoint),
        "skip_tokenizer_init": True,
        "dtype": own.dtype,
        "max_model_len": max_len,
        "max_num_seqs": settings.max_batch,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # of what was sampled from: temperature and top-p applied
        "kv_cache_memory_bytes": own.kv_cache_mib << 20,
        "seed": settings.seed,
        "disable_log_stats": True,
        # Whole prompts, of which at least one fits into a step. Of a prompt in pieces vLLM takes back the random number of each, which its
        # CPU build (0.32) fails at.
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(STEP_TOKENS, max_len),
        **own.arguments,
    }


def environment(settings: EngineSettings) -> Mapping[str, str]:
    """Of its process: no network, and as many threads as the recipe gives an engine, wherever there is room for them."""
    return {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # each process imports the program first, and so dies with its parent
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(settings.threads),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_HOST_IP": "127.0.0.1",  # its own processes meet there
        "PYTHONPATH": "",
    }


class Salts:
    """Which sessions may share cached tokens in one vLLM engine. Its prefix cache knows tokens, not the weights that computed them, but
    keeps requests with different salts apart. A session continues with what it cached under older weights, as in our engine with
    `swap_cache = "keep"`; a session that begins after a swap shares with none that began before it."""

    def __init__(self, swap_cache: Literal["keep", "recompute"], share_prefix: bool) -> None:
        self._keep, self._share = swap_cache == "keep", share_prefix
        self._began: dict[str, int] = {}

    def of(self, session: str, version: int) -> str:
        """For a turn of `session`, sent while `version` is served."""
        if not self._share:
            return session
        if not self._keep:
            return "all"  # a swap empties the cache
        return f"since {self._began.setdefault(session, version)}"

    def release(self, session: str) -> None:
        self._began.pop(session, None)


# What vLLM did for us, in counts and seconds, under the names that our engine's reading has where they mean the same.


class RequestTally:
    """Of one engine. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._in_flight, self._since = 0, clock()
        self._busy_s = self._turn_s = 0.0  # with a turn in flight; summed over turns
        self._counts = dict.fromkeys(
            ("requests", "finished", "prompt_tokens", "cached_tokens", "sampled_tokens", "swaps", "inflight_swaps"), 0
        )
        self._loaded_tensors = 0
        self._swap_s = 0.0
        self.refused = 0  # broken files of the store that were walked around

    def began(self, prompt_tokens: int) -> None:
        self._advance()
        self._in_flight += 1
        self._counts["requests"] += 1
        self._counts["prompt_tokens"] += prompt_tokens

    def record_request(self, result: Completion | PolicyError) -> None:
        self._advance()
        self._in_flight -= 1
        if isinstance(result, Completion) and result.tokens is not None:
            versions = result.tokens.versions
            self._counts["finished"] += 1
            self._counts["cached_tokens"] += result.usage.cached_tokens
            self._counts["sampled_tokens"] += len(versions)
            self._counts["inflight_swaps"] += len(set(versions)) > 1

    def record_swap(self, seconds: float, tensors: int) -> None:
        self._counts["swaps"] += 1
        self._swap_s += seconds
        self._loaded_tensors += tensors

    def reading(self) -> dict[str, float]:
        """`decode_s` are the seconds with a turn in flight, prompts and swaps included: what vLLM does within them it does not tell."""
        self._advance()
        counts = {name: float(value) for name, value in self._counts.items()}
        busy_s, prompt = self._busy_s, counts["prompt_tokens"]
        return counts | {
            "decode_s": busy_s,
            "swap_total_s": self._swap_s,
            "loaded_tensors": float(self._loaded_tensors),
            "tokens_per_s": counts["sampled_tokens"] / busy_s if busy_s else 0.0,
            "mean_batch": self._turn_s / busy_s if busy_s else 0.0,
            "cache_hit": counts["cached_tokens"] / prompt if prompt else 0.0,
            "refused_files": float(self.refused),
        }

    def _advance(self) -> None:
        now = self._clock()
        self._busy_s += (now - self._since) * (self._in_flight > 0)
        self._turn_s += (now - self._since) * self._in_flight
        self._since = now

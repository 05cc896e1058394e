"""vLLM behind the same methods as our own engine (`engine.service.EngineService`), so that replicas of either are started, asked, brought
to new weights and brought back alike.

Turns go token in, token out, each with its own seed; logprobs are those of the distribution that was sampled from. Weights come by the
node's copy (`host_copy`): `stage` brings that to a version while vLLM samples, `apply` has vLLM load what differs between two of its
steps. Every token carries the version that sampled it. Routed experts come where vLLM runs eagerly.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.core.trace.segment import NO_ROUTE
from etude.learn.engine.mailbox import Mailbox, Result
from etude.learn.engine.running import check
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.child import Message, RunningTurn, VllmChild, command, completion, question
from etude.learn.engine.vllm.host_copy import HostCopy
from etude.learn.model.checkpoint import load_config
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore

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


# Keeps the seeds that requests without one get apart for engines of different seeds.
SEED_STRIDE = 2**32
STEP_TOKENS = 2048  # vLLM's own default


class VllmService:
    """Thread-safe: `poll`, `stage` and `apply` block and should run in threads of their own (a threaded actor). Once the process of vLLM has
    ended every method raises EngineGone."""

    def __init__(
        self,
        checkpoint: Path,
        store: WeightStore,
        settings: EngineSettings,
        folder: Path,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`folder`: the node's copy is kept in it, and what vLLM printed."""
        config = load_config(checkpoint)
        self._vocabulary = config.vocab_size
        self._wide = config.experts > NO_ROUTE
        self._max_len = min(settings.max_len, config.context_length)
        self._settings, self._clock = settings, clock
        self._copy = HostCopy(folder / "copy", checkpoint)
        self._receiver = Receiver(store)
        self._salts = Salts(settings.swap_cache, settings.share_prefix)
        self._tally = RequestTally(clock)
        self._lock = threading.Lock()  # of the turns
        self._weights = threading.Lock()  # one swap at a time
        self._turns: dict[int, RunningTurn] = {}
        self._asked = 0
        self._served, self._loaded = -1, dict[str, str]()  # version, and digests by key, of what vLLM has loaded
        self._mailbox = Mailbox(lambda: self._child.gone is not None)
        log = folder / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{threading.get_native_id()}.log"
        words = command(settings.vllm.python, arguments(checkpoint, settings, self._max_len))
        self._child = VllmChild(words, environment(settings), log, self._hear, self._mailbox.wake)

    def submit_many(self, client: str, requests: list[tuple[int, Request]]) -> None:
        """Takes requests under the client's own numbers; refused ones come back by `poll` too."""
        for number, request in requests:
            try:
                check(request, self._vocabulary, self._max_len)
            except PolicyError as error:
                self._mailbox.put(client, number, error)
                continue
            self._child.say(self._enter(client, number, request))

    def poll(self, client: str, timeout_s: float = 10.0) -> list[tuple[int, Result]]:
        """Results of the client's requests since the last poll; waits until there are some or the time is over."""
        found = self._mailbox.collect(client, timeout_s)
        if not found and self._child.gone is not None:
            raise self._child.gone
        return found

    def release_many(self, sessions: list[str]) -> None:
        with self._lock:
            for session in sessions:
                self._salts.release(session)

    def stage(self, version: int | None = None) -> int:
        """Brings the node's copy to the newest weights, or to `version`, while vLLM samples; the version that the copy is at."""
        if self._child.gone is not None:
            raise self._child.gone
        received = self._copy.bring(self._receiver, version)
        self._tally.refused += len(received.refused)
        return received.version

    def apply(self) -> int:
        """Has vLLM load, between two of its steps, what the copy holds and it does not; the version served from the next token on, which is
        the acknowledgement. Another engine of the node may have brought the copy on since `stage`."""
        with self._weights, self._copy.reading() as held:
            modules = to_load(self._loaded, held.digests)
            if modules or held.version != self._served:
                recompute = self._settings.swap_cache == "recompute"
                load = {"do": "load", "file": str(held.file), "modules": modules, "recompute": recompute}
                done = self._child.call(load | {"version": held.version})
                with self._lock:
                    self._loaded, self._served = held.digests, held.version
                    self._tally.record_swap(done["seconds"], sum(map(len, modules.values())))
            return self._served

    def stats(self) -> dict[str, float]:
        """A reading, after a sign of life of the process that samples."""
        self._child.call({"do": "ping"})
        with self._lock:
            return self._tally.reading() | {"version": float(self._served)}

    def close(self) -> None:
        self._child.close()

    def _enter(self, client: str, number: int, request: Request) -> Message:
        with self._lock:
            self._asked += 1
            own = self._settings.seed * SEED_STRIDE + self._asked
            salt = self._salts.of(request.session_id, self._served)
            turn = RunningTurn(client, number, len(request.prompt_ids), self._served, self._clock(), self._wide)
            self._turns[self._asked] = turn
            self._tally.began(turn.prompt_tokens)
            seed = own if request.seed is None else request.seed
            return question(self._asked, request, seed, salt, self._max_len, self._wide)

    def _hear(self, message: Message) -> None:
        with self._lock:
            turn = self._turns.pop(message["n"])
            if message["said"] == "refused":
                result: Result = PolicyError(f"vLLM refuses a turn: {message['why']}", infra=False)
            else:
                result = completion(turn, message, self._clock())
            self._tally.record_request(result)
        self._mailbox.put(turn.client, turn.number, result)


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


# vLLM joins the tensors of one module (query, key and value; all experts) and packs them, so parts of a module can't be loaded alone: of each
# module in which a tensor changed, all tensors are loaded.

# Within these, tensors of one layer are joined, or computed from one another (the latent attention's).
JOINED = re.compile(r"model\.layers\.\d+\.(?:self_attn|mlp|block_sparse_moe)(?=\.)")


def module_of(key: str) -> str:
    """The vLLM module, by its path, that a key of a checkpoint is loaded with."""
    joined = JOINED.match(key)
    return joined[0] if joined else key.rpartition(".")[0]


def to_load(loaded: Mapping[str, str], held: Mapping[str, str]) -> dict[str, list[str]]:
    """Keys by module, where the digests of what an engine has loaded differ from those of what its node holds now."""
    stale = {module_of(key) for key, digest in held.items() if loaded.get(key) != digest}
    found: dict[str, list[str]] = {}
    for key in held:
        if (module := module_of(key)) in stale:
            found.setdefault(module, []).append(key)
    return found


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

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
from functools import partial
from pathlib import Path

from etude.agent.policy.protocol import PolicyError, Request
from etude.learn.engine.adapter_merger import AdapterMerger
from etude.learn.engine.mailbox import Mailbox, Result
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.host_copy import HostCopy
from etude.learn.engine.vllm.turns import VllmTurns
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore


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
        merge: AdapterMerger | None = None,
    ) -> None:
        """`folder`: the node's copy is kept in it, and what vLLM printed. `merge`: of the base that the store's states are adapters of."""
        self._recompute = settings.swap_cache == "recompute"
        self._copy = HostCopy(folder / "copy", checkpoint, merge)
        self._receiver = Receiver(store)
        self._weights = threading.Lock()  # one swap at a time
        self._loaded = dict[str, str]()  # digests by key, of what vLLM has loaded
        self._mailbox = Mailbox(lambda: self._child.gone is not None)
        log = folder / "logs" / f"{time.strftime('%Y%m%d-%H%M%S')}-{threading.get_native_id()}.log"
        self._turns = VllmTurns(checkpoint, settings, log, self._mailbox.wake, version=-1, clock=clock)
        self._child = self._turns.child

    def submit_many(self, client: str, requests: list[tuple[int, Request]]) -> None:
        """Takes requests under the client's own numbers; refused ones come back by `poll` too."""
        for number, request in requests:
            try:
                self._turns.ask(request, partial(self._mailbox.put, client, number))
            except PolicyError as error:
                self._mailbox.put(client, number, error)

    def poll(self, client: str, timeout_s: float = 10.0) -> list[tuple[int, Result]]:
        """Results of the client's requests since the last poll; waits until there are some or the time is over."""
        found = self._mailbox.collect(client, timeout_s)
        if not found and self._child.gone is not None:
            raise self._child.gone
        return found

    def release_many(self, sessions: list[str]) -> None:
        self._turns.release(sessions)

    def stage(self, version: int | None = None) -> int:
        """Brings the node's copy to the newest weights, or to `version`, while vLLM samples; the version that the copy is at."""
        if self._child.gone is not None:
            raise self._child.gone
        received = self._copy.bring(self._receiver, version)
        self._turns.tally.refused += len(received.refused)
        return received.version

    def apply(self) -> int:
        """Has vLLM load, between two of its steps, what the copy holds and it does not; the version served from the next token on, which is
        the acknowledgement. Another engine of the node may have brought the copy on since `stage`."""
        turns = self._turns
        with self._weights, self._copy.reading() as held:
            modules = to_load(self._loaded, held.digests)
            if modules or held.version != turns.served:
                load = {"do": "load", "file": str(held.file), "modules": modules, "recompute": self._recompute}
                done = self._child.call(load | {"version": held.version})
                with turns.lock:
                    self._loaded, turns.served = held.digests, held.version
                    turns.tally.record_swap(done["seconds"], sum(map(len, modules.values())))
            return turns.served

    def stats(self) -> dict[str, float]:
        """A reading, after a sign of life of the process that samples."""
        self._child.call({"do": "ping"})
        with self._turns.lock:
            return self._turns.tally.reading() | {"version": float(self._turns.served)}

    def close(self) -> None:
        self._child.close()


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

"""The engine's inside: continuous batching over the slots of one cache. One thread; `step` is one iteration.

Requests join and leave the batch between any two decode steps. A session keeps its slot, so a later turn computes only its
new tokens (promise 2 makes them a continuation); idle slots go to others, least recently used first, and are computed again
if their session returns. `swap` puts new weights in between steps with requests in flight: every token carries the version
that sampled it (promise 3). With `draft_tokens` a step may give a request several tokens, the same that as many steps
would have given (`speculative`). Differs from vLLM: whole slots instead of pages, whole prompts instead of chunks; sessions here
are short and alike.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion, Finish, SampledTokens
from etude.learn.engine.drafting import Drafter, LayerDrafter
from etude.learn.engine.forward import Forward
from etude.learn.engine.grouping import group_by_width
from etude.learn.engine.rows import StepBatch, TokenRows
from etude.learn.engine.running import RunningRequest, check
from etude.learn.engine.sampling import NOT_FINITE, noise
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.slots import PrefixTable, SlotTable
from etude.learn.engine.speculative import Speculation
from etude.learn.engine.stats import EngineStats
from etude.learn.engine.swap import load_checked, round_weights
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import hold_rounded, multiply_experts
from etude.learn.model.device import device_of
from etude.learn.weights.state import State

# A prefill call costs as much as a decode step however small it is, so newcomers wait for company until the row-steps they
# missed have cost that much too (the ski-rental rule, within twice the best possible), but never longer than this.
MAX_WAIT_STEPS = 8
# Keeps the seeds that requests without one get apart for engines of different seeds.
SEED_STRIDE = 2**32

Finished = list[tuple[int, Completion]]


class EngineCore:
    """Samples from `model`, which it owns from now on (`swap` writes to it)."""

    def __init__(
        self,
        model: CausalLM,
        settings: EngineSettings,
        *,
        version: int = 0,
        drafter: Drafter | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        config = model.config
        self.model = model.to(device_of(settings.device, "engine.device")).eval()
        self.settings, self.version = settings, version
        self._round()
        if settings.compute == "bf16":
            hold_rounded(self.model)
        multiply_experts(self.model, settings.expert_products)
        self.max_len = min(settings.max_len, config.context_length)
        weight = model.embed.weight
        cached = torch.bfloat16 if settings.compute == "bf16" else weight.dtype
        self.cache = model.new_cache(settings.max_slots, self.max_len, cached)
        self.rows = TokenRows(
            settings.max_slots, self.max_len, len(config.moe_layers), config.experts_per_token, model.route_dtype
        )
        self._forward = Forward(model, self.cache, self.rows)
        self.stats = EngineStats()
        self._speculation = None
        if settings.draft_tokens:
            self.rows.keep_hidden(weight)
            drafter = drafter or LayerDrafter(model, self.cache, self.rows, settings.draft_tokens)
            self._speculation = Speculation(self._forward, drafter, settings, self.stats)
        self._clock = clock
        self._table = SlotTable(settings.max_slots)
        self._prefixes = PrefixTable()
        self._waiting: deque[RunningRequest] = deque()
        self._running: dict[int, RunningRequest] = {}  # by slot
        self._batch: StepBatch | None = None
        self._tickets = 0
        self._waited_steps = self._missed_rows = 0  # since newcomers began to wait

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._waiting or self._running)

    @property
    def in_flight(self) -> int:
        """Requests that are waiting or running."""
        return len(self._waiting) + len(self._running)

    def submit(self, request: Request) -> int:
        """A ticket for the completion. Raises PolicyError (infra=False) for a request that can't be served."""
        check(request, self.model.config.vocab_size, self.max_len, drafts=self._speculation is not None)
        self._tickets += 1
        seed = request.seed if request.seed is not None else self.settings.seed * SEED_STRIDE + self._tickets
        self._waiting.append(RunningRequest(self._tickets, request, seed, self._clock()))
        self.stats.requests += 1
        return self._tickets

    def abort(self, ticket: int) -> Completion | None:
        """Ends a request now; what it sampled so far. None if it is over already."""
        for waiting in self._waiting:
            if waiting.ticket == ticket:
                self._waiting.remove(waiting)
                self.stats.aborted += 1
                return waiting.nothing(self._clock())
        for slot, running in self._running.items():
            if running.ticket == ticket:
                return self._finish(slot, "abort")[1]
        return None

    def sampled(self, ticket: int, start: int) -> SampledTokens | None:
        """What a running request has sampled so far, from its `start`-th token on; None for one that waits or is over."""
        running = next((running for running in self._running.values() if running.ticket == ticket), None)
        if running is None:
            return None
        slot = running.slot
        return self.rows.sampled(slot, running.prompt_tokens + start, int(self.cache.lengths[slot]) + 1)

    def release(self, session: str) -> None:
        """The session will not continue: its slot is free for others."""
        self._table.release(session)

    @torch.inference_mode()
    def step(self) -> Finished:
        """Let waiting requests in, decode one token for every running one; the requests that ended, with their tickets."""
        finished: Finished = []
        if self._due():
            self._waited_steps = self._missed_rows = 0
            start = self._clock()
            while joining := self._join():
                for group in group_by_width(joining, lambda running: running.new_tokens):
                    finished += self._prefill(group)
            self.stats.prefill_s += self._clock() - start
        if self._running:
            start = self._clock()
            finished += self._decode()
            self.stats.decode_s += self._clock() - start
        return finished

    @torch.inference_mode()
    def swap(self, state: State, version: int) -> None:
        """New weights from the next token on. Raises ValueError, before anything is written, if they don't fit the model or are not finite."""
        start = self._clock()
        load_checked(self.model, state)
        self._round()
        self.version = version
        self._prefixes.clear()
        if self._speculation is not None:
            self._speculation.renew()
        if self.settings.swap_cache == "recompute":
            self._recompute()
        self.stats.swaps += 1
        self.stats.swap_s += self._clock() - start

    def _round(self) -> None:
        """To what the settings say is served."""
        if self.settings.weights != "exact":
            round_weights(self.model, self.settings.weights)

    # -- letting requests in

    def _due(self) -> bool:
        """Whether waiting requests have waited long enough for company."""
        room = min(len(self._waiting), self.settings.max_batch - len(self._running))
        if room == 0:
            return False
        self._waited_steps += 1
        self._missed_rows += room
        return self._missed_rows >= len(self._running) or self._waited_steps > MAX_WAIT_STEPS

    def _join(self) -> list[RunningRequest]:
        """Waiting requests that get a slot now, first come first served; those whose prompt another is about to compute wait."""
        joining: list[RunningRequest] = []
        fresh: set[int] = set()
        for waiting in list(self._waiting):
            if len(self._running) + len(joining) >= self.settings.max_batch:
                break
            session, prompt = waiting.request.session_id, waiting.request.prompt_ids
            source = None
            if self.settings.share_prefix and self._table.slot_of(session) is None:
                source = self._prefixes.find(prompt)
                if source in fresh:
                    continue
            taken = self._table.take(session)
            if taken is None:
                continue  # no slot, or the session's own is busy with an earlier turn
            self._waiting.remove(waiting)
            self._enter(waiting, *taken, source)
            fresh.add(waiting.slot)
            joining.append(waiting)
        self.stats.evictions = self._table.evictions
        return joining

    def _enter(self, running: RunningRequest, slot: int, sticky: bool, source: int | None) -> None:
        """Keep or copy what the slot can use of the prompt, and lay out the rest for the prefill."""
        request, rows, base = running.request, self.rows, self.rows.place(slot)
        prompt = torch.tensor(request.prompt_ids, dtype=torch.long)
        running.slot = slot
        if sticky:
            held = int(self.cache.lengths[slot])
            running.cached = self._common(slot, prompt)
            # A prompt that leaves the held tokens (a self-summary) begins a segment, which has no routes yet: report them all.
            running.route_start = running.cached if running.cached == held else 0
            self.stats.cached_tokens += running.cached
        elif source is not None:
            running.cached = self._common(source, prompt)
            self.cache.copy(source, slot, running.cached)
            rows.copy(source, slot, running.cached)
            if self._speculation is not None:
                self._speculation.drafter.copy(source, slot, running.cached)
            self.stats.shared_tokens += running.cached
        self.cache.clear(slot, running.cached)
        running.cached = int(self.cache.lengths[slot])  # some caches keep all or nothing
        if self._speculation is not None:
            self._speculation.drafter.keep(slot, running.cached)
        if not sticky or running.cached == 0:
            self._prefixes.add(slot, request.prompt_ids)  # all of it is from the current weights
        rows.ids[base : base + len(prompt)] = prompt
        last = min(len(prompt) + request.max_tokens, self.max_len) - 1
        count = last + 1 - len(prompt)
        rows.noise[base + len(prompt) : base + last + 1] = torch.from_numpy(noise(running.seed, len(prompt), count))
        rows.end[slot] = base + last
        rows.temperature[slot], rows.top_p[slot] = request.temperature, request.extra.get("top_p", 1.0)
        rows.set_stops(slot, request.stop_ids)
        rows.set_top(slot, request.extra.get("top_logprobs", 0))
        self.stats.prompt_tokens += len(prompt)
        self.stats.prefilled_tokens += running.new_tokens

    def _common(self, slot: int, prompt: Tensor) -> int:
        """How many tokens of `prompt` the slot's cache holds; at most all but one, for the last must be forwarded."""
        length = min(int(self.cache.lengths[slot]), len(prompt) - 1)
        differ = (self.rows.tokens(slot, 0, length) != prompt[:length]).nonzero()
        return int(differ[0]) if len(differ) else length

    # -- computing

    def _prefill(self, group: list[RunningRequest]) -> Finished:
        """Forward the new prompt tokens of several requests at once and sample their first tokens."""
        group = sorted(group, key=lambda running: running.slot)
        slots = [running.slot for running in group]
        logits = self._forward.prefill(slots, [running.prompt_tokens for running in group], keep_routes=True)
        batch = StepBatch.gather(self.rows, slots, self.cache.lengths[slots])
        done = self._forward.draw(logits, batch, self.version)
        self._running.update((running.slot, running) for running in group)
        self._batch = None
        self.stats.prefill_calls += 1
        self.stats.sampled_tokens += len(group)
        return self._end(batch, done)

    def _decode(self) -> Finished:
        """One token for every running request."""
        if self._batch is None:
            slots = sorted(self._running)
            self._batch = StepBatch.gather(self.rows, slots, self.cache.lengths[slots] + 1)
        batch = self._batch
        count = 0 if self._speculation is None else self._speculation.count(batch)
        if self._speculation is not None and count:
            done, sampled = self._speculation.decode(batch, count, self.version)
        else:
            done, sampled = self._forward.decode(batch, self.version), len(batch)
        self.stats.decode_steps += 1
        self.stats.decode_rows += len(batch)
        self.stats.sampled_tokens += sampled
        return self._end(batch, done)

    def _end(self, batch: StepBatch, done: Tensor) -> Finished:
        """Completions of the rows that are done."""
        if not bool(done.any()):
            return []
        stopped = batch.over(batch.last)[done].tolist()
        slots = batch.slots[done].tolist()
        broken = self._forward.broken
        return [
            self._give_up(slot) if slot in broken else self._finish(slot, "stop" if stop else "length")
            for slot, stop in zip(slots, stopped, strict=True)
        ]

    def _finish(self, slot: int, finish: Finish) -> tuple[int, Completion]:
        running = self._running.pop(slot)
        completion = running.completion(self.rows, int(self.cache.lengths[slot]), finish, self._clock())
        self._table.park(slot)
        self._batch = None
        assert completion.tokens is not None
        versions = completion.tokens.versions
        self.stats.inflight_swaps += versions[0] != versions[-1]
        self.stats.finished += finish != "abort"
        self.stats.aborted += finish == "abort"
        return running.ticket, completion

    def _give_up(self, slot: int) -> tuple[int, Completion]:
        """A request whose logits are not finite ends without its last token, and its session's slot is zeroed: masked entries are multiplied
        by probability 0, which NaN survives."""
        running, now_s = self._running.pop(slot), self._clock()
        why = f"session {running.request.session_id}: {NOT_FINITE}"
        completion = running.completion(self.rows, int(self.cache.lengths[slot]) - 1, "abort", now_s, why)
        self._table.park(slot)
        self._table.release(running.request.session_id)
        self._prefixes.forget(slot)
        self.cache.clear(slot)
        self._forward.wipe(slot)
        if self._speculation is not None:
            self._speculation.drafter.keep(slot, 0)
        self._batch = None
        self.stats.aborted += 1
        return running.ticket, completion

    def _recompute(self) -> None:
        """Compute the cached tokens of running requests again under the new weights, forget those of idle sessions.

        Routes stay as they were when the tokens were sampled: they are what the trainer replays.
        """
        lengths = {slot: int(self.cache.lengths[slot]) for slot in self._running}
        self.cache.forget()
        if self._speculation is not None:
            self._speculation.drafter.clear()
        for group in group_by_width(list(self._running.values()), lambda running: lengths[running.slot]):
            slots = sorted(running.slot for running in group)
            self._forward.prefill(slots, [lengths[slot] for slot in slots], keep_routes=False)

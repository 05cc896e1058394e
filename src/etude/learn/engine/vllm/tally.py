"""What vLLM did for us, in counts and seconds, under the names that our engine's reading has where they mean the same."""

from __future__ import annotations

from collections.abc import Callable

from etude.agent.policy.protocol import PolicyError
from etude.core.trace.completion import Completion


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

    def ended(self, result: Completion | PolicyError) -> None:
        self._advance()
        self._in_flight -= 1
        if isinstance(result, Completion) and result.tokens is not None:
            versions = result.tokens.versions
            self._counts["finished"] += 1
            self._counts["cached_tokens"] += result.usage.cached_tokens
            self._counts["sampled_tokens"] += len(versions)
            self._counts["inflight_swaps"] += len(set(versions)) > 1

    def swapped(self, seconds: float, tensors: int) -> None:
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

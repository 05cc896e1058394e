"""What the engine did, in counts and seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class EngineStats:
    """Counters since the start; `reading` adds the rates."""

    requests: int = 0
    finished: int = 0
    aborted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0  # prompt tokens found in the session's own slot
    shared_tokens: int = 0  # prompt tokens copied from another session that starts alike
    prefilled_tokens: int = 0
    sampled_tokens: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    prefill_calls: int = 0
    evictions: int = 0
    swaps: int = 0
    inflight_swaps: int = 0  # requests that sampled under more than one version
    decode_s: float = 0.0
    prefill_s: float = 0.0
    swap_s: float = 0.0

    def reading(self) -> dict[str, float]:
        """All counters, with tokens a busy second, mean batch, and the share of prompt tokens that were not computed."""
        busy_s = self.decode_s + self.prefill_s
        spared = self.cached_tokens + self.shared_tokens
        return {
            **asdict(self),
            "tokens_per_s": self.sampled_tokens / busy_s if busy_s else 0.0,
            "mean_batch": self.decode_rows / self.decode_steps if self.decode_steps else 0.0,
            "cache_hit": spared / self.prompt_tokens if self.prompt_tokens else 0.0,
        }

"""What the engine did, in counts and seconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field


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
    verify_calls: int = 0  # decode steps that checked drafts
    drafted: list[int] = field(default_factory=list)  # by depth: drafts that stood where a token was still wanted
    accepted: list[int] = field(default_factory=list)  # by depth: those that were the token

    def record_verification(self, drafted: int, accepted: int) -> None:
        """One row's drafts: `drafted` of them counted, the first `accepted` right."""
        missing = [0] * (drafted - len(self.drafted))
        self.drafted += missing
        self.accepted += missing
        for depth in range(drafted):
            self.drafted[depth] += 1
            self.accepted[depth] += depth < accepted

    def reading(self) -> dict[str, float]:
        """All counters, with tokens a busy second, mean batch, and the share of prompt tokens that were not computed.

        Drafts are summed over depths; `acceptance_<depth>` is the share of the drafts of one depth (from 1) that were kept.
        """
        busy_s = self.decode_s + self.prefill_s
        spared = self.cached_tokens + self.shared_tokens
        depths = zip(self.accepted, self.drafted, strict=True)
        return {
            **asdict(self),
            "drafted": sum(self.drafted),
            "accepted": sum(self.accepted),
            **{f"acceptance_{depth}": kept / made for depth, (kept, made) in enumerate(depths, 1)},
            "tokens_per_s": self.sampled_tokens / busy_s if busy_s else 0.0,
            "mean_batch": self.decode_rows / self.decode_steps if self.decode_steps else 0.0,
            "cache_hit": spared / self.prompt_tokens if self.prompt_tokens else 0.0,
        }

"""What the server did, as Prometheus text (exposition format 0.0.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

# Seconds: from a short answer of a small model to a long one of a busy server.
BOUNDS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


@dataclass
class LatencyHistogram:
    """Observations by their upper bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[next((i for i, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))] += 1
        self.sum_s += seconds

    def lines(self, name: str) -> list[str]:
        rows, total = [f"# TYPE {name} histogram"], 0
        for bound, count in zip([*map(str, BOUNDS_S), "+Inf"], self.counts, strict=True):
            total += count
            rows.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return [*rows, f"{name}_sum {self.sum_s:.6f}", f"{name}_count {total}"]


@dataclass
class ServeMetrics:
    """Counts since the start."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)  # by endpoint and HTTP status
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    request_s: LatencyHistogram = field(default_factory=LatencyHistogram)
    first_token_s: LatencyHistogram = field(default_factory=LatencyHistogram)

    def count(self, endpoint: str, status: int, seconds: float) -> None:
        self.requests[endpoint, status] += 1
        if status == 200:
            self.request_s.observe(seconds)

    def text(self, in_flight: int, engine: Mapping[str, float]) -> str:
        """All of it; `engine` is `EngineStats.reading`."""
        rows = ["# TYPE etude_requests_total counter"]
        rows += [
            f'etude_requests_total{{endpoint="{endpoint}",status="{status}"}} {count}'
            for (endpoint, status), count in sorted(self.requests.items())
        ]
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens"):
            rows += [f"# TYPE etude_{name}_total counter", f"etude_{name}_total {getattr(self, name)}"]
        rows += ["# TYPE etude_answers_in_progress gauge", f"etude_answers_in_progress {in_flight}"]
        rows += self.request_s.lines("etude_request_seconds")
        rows += self.first_token_s.lines("etude_first_token_seconds")
        for name, value in engine.items():
            if isinstance(value, int | float):
                rows += [f"# TYPE etude_engine_{name} gauge", f"etude_engine_{name} {value}"]
        return "\n".join(rows) + "\n"

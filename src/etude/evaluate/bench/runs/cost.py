"""Tokens as dollars, by the price list of the suite. Where the endpoint did not say, there is no figure, never a guess."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.prices import Price
from etude.agent.policy.protocol import FatalStageError
from etude.core.trace.completion import Usage


class UsageMissing(FatalStageError):
    """A budget was set, and the endpoint does not say what it spends."""


def dollars_of_usage(price: Price, usage: Usage) -> float | None:
    """One turn; None where it came without usage, or with one that does not add up."""
    if usage.input_tokens + usage.output_tokens == 0:
        return None
    return _dollars(price, usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, usage.output_tokens)


def dollars_of(price: Price, outcome: Outcome) -> float | None:
    """One attempt: the try that was scored."""
    if outcome.input_tokens is None or outcome.output_tokens is None:
        return None
    read, written = outcome.cached_tokens or 0, outcome.cache_write_tokens or 0
    return _dollars(price, outcome.input_tokens, read, written, outcome.output_tokens)


def cost_by_policy(path: Path, price_of: Callable[[str], Price | None]) -> dict[str, float]:
    """Dollars by policy over all turns in `usage.jsonl`, lost tries included. A line torn by a kill is left out."""
    found: dict[str, float] = {}
    for row in usage_rows(path):
        key = row["policy"]
        price = price_of(key)
        if price is None:
            continue
        usage = Usage(**{name: value for name, value in row.items() if name not in ("policy", "session")})
        found[key] = found.get(key, 0.0) + (dollars_of_usage(price, usage) or 0.0)
    return found


def usage_rows(path: Path) -> list[dict[str, Any]]:
    """The whole lines of `usage.jsonl`."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            rows.append(json.loads(line))
        except (json.JSONDecodeError, RecursionError):
            continue  # torn by a kill: at most one line each time, and its turn was lost with its attempt
    return rows


def _dollars(price: Price, read: int, cached: int, written: int, answered: int) -> float | None:
    if cached + written > read:
        return None  # the endpoint counts cached tokens in addition to the prompt: its charge is unknown
    return price.dollars(read, cached, written, answered)

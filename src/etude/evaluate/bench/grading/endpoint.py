"""A judge's endpoint and its price, named as policies are: `[NAME=]URL#MODEL`."""

from __future__ import annotations

import re
from datetime import date

from etude.agent.policy.openai import OpenAIPolicy
from etude.core.trace.completion import Usage
from etude.evaluate.bench.grading.judge import Price
from etude.evaluate.bench.prices import Prices

_WORD = re.compile(r"(?:(?P<name>[\w.-]+)=)?(?P<url>https?://[^#\s]+)#(?P<model>\S+)")


class NoJudge(ValueError):
    """The word names no endpoint or checkpoint that can be asked."""


def client_of(word: str, key_env: str, *, option: str = "--judge", timeout_s: float = 300.0) -> OpenAIPolicy:
    """The client of an endpoint named in a word; the caller closes it. Raises NoJudge."""
    match = _WORD.fullmatch(word)
    if match is None:
        raise NoJudge(
            f"{option} {word}: write [NAME=]URL#MODEL, for instance http://127.0.0.1:8000/v1#qwen3-coder, or checkpoint:DIR"
        )
    return OpenAIPolicy(match["model"], base_url=match["url"], api_key_env=key_env, timeout_s=timeout_s, command="")


def price_of(prices: Prices, model: str) -> Price:
    """Dollars by a price list as of today; None for a model that it does not name, and where usage does not add up."""
    price = prices.at(model, date.today())

    def dollars(usage: Usage) -> float | None:
        if price is None or usage.cached_tokens > usage.input_tokens:
            return None
        return price.dollars(usage.input_tokens, usage.cached_tokens, 0, usage.output_tokens)

    return dollars

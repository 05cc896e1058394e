"""A judge behind an OpenAI-compatible endpoint, named as policies are: `[NAME=]URL#MODEL`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

from etude.bench.grading.judge import Judge
from etude.bench.grading.judgement import JudgementFile
from etude.bench.suites.prices import Prices
from etude.policy.openai import OpenAIPolicy
from etude.trace.completion import Usage

_WORD = re.compile(r"(?:(?P<name>[\w.-]+)=)?(?P<url>https?://[^#\s]+)#(?P<model>\S+)")


class NoJudge(ValueError):
    """A word that names no judge."""


def open_judge(
    word: str,
    file: JudgementFile,
    *,
    key_env: str,
    prices: Prices = Prices(),
    timeout_s: float = 300.0,
    concurrency: int = 4,
) -> tuple[Judge, OpenAIPolicy]:
    """The judge, and its client, which the caller closes. Raises NoJudge."""
    client = client_of(word, key_env, timeout_s=timeout_s)
    return Judge(client, file, price=_price(prices, client.name), concurrency=concurrency), client


def client_of(word: str, key_env: str, *, option: str = "--judge", timeout_s: float = 300.0) -> OpenAIPolicy:
    """The client of an endpoint named in a word. Raises NoJudge."""
    match = _WORD.fullmatch(word)
    if match is None:
        raise NoJudge(f"{option} {word}: write [NAME=]URL#MODEL, for instance http://127.0.0.1:8000/v1#qwen3-coder")
    return OpenAIPolicy(match["model"], base_url=match["url"], api_key_env=key_env, timeout_s=timeout_s)


def _price(prices: Prices, model: str) -> Callable[[Usage], float | None]:
    """Dollars by the suite's list as it stands today; None for a model that it does not name."""
    price = prices.at(model, date.today())

    def dollars(usage: Usage) -> float | None:
        if price is None or usage.cached_tokens > usage.input_tokens:
            return None
        return price.dollars(usage.input_tokens, usage.cached_tokens, 0, usage.output_tokens)

    return dollars

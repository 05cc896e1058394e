"""What a model's tokens cost, and since when: `prices.toml` of a suite.

    [[prices]]
    model = "composer-2*"          # a glob over the model's name
    from = 2026-03-19              # holds from this day until a later entry of the same glob
    input = 0.5                    # dollars per million tokens: fresh input, read from cache, written to cache, output
    cache_read = 0.2
    cache_write = 0.5
    output = 2.5

Cost follows CursorBench: published prices applied to the tokens that were really used. Of the entries that match a name the
most telling glob counts (most characters that are no wildcard), of its entries the latest that is in force.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import tomli_w

from etude.bench.suites.errors import SuiteError

NAME = "prices.toml"
MILLION = 1_000_000


@dataclass(frozen=True)
class Price:
    """Dollars per million tokens of the models that `model` matches, from a day on."""

    model: str
    since: date
    input: float
    cache_read: float
    cache_write: float
    output: float

    def dollars(self, input_tokens: int, cached_tokens: int, cache_write_tokens: int, output_tokens: int) -> float:
        """`input_tokens` are all of them; those read from and written to the cache are part of it."""
        fresh = input_tokens - cached_tokens - cache_write_tokens
        if min(fresh, cached_tokens, cache_write_tokens, output_tokens) < 0:
            raise ValueError(
                f"{input_tokens} input tokens can't hold {cached_tokens} read from and {cache_write_tokens} written to a cache"
            )
        cached = cached_tokens * self.cache_read + cache_write_tokens * self.cache_write
        return (fresh * self.input + cached + output_tokens * self.output) / MILLION


@dataclass(frozen=True)
class Prices:
    """The price list of a suite."""

    entries: tuple[Price, ...] = ()

    def at(self, model: str, day: date) -> Price | None:
        """The price of a model on a day; None where the list names none."""
        found = [price for price in self.entries if price.since <= day and fnmatchcase(model, price.model)]
        return max(found, key=lambda price: (_telling(price.model), price.since), default=None)


def read_prices(path: Path) -> Prices:
    """The list in a file; empty if there is none. Raises SuiteError."""
    if not path.is_file():
        return Prices()
    try:
        rows = tomllib.loads(path.read_text(encoding="utf-8")).get("prices", [])
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path} does not parse: {error}") from error
    return Prices(tuple(_price(row, f"{path}, entry {number}") for number, row in enumerate(rows, 1)))


def write_prices(path: Path, prices: Prices) -> None:
    rows = [{("from" if key == "since" else key): value for key, value in vars(p).items()} for p in prices.entries]
    path.write_text(tomli_w.dumps({"prices": rows}), encoding="utf-8")


def _price(row: Any, place: str) -> Price:
    names = {("from" if field.name == "since" else field.name) for field in fields(Price)}
    if not isinstance(row, dict) or set(row) != names:
        wrong = sorted(set(row) ^ names) if isinstance(row, dict) else row
        raise SuiteError(f"{place}: a price has {', '.join(sorted(names))}; missing or unknown: {wrong}")
    if not isinstance(row["model"], str) or type(row["from"]) is not date:
        raise SuiteError(
            f"{place}: model is a text and from a day such as 2026-03-19, not {row['model']!r}, {row['from']!r}"
        )
    amounts = {key: row[key] for key in ("input", "cache_read", "cache_write", "output")}
    for key, value in amounts.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise SuiteError(f"{place}: {key} = {value!r} is no amount of dollars")
    return Price(row["model"], row["from"], **{key: float(value) for key, value in amounts.items()})


def _telling(glob: str) -> int:
    return sum(char not in "*?[]" for char in glob)

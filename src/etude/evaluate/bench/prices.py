"""What a model's tokens cost, and since when: `prices.toml` of a suite, and the list that comes with the program under it.

    [[prices]]
    model = "some-model-*"         # a glob over the model's name
    from = 2026-03-19              # holds from this day until a later entry of the same glob
    input = 0.5                    # dollars per million tokens: fresh input, read from cache, written to cache, output
    cache_read = 0.05
    cache_write = 0.5              # where writing is not billed apart: the price of fresh input
    output = 2.5
    source = "where the figures were read, and when"    # may be left out

Cost follows CursorBench: published prices applied to the tokens that were really used. Of the entries that match a name the
most telling glob counts (most characters that are no wildcard), of its entries the latest that is in force.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import tomli_w

from etude.core import bounded_toml
from etude.evaluate.bench.errors import SuiteError

NAME = "prices.toml"
SHIPPED = Path(__file__).parent / NAME
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
    source: str = ""

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
    """The price list of a suite. `beneath`: the list that is asked where this one names no price."""

    entries: tuple[Price, ...] = ()
    beneath: Prices | None = None

    def at(self, model: str, day: date) -> Price | None:
        """The price of a model on a day; None where no list names one."""
        found = [price for price in self.entries if price.since <= day and fnmatchcase(model, price.model)]
        if not found and self.beneath is not None:
            return self.beneath.at(model, day)
        return max(found, key=lambda price: (_telling(price.model), price.since), default=None)


@cache
def shipped_prices() -> Prices:
    """The list that comes with the program: published prices, each with its day and where it was read."""
    return read_prices(SHIPPED)


def entry_for(model: str, day: date) -> str:
    """A whole list in one line of TOML with an entry for a model, whose amounts a person fills in."""
    amounts = ", ".join(f"{key} = 0.0" for key in ("input", "cache_read", "cache_write", "output"))
    named = tomli_w.dumps({"model": model, "from": day}).strip().replace("\n", ", ")
    return f"prices = [{{{named}, {amounts}}}]"


def priced_by(model: str) -> str:
    """What to do about a model that no list names."""
    return (
        f"give --prices FILE with its dollars per million tokens, such as {entry_for(model, date.today())}; "
        "zeros are right for a server of your own"
    )


def read_prices(path: Path) -> Prices:
    """The list in a file; empty if there is none. Raises SuiteError."""
    if not path.is_file():
        return Prices()
    try:
        document = bounded_toml.loads(path.read_text(encoding="utf-8"))
    except (bounded_toml.TomlRefused, UnicodeDecodeError) as error:
        raise SuiteError(f"{path} does not parse: {error}") from error
    rows = document.get("prices", [])
    if set(document) - {"prices"} or not isinstance(rows, list):
        raise SuiteError(f"{path}: a price list has [[prices]] tables and nothing else, not {', '.join(document)}")
    return Prices(tuple(_price(row, f"{path}, entry {number}") for number, row in enumerate(rows, 1)))


def write_prices(path: Path, prices: Prices) -> None:
    """The list's own entries, not those beneath it."""
    rows = [{("from" if k == "since" else k): v for k, v in vars(p).items() if v != ""} for p in prices.entries]
    path.write_text(tomli_w.dumps({"prices": rows}), encoding="utf-8")


def _price(row: Any, place: str) -> Price:
    names = {("from" if field.name == "since" else field.name) for field in fields(Price)}
    if not isinstance(row, dict) or set(row) | {"source"} != names:
        wrong = sorted((set(row) ^ names) - {"source"}) if isinstance(row, dict) else row
        raise SuiteError(
            f"{place}: a price has {', '.join(sorted(names))}; missing or unknown: {wrong}; an example, in dollars per million "
            f"tokens: {entry_for('NAME', date.today())}"
        )
    model, since, source = row["model"], row["from"], row.get("source", "")
    if not isinstance(model, str) or not isinstance(source, str) or type(since) is not date:
        raise SuiteError(
            f"{place}: model and source are texts and from is a day such as 2026-03-19, not {model!r}, {source!r}, {since!r}"
        )
    amounts = {key: row[key] for key in ("input", "cache_read", "cache_write", "output")}
    for key, value in amounts.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise SuiteError(f"{place}: {key} = {value!r} is no amount of dollars")
    return Price(model, since, **{key: float(value) for key, value in amounts.items()}, source=source)


def _telling(glob: str) -> int:
    return sum(char not in "*?[]" for char in glob)

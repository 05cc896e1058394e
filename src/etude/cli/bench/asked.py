"""The options of `etude bench run` that say how policies are asked and what they cost."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.option import preset_choice

if TYPE_CHECKING:
    from etude.evaluate.bench.prices import Prices


class PriceError(Exception):
    """Prices were given twice, or by half."""


def _how(*names: str, help: str, **limits: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="How policies are asked", **limits)


def _money(*names: str, help: str, **limits: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel="Money", **limits)


Efforts = Annotated[
    str,
    _how(
        "--effort",
        metavar="E[,E…]",
        help="Reasoning effort: low, medium or high; repeatable, each is a separate participant.",
    ),
]
Harnesses = Annotated[
    str,
    _how(
        "--harness",
        metavar="H[,H…]",
        help="Harness that runs the policies: etude or mini-swe-agent; repeatable, each is a separate participant.",
    ),
]
Preset = Annotated[
    str | None, _how("--preset", help="Tools and prompts of endpoints and checkpoints.", **preset_choice())
]
Temperature = Annotated[float, _how("--temperature", min=0.0, help="Sampling temperature.")]
Context = Annotated[
    int | None,
    _how("--context", min=4096, help="The models' window in tokens; sessions summarize themselves at 60% of it."),
]
KeyEnv = Annotated[str, _how("--key-env", metavar="VARIABLE", help="The environment variable with the API key.")]
Timeout = Annotated[float, _how("--timeout", min=1.0, help="Seconds to wait for one answer.")]
Limit = Annotated[float, _how("--attempt-limit", min=10.0, help="Seconds that one attempt may take.")]
Omit = Annotated[
    list[str] | None,
    _how(
        "--omit",
        metavar="FIELD",
        help="Request field that the endpoints refuse, e.g. seed; it is left out; repeatable.",
    ),
]
TokenField = Annotated[
    str,
    _how(
        "--max-tokens-field",
        help="Request field for the limit of answer tokens; newer OpenAI models use max_completion_tokens.",
    ),
]
MaxCost = Annotated[
    float | None,
    _money(
        "--max-cost",
        metavar="DOLLARS",
        min=0.0,
        help="Maximum dollars for all runs in --out; no attempt starts that could exceed it.",
    ),
]
PriceFile = Annotated[
    Path | None, _money("--prices", metavar="FILE", help="A prices.toml that counts before the suite's own.")
]
PriceIn = Annotated[float | None, _money("--price-in", min=0.0, help="Dollars per million input tokens.")]
PriceOut = Annotated[float | None, _money("--price-out", min=0.0, help="Dollars per million output tokens.")]
PriceCached = Annotated[
    float | None, _money("--price-cached", min=0.0, help="Dollars per million tokens read from a cache. Default: as input.")
]  # fmt: skip


def prices_given(
    file: Path | None, fresh: float | None, answered: float | None, cached: float | None, today: date
) -> Prices:
    """The list of a file, or one price for every model asked; empty where nothing was said. Raises PriceError, SuiteError."""
    from etude.evaluate.bench.prices import Price, Prices, read_prices

    if file is None and fresh is None and answered is None and cached is None:
        return Prices()
    if file is None:
        if fresh is None or answered is None:
            raise PriceError("a price is both --price-in and --price-out, in dollars per million tokens")
        # Writing to a cache costs as much as input by default; a --prices file can set another price.
        return Prices((Price("*", today, fresh, fresh if cached is None else cached, fresh, answered),))
    if not (fresh is None and answered is None and cached is None):
        raise PriceError(f"--prices {file} and --price-in, --price-out, --price-cached are two lists: give one")
    if not file.is_file():
        raise PriceError(f"--prices {file}: there is no such file")
    return read_prices(file)

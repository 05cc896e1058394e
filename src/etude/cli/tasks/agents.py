"""Options of the verbs that install projects: who sets goals, who builds, who judges, and at what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from etude.pipeline.run.install_agents import Agents

TURNS, TOKENS, MINUTES = 60, 1_000_000, 30.0  # defaults of one session
_WORD = "[NAME=]URL#MODEL"
Builders = Annotated[
    list[str] | None,
    typer.Option(
        "--builder",
        metavar=_WORD,
        help="Builder that installs projects: rules (the default), an endpoint, checkpoint:DIR or recorded:DIR.",
    ),
]
Setter = Annotated[
    str | None,
    typer.Option("--setter", metavar=_WORD, help="Model that proposes the goals. Default: the builder itself."),
]
OutputJudge = Annotated[
    str | None,
    typer.Option(
        "--judge", metavar=_WORD, help="Judge that compares outputs with their descriptions. Default: patterns."
    ),
]
AgentKey = Annotated[str, typer.Option("--key-env", help="The variable that holds the endpoints' key.")]
Turns = Annotated[int, typer.Option("--max-turns", min=1, help="Turns of one session with a model.")]
Tokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Tokens of one session, read and written.")]
Minutes = Annotated[float, typer.Option("--max-minutes", min=0.1, help="Minutes of one session.")]
Dollars = Annotated[float | None, typer.Option("--max-cost", min=0.0, help="Dollars of one session.")]
PriceList = Annotated[Path | None, typer.Option("--prices", metavar="FILE", help="A price list over the shipped one.")]
Sessions = Annotated[Path | None, typer.Option("--sessions", metavar="DIR", help="Keep the models' sessions.")]


def agents(
    builders: list[str] | None,
    setter: str | None,
    judge: str | None,
    key_env: str,
    *,
    turns: int = TURNS,
    tokens: int = TOKENS,
    minutes: float = MINUTES,
    dollars: float | None = None,
    prices: Path | None = None,
    sessions: Path | None = None,
) -> Agents:
    """Raises SuiteError for a price list that is none."""
    from etude.evaluate.bench.errors import SuiteError
    from etude.evaluate.bench.prices import Prices, read_prices
    from etude.pipeline.run.install_agents import Agents
    from etude.tasks.generate.install.agents.spending import SessionLimits

    if prices is not None and not prices.is_file():
        raise SuiteError(f"--prices {prices}: there is no such file")
    limits = SessionLimits(turns, tokens, minutes * 60, dollars)
    listed = read_prices(prices) if prices else Prices()
    return Agents(tuple(builders or ("rules",)), setter, judge, key_env, limits, sessions, listed)

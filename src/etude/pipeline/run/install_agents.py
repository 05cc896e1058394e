"""Who installs projects, by words of the command line: the rules, an endpoint, a checkpoint, or a recorded run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.entry import SessionHeader
from etude.core.trace.session import Recorder
from etude.core.trace.writer import SessionWriter
from etude.evaluate.bench.grading.endpoint import NoJudge
from etude.evaluate.bench.prices import Prices, priced_by, shipped_prices
from etude.evaluate.bench.runs.cost import dollars_of_usage
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.checkpoint_participant import CHECKPOINT
from etude.pipeline.run.judges import answering
from etude.sandbox.protocol import SandboxPool
from etude.tasks.generate.install.agents.builder import ModelBuilder
from etude.tasks.generate.install.agents.interview import Model
from etude.tasks.generate.install.agents.judge import ModelJudge
from etude.tasks.generate.install.agents.recorded import RecordedPolicy
from etude.tasks.generate.install.agents.setter import ModelSetter
from etude.tasks.generate.install.agents.spending import Bill, Dollars, SessionLimits
from etude.tasks.generate.install.installing import Installer
from etude.tasks.generate.install.pair import RULES

RECORDED = "recorded:"


class NoAgent(Exception):
    """An option names no policy that could install, or names one twice."""


@dataclass(frozen=True)
class Agents:
    """`setter`: who proposes goals for all builders; without one each builder's own model (or rules). `judge`: who compares outputs with
    descriptions; without one the goals' patterns do. `sessions`: where to keep what was said."""

    builders: tuple[str, ...] = (RULES,)
    setter: str | None = None
    judge: str | None = None
    key_env: str = "OPENAI_API_KEY"
    limits: SessionLimits = SessionLimits()
    sessions: Path | None = None
    prices: Prices = field(default_factory=Prices)

    def check(self) -> None:
        """Raises NoAgent for words that can't go together."""
        if twice := sorted({one for one in self.builders if self.builders.count(one) > 1}):
            raise NoAgent(f"--builder {twice[0]} is given twice: name each builder once")


@dataclass(frozen=True)
class InstallerPool:
    """Installers, one a builder, and the bills of those who serve all of them."""

    installers: tuple[Installer, ...]
    setter: Bill
    judge: Bill


@asynccontextmanager
async def crew(agents: Agents, recipe: Recipe, pool: SandboxPool, cache: Path) -> AsyncIterator[InstallerPool]:
    """Engines and connections are closed behind it. Raises NoAgent, NoJudge."""
    agents.check()
    async with AsyncExitStack() as stack:
        setting, judging = Bill(), Bill()

        async def model(word: str, option: str, bill: Bill) -> Model:
            return await stack.enter_async_context(_model(word, option, agents, recipe, bill))

        setter = None
        if agents.setter and agents.setter != RULES:
            setter = ModelSetter(await model(agents.setter, "--setter", setting), pool)
        judge = ModelJudge(await model(agents.judge, "--judge", judging)) if agents.judge else None
        found: list[Installer] = []
        for word in agents.builders:
            bill = Bill()
            if word == RULES:
                found.append(Installer(pool, cache, setter, None, judge, bill))
                continue
            own = await model(word, "--builder", bill)
            sets = setter or (None if agents.setter == RULES else ModelSetter(own, pool))
            found.append(Installer(pool, cache, sets, ModelBuilder(own, pool), judge, bill))
        _distinct(found)
        yield InstallerPool(tuple(found), setting, judging)


def _distinct(installers: Sequence[Installer]) -> None:
    names = [one.name for one in installers]
    if twice := sorted({one for one in names if names.count(one) > 1}):
        raise NoAgent(f"two builders are called {twice[0]!r}: tell them apart with --builder NAME=URL#MODEL")


@asynccontextmanager
async def _model(word: str, option: str, agents: Agents, recipe: Recipe, bill: Bill) -> AsyncIterator[Model]:
    name, what = _named(word)
    record = _recorder(agents.sessions)
    limits, settings = agents.limits, _settings(agents.limits)
    if what.startswith(RECORDED):
        folder = Path(what.removeprefix(RECORDED))
        if not folder.is_dir():
            raise NoAgent(f"{option} {word}: {folder} is no folder of recorded sessions")
        policy = RecordedPolicy(folder)
        yield Model(policy, settings, None, lambda usage: 0.0, limits, bill, record, name or policy.name)
        return
    if what.startswith(CHECKPOINT) and option != "--judge":
        async with _checkpoint(what.removeprefix(CHECKPOINT), option, settings, recipe) as model:
            yield replace(model, limits=limits, bill=bill, record=record, name=name or model.policy.name)
        return
    async with answering(what, agents.key_env, option) as policy:
        free = what.startswith(CHECKPOINT)
        dollars = _dollars(agents, policy.name, free=free)
        yield Model(policy, settings, None, dollars, limits, bill, record, name or policy.name)


def _named(word: str) -> tuple[str, str]:
    """`NAME=` and the rest; a query of an URL has an equals sign too."""
    name, equals, what = word.partition("=")
    return (name, what) if equals and "/" not in name and ":" not in name else ("", word)


def _settings(limits: SessionLimits) -> HarnessSettings:
    return HarnessSettings.full(
        preset="search_replace",
        max_turns=limits.turns,
        max_session_tokens=limits.tokens,
        max_command_s=min(600.0, limits.seconds),
        lint_delta_s=0.0,
    )


def _dollars(agents: Agents, model: str, *, free: bool) -> Dollars:
    """Raises NoAgent where a bound in dollars is asked for and no list names the model."""
    if free:
        return lambda usage: 0.0
    price = agents.prices.at(model, date.today()) or shipped_prices().at(model, date.today())
    if price is None:
        if agents.limits.dollars is not None:
            raise NoAgent(f"--max-cost needs to know what {model} costs, and no list names it: {priced_by(model)}")
        return lambda usage: None
    return lambda usage: dollars_of_usage(price, usage)


def _recorder(folder: Path | None):
    if folder is None:
        return Recorder

    def written(header: SessionHeader) -> Recorder:
        folder.mkdir(parents=True, exist_ok=True)
        path, number = folder / f"{header.session_id}.jsonl", 1
        while path.exists():  # of an earlier run: nothing is written over
            number += 1
            path = folder / f"{header.session_id}.{number}.jsonl"
        return SessionWriter(path, header)

    return written


@asynccontextmanager
async def _checkpoint(named: str, option: str, settings: HarnessSettings, recipe: Recipe) -> AsyncIterator[Model]:
    """The engine in this process: tokens, and the harness that its chat format was trained in."""
    from etude.learn.model.named_checkpoint import find_checkpoint

    try:
        folder, title = find_checkpoint(named)
    except ValueError as error:
        raise NoJudge(f"{option} {CHECKPOINT}{named}: {error}") from error
    if not (folder / "config.json").is_file():
        raise NoJudge(f"{option} {CHECKPOINT}{folder}: there is no config.json, so it is no checkpoint directory")
    from etude.agent.chat.load import load_renderer
    from etude.agent.chat.nano import NanoRenderer
    from etude.learn.engine.policy import EnginePolicy
    from etude.learn.engine.settings import EngineSettings
    from etude.learn.model.checkpoint import load_checkpoint

    renderer, model = load_renderer(folder), load_checkpoint(folder)
    if isinstance(renderer, NanoRenderer):
        settings, engine = recipe.harness.model_copy(update={"preset": "nano"}), recipe.engine
    else:
        engine = EngineSettings.model_validate({"max_slots": 2, "max_batch": 2, "max_len": model.config.context_length})
    policy = EnginePolicy.start(model, engine, name=title, renderer=renderer)
    try:
        yield Model(policy, settings, renderer, lambda usage: 0.0)
    finally:
        policy.close()

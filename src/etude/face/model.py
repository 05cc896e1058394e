"""Who answers: an OpenAI-compatible endpoint, or a checkpoint directory with the engine in this process.

An endpoint is asked for its models before anything else, so that a wrong address or key is told at once and not in the middle
of the work; one that doesn't have that list is taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from etude.face.errors import BadUse, OutOfReach
from etude.harness.settings import HarnessSettings
from etude.policy.openai import OpenAIPolicy
from etude.policy.protocol import Policy
from etude.redact.keys import BadKey, bearer
from etude.trace.entry import Effort

if TYPE_CHECKING:
    from etude.chat.renderer import Renderer

Preset = Literal["nano", "full", "search_replace", "patch", "minimal"]
# A first look at an endpoint: enough for a sleeping one to answer, not enough to make a person wait.
LOOK_S = 10.0
# Windows below this hold little more than the prompt and the tools.
MIN_CONTEXT_TOKENS = 8192
# Self-summaries of one session: as many as fit into all the tokens that a session may have, at the usual trigger.
MAX_SUMMARIES = 24
# A request of a person's: beyond it the agent stops and says so, and a word takes it up again.
MAX_TURNS = 100


@dataclass(frozen=True)
class Choice:
    """What a person chose. `model` is a URL or a directory; None, as everywhere: the default for that model."""

    model: str
    name: str | None = None
    key_env: str = "OPENAI_API_KEY"
    preset: Preset | None = None
    effort: Effort = "medium"
    max_turns: int | None = None
    omit: tuple[str, ...] = ()
    context: int | None = None  # tokens of the model's window

    def to_json(self) -> dict[str, Any]:
        """What a session of use keeps, so that it can be taken up again. No key is in it."""
        return {**asdict(self), "omit": list(self.omit)}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Choice:
        return cls(**{**row, "omit": tuple(row["omit"])})


@dataclass(frozen=True)
class Model:
    """Ready to answer. `renderer` is None for endpoints; `close` ends what `open_model` began."""

    policy: Policy
    renderer: Renderer | None
    settings: HarnessSettings
    close: Callable[[], Any]


async def open_model(choice: Choice) -> Model:
    """Raises BadUse for what is no model, OutOfReach for an endpoint that isn't there or does not let us in."""
    if choice.model.startswith(("http://", "https://")):
        return await _endpoint(choice)
    return _checkpoint(choice)


async def _endpoint(choice: Choice) -> Model:
    if urlsplit(choice.model).password:
        raise BadUse("the address holds a password; put the key into a variable and name it with --key-env VARIABLE")
    known = await _models(choice)
    name = choice.name or (known[0] if len(known) == 1 else None)
    if name is None:
        told = f"it has {', '.join(known[:12])}" if known else "it does not say which it has"
        raise BadUse(f"{choice.model}: give the model's name with --name; {told}")
    policy = OpenAIPolicy(name, base_url=choice.model, api_key_env=choice.key_env, omit=choice.omit)
    return Model(policy, None, _roomy(choice, choice.context), policy.close)


def _roomy(choice: Choice, context: int | None) -> HarnessSettings:
    """Settings of a large model. Of its window five eighths are filled before it sums up (80k of 128k tokens, as `HarnessSettings.full`
    says), and one turn takes an eighth at most: the rest is for what tools answer in between."""
    sizes = {} if context is None else {
        "summary_trigger_tokens": context * 5 // 8, "max_tokens_per_turn": min(8192, context // 8)
    }  # fmt: skip
    return HarnessSettings.full(
        preset=choice.preset or "search_replace", effort=choice.effort, max_turns=choice.max_turns or MAX_TURNS,
        max_summaries=MAX_SUMMARIES, **sizes
    )  # fmt: skip


async def _models(choice: Choice) -> list[str]:
    """The names that the endpoint lists; none where it has no such list."""
    import httpx

    url = f"{choice.model.rstrip('/')}/models"
    try:
        headers = bearer(choice.key_env)
    except BadKey as error:
        raise BadUse(str(error)) from error
    try:
        async with httpx.AsyncClient(timeout=LOOK_S) as client:
            response = await client.get(url, headers=headers)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        said = str(error) or type(error).__name__
        raise OutOfReach(f"no endpoint at {choice.model} ({said}); start it, or check the address") from error
    if response.status_code in (401, 403):
        wrong = (
            f"the key in {choice.key_env} is refused"
            if headers
            else f"it asks for a key and {choice.key_env} is not set"
        )
        raise OutOfReach(f"{choice.model}: {wrong}; export {choice.key_env}=…, or name another with --key-env")
    try:
        rows = response.json()["data"] if response.status_code == 200 else []
        return [str(row["id"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        return []


def _checkpoint(choice: Choice) -> Model:
    folder = Path(choice.model)
    if not (folder / "config.json").is_file():
        raise BadUse(
            f"{choice.model} is neither an address (http://…/v1) nor a checkpoint directory with a config.json"
        )
    from etude.chat.load import load_renderer
    from etude.chat.nano import NanoRenderer
    from etude.engine.policy import EnginePolicy
    from etude.engine.settings import EngineSettings
    from etude.model.checkpoint import load_checkpoint

    renderer = load_renderer(folder)
    nano = isinstance(renderer, NanoRenderer)
    if nano and choice.preset not in (None, "nano"):
        raise BadUse(
            f"{folder} is a laptop model: its habits are trained in, it takes --preset nano, not {choice.preset}"
        )
    turns = {} if choice.max_turns is None else {"max_turns": choice.max_turns}
    model = load_checkpoint(folder)
    if nano:
        settings = HarnessSettings.model_validate({"effort": choice.effort, **turns})
    else:
        settings = _roomy(choice, choice.context or model.config.context_length)
    engine = EngineSettings(max_slots=1, max_batch=1, max_len=model.config.context_length)
    policy = EnginePolicy.start(model, engine, name=choice.name or folder.resolve().name, renderer=renderer)
    return Model(policy, renderer, settings, policy.close)

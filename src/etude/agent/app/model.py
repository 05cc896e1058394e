"""Who answers: an OpenAI-compatible endpoint, or a checkpoint directory with the engine in this process.

An endpoint is asked for its models before anything else, so that a wrong address or key is told at once and not in the middle
of the work; one that doesn't have that list is taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from etude.agent.app.errors import BadUse, OutOfReach
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.connection import connect, words_of
from etude.agent.policy.openai import REQUIRED, OpenAIPolicy
from etude.agent.policy.protocol import Policy
from etude.core.plugins import find_plugin
from etude.core.redact.keys import BadKey, bearer
from etude.core.trace.entry import Effort
from etude.sandbox.egress.address import AddressError, split_address
from etude.sandbox.egress.environment_proxy import ConnectionSettingError

if TYPE_CHECKING:
    from etude.agent.chat.renderer import Renderer

Preset = Literal["nano", "full", "search_replace", "patch", "minimal"]
# A first look at an endpoint: enough for a sleeping one to answer, not enough to make a person wait.
LOOK_S = 10.0
# What is listed as less is no window of a model that could work.
LEAST_WINDOW_TOKENS = 1024
# vLLM and SGLang, OpenRouter and LM Studio, llama.cpp, Mistral, others.
_WINDOW_FIELDS = (
    "max_model_len",
    "context_length",
    "loaded_context_length",
    "n_ctx",
    "max_context_length",
    "context_window",
)
# What opens a checkpoint directory. The engine is in a higher package (`learn`), which this one never imports.
CHECKPOINT_OPENERS = {"engine": "etude.learn.engine.local:open_checkpoint"}
# What a remedy names.
COMMAND = "etude agent"
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
    max_tokens_field: str | None = None  # the name of the answer's limit at the endpoint

    def to_json(self) -> dict[str, Any]:
        """What a session of use keeps, so that it can be taken up again. No key is in it."""
        return {**asdict(self), "omit": list(self.omit)}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Choice:
        return cls(**{**row, "omit": tuple(row["omit"])})


class LocalPolicy(Policy, Protocol):
    """A policy that computes in this process."""

    def close(self) -> None: ...


class CheckpointOpener(Protocol):
    """Opens a checkpoint directory: a policy under `name`, and the model's context window in tokens."""

    def __call__(self, folder: Path, name: str, renderer: Renderer) -> tuple[LocalPolicy, int]: ...


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
    try:
        parts = split_address(choice.model)
    except AddressError as error:
        raise BadUse(str(error)) from error
    if kept := REQUIRED.intersection(choice.omit):
        raise BadUse(f"--omit {' '.join(sorted(kept))}: no request goes without it; leave the option out")
    if parts.password:
        raise BadUse("the address holds a password; put the key into a variable and name it with --key-env VARIABLE")
    known = await _models(choice)
    name = choice.name or (next(iter(known)) if len(known) == 1 else None)
    if name is None:
        names = f"it has {', '.join([*known][:12])}" if known else "it does not say which it has"
        raise BadUse(f"{choice.model}: give the model's name with --name; {names}")
    window = choice.context or known.get(name)
    policy = OpenAIPolicy(
        name, base_url=choice.model, api_key_env=choice.key_env, omit=choice.omit, window_tokens=window, command=COMMAND,
        max_tokens_field=choice.max_tokens_field or "max_tokens",
    )  # fmt: skip
    return Model(policy, None, _roomy(choice, window), policy.close)


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


async def _models(choice: Choice) -> dict[str, int | None]:
    """The models that the endpoint lists, with their windows where it says them; none where it has no such list."""
    import httpx

    url = f"{choice.model.rstrip('/')}/models"
    try:
        headers = bearer(choice.key_env)
    except BadKey as error:
        raise BadUse(str(error)) from error
    try:
        async with connect(url, LOOK_S) as client:
            response = await client.get(url, headers=headers)
    except ConnectionSettingError as error:
        raise OutOfReach(f"{choice.model} can't be asked: {error}") from error
    except (httpx.TransportError, httpx.InvalidURL) as error:
        said = words_of(error, url)
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
        return {str(row["id"]): _window(row) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def _window(row: dict[str, Any]) -> int | None:
    """A model's window in tokens, under the names that servers have for it."""
    inner = [row.get(key) for key in ("meta", "top_provider", "model_info", "limits")]
    places = [row, *(place for place in inner if isinstance(place, dict))]
    found = [place[name] for name in _WINDOW_FIELDS for place in places if isinstance(place.get(name), int)]
    return next((size for size in found if size >= LEAST_WINDOW_TOKENS), None)


def _checkpoint(choice: Choice) -> Model:
    folder = Path(choice.model)
    if not (folder / "config.json").is_file():
        raise BadUse(
            f"{choice.model} is neither an address (http://…/v1) nor a checkpoint directory with a config.json"
        )
    from etude.agent.chat.load import load_renderer
    from etude.agent.chat.nano import NanoRenderer

    renderer = load_renderer(folder)
    nano = isinstance(renderer, NanoRenderer)
    if nano and choice.preset not in (None, "nano"):
        raise BadUse(
            f"{folder} is a laptop model: its habits are trained in, it takes --preset nano, not {choice.preset}"
        )
    turns = {} if choice.max_turns is None else {"max_turns": choice.max_turns}
    open_checkpoint: CheckpointOpener = find_plugin("checkpoint_openers", "engine", CHECKPOINT_OPENERS)
    policy, window = open_checkpoint(folder, choice.name or folder.resolve().name, renderer)
    if nano:
        settings = HarnessSettings.model_validate({"effort": choice.effort, **turns})
    else:
        settings = _roomy(choice, choice.context or window)
    return Model(policy, renderer, settings, policy.close)

"""The agent's model: an OpenAI-compatible endpoint, or a checkpoint with the engine in this process.

The first request to an endpoint lists its models, so that a wrong address or key fails at once and not in the middle of the work. An
endpoint without such a list is used unchecked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from etude.agent.app.errors import UnavailableError, UsageError
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.connection import words_of
from etude.agent.policy.model_list import ListedModel, ask_for_models, listed_models
from etude.agent.policy.openai import REQUIRED, OpenAIPolicy
from etude.agent.policy.protocol import Policy
from etude.core.plugins import import_object
from etude.core.redact.keys import BadKey, api_key
from etude.core.trace.entry import Effort
from etude.sandbox.egress.address import AddressError, split_address
from etude.sandbox.egress.environment_proxy import ConnectionSettingError

if TYPE_CHECKING:
    from etude.agent.chat.renderer import Renderer

# What finds and opens a checkpoint. Names and engine are in a higher package (`learn`), which this one never imports.
CHECKPOINT_FINDER = "etude.learn.model.named_checkpoint:find_checkpoint"
CHECKPOINT_OPENER = "etude.learn.engine.local:open_checkpoint"
# The command that remedies in error messages name.
COMMAND = "etude agent"
# The name of the laptop model's chat format (`chat/nano.py`, which takes a tokenizer to import).
NANO_FORMAT = "nano-1"
# Self-summaries of one session: as many as fit into a session's tokens at the default trigger.
MAX_SUMMARIES = 24
# Turns of one request of a user. Beyond it the agent stops and says so, and a further message continues.
MAX_TURNS = 100


@dataclass(frozen=True)
class ModelChoice:
    """The model and options that the user chose. `model` is a URL, a directory or a published model's name. None means the model's default."""

    model: str
    name: str | None = None
    key_env: str = "OPENAI_API_KEY"
    preset: str | None = None
    effort: Effort = "medium"
    max_turns: int | None = None
    omit: tuple[str, ...] = ()
    context: int | None = None  # tokens of the model's window
    max_tokens_field: str | None = None  # the name of the answer's limit at the endpoint

    def to_json(self) -> dict[str, Any]:
        """The options as a session's header keeps them, for resuming. They hold no key."""
        return {**asdict(self), "omit": list(self.omit)}

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> ModelChoice:
        return cls(**{**row, "omit": tuple(row["omit"])})


class LocalPolicy(Policy, Protocol):
    """A policy that computes in this process."""

    def close(self) -> None: ...


class CheckpointFinder(Protocol):
    """A checkpoint's folder and title from its path or name. Raises ValueError, in one line, for a name that can't be had."""

    def __call__(self, text: str) -> tuple[Path, str]: ...


class CheckpointOpener(Protocol):
    """Opens a checkpoint directory: a policy under `name`, and the model's context window in tokens."""

    def __call__(self, folder: Path, name: str, renderer: Renderer) -> tuple[LocalPolicy, int]: ...


@dataclass(frozen=True)
class AgentModel:
    """An open model. `renderer` is None for endpoints. `close` releases what `open_model` opened."""

    policy: Policy
    renderer: Renderer | None
    settings: HarnessSettings
    close: Callable[[], Any]


async def open_model(choice: ModelChoice) -> AgentModel:
    """Open an endpoint or a checkpoint. Raises UsageError for an invalid model, UnavailableError for an endpoint that does not respond
    or that rejects the key."""
    if choice.model.startswith(("http://", "https://")):
        return await _open_endpoint(choice)
    return _open_checkpoint(choice)


async def _open_endpoint(choice: ModelChoice) -> AgentModel:
    try:
        parts = split_address(choice.model)
    except AddressError as error:
        raise UsageError(str(error)) from error
    if required := REQUIRED.intersection(choice.omit):
        raise UsageError(f"--omit {' '.join(sorted(required))}: every request needs it; leave the option out")
    if parts.password:
        raise UsageError(
            "the address holds a password; put the key into a variable and name it with --key-env VARIABLE"
        )
    known = await _list_models(choice)
    name = choice.name or (next(iter(known)) if len(known) == 1 else None)
    if name is None:
        names = f"it has {', '.join([*known][:12])}" if known else "it does not say which it has"
        raise UsageError(f"{choice.model}: give the model's name with --name; {names}")
    listed = known.get(name, ListedModel())
    window = choice.context or listed.window_tokens
    policy = OpenAIPolicy(
        name, base_url=choice.model, api_key_env=choice.key_env, omit=choice.omit, window_tokens=window, command=COMMAND,
        max_tokens_field=choice.max_tokens_field or "max_tokens",
    )  # fmt: skip
    policy.take_listed(listed)
    if listed.chat_format == NANO_FORMAT:
        return AgentModel(policy, None, _laptop_settings(choice), policy.close)
    return AgentModel(policy, None, _large_model_settings(choice, window), policy.close)


def _laptop_settings(choice: ModelChoice) -> HarnessSettings:
    """Settings of a laptop model, in this process or behind an endpoint. Raises UsageError for a preset that it does not know."""
    if choice.preset not in (None, "nano"):
        raise UsageError(
            f"{choice.model} is a laptop model: its habits are trained in, it takes --preset nano, not {choice.preset}"
        )
    turns = {} if choice.max_turns is None else {"max_turns": choice.max_turns}
    return HarnessSettings.model_validate({"effort": choice.effort, **turns})


def _large_model_settings(choice: ModelChoice, context: int | None) -> HarnessSettings:
    """Settings of a large model. It summarizes at five eighths of its window (80k of 128k tokens, as in `HarnessSettings.full`). One turn
    gets an eighth of the window; tool results between turns use the rest."""
    sizes = {} if context is None else {
        "summary_trigger_tokens": context * 5 // 8, "max_tokens_per_turn": min(8192, context // 8)
    }  # fmt: skip
    return HarnessSettings.full(
        preset=choice.preset or "search_replace", effort=choice.effort, max_turns=choice.max_turns or MAX_TURNS,
        max_summaries=MAX_SUMMARIES, **sizes
    )  # fmt: skip


async def _list_models(choice: ModelChoice) -> dict[str, ListedModel]:
    """The models that the endpoint lists. Empty if it has no such list."""
    import httpx

    try:
        response = await ask_for_models(choice.model, choice.key_env)
    except BadKey as error:
        raise UsageError(str(error)) from error
    except ConnectionSettingError as error:
        raise UnavailableError(f"{choice.model} can't be reached: {error}") from error
    except (httpx.TransportError, httpx.InvalidURL) as error:
        reason = words_of(error, choice.model)
        raise UnavailableError(f"no endpoint at {choice.model} ({reason}); start it, or check the address") from error
    if response.status_code in (401, 403):
        wrong = (
            f"the key in {choice.key_env} is refused"
            if api_key(choice.key_env)
            else f"it asks for a key and {choice.key_env} is not set"
        )
        raise UnavailableError(f"{choice.model}: {wrong}; export {choice.key_env}=…, or name another with --key-env")
    return listed_models(response)


def _open_checkpoint(choice: ModelChoice) -> AgentModel:
    find_checkpoint: CheckpointFinder = import_object(CHECKPOINT_FINDER)
    try:
        folder, title = find_checkpoint(choice.model)
    except ValueError as error:
        raise UsageError(f"--model {choice.model}: {error}") from error
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"{choice.model} is neither an address (http://…/v1) nor a checkpoint directory with a config.json, nor the name of a published "
            "model (owner/name on a model hub, or smollm2-135m)"
        )
    from etude.agent.chat.load import load_renderer

    renderer = load_renderer(folder)
    nano = _laptop_settings(choice) if renderer.name == NANO_FORMAT else None
    open_checkpoint: CheckpointOpener = import_object(CHECKPOINT_OPENER)
    policy, window = open_checkpoint(folder, choice.name or title, renderer)
    settings = _large_model_settings(choice, choice.context or window) if nano is None else nano
    return AgentModel(policy, renderer, settings, policy.close)

"""Limits of a session where the recipe sets none: from the preset and the model's context window.

The defaults of `HarnessSettings` and `engine.max_len` are those of the laptop model, whose sessions hold some hundred tokens. A system
prompt of a large model's preset alone is longer. So for every preset but the laptop's, each limit that the recipe leaves out follows from the
context window of the checkpoint. A limit that the recipe sets stays as it is, and `rl.preflight` measures it against real prompts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from etude.pipeline.run.machine import memory_bytes

if TYPE_CHECKING:
    from etude.learn.model.config import ModelConfig
    from etude.pipeline.recipe.recipe import Recipe

LAPTOP_PRESET = "nano"
# The nano model's limits would starve a large model: it thinks in prose, reads whole files and takes more turns.
LIMITS: dict[str, Any] = {
    "preset": "full",
    "max_turns": 40,
    "max_tokens_per_turn": 4096,
    "max_session_tokens": 120_000,
    "max_tool_lines": 200,
    "max_tool_bytes": 16_000,
    "max_matches": 50,
    "tool_timeout_s": 30.0,
    "test_timeout_s": 120.0,
}
SUMMARY_SHARE = 0.6  # of the window: what a turn and a summary need stays free
# A window that the recipe does not set is no longer than this: agents seldom fill more, and the cache of every slot grows with it.
CONTEXT_TOKENS = 32_768
CACHE_SHARE = (
    0.25  # of the machine's memory, for the cache of all slots; the rest is for weights, sandboxes and the trainer
)
CACHE_SHARE_ALONE = 0.5  # the same where no trainer is there
FEWEST_TOKENS = 1024  # the default of engine.max_len
# Where the memory holds no window of this length in every slot, there are fewer slots: a prompt with tools alone has up to 3,000 tokens.
ROOMY_TOKENS = 8192
FEWEST_SLOTS = 4


def fit_limits(recipe: Recipe) -> Recipe:
    """The recipe with every limit that it leaves out set for its preset and model; itself for the laptop's preset.

    Raises CheckpointError or UnsupportedConfig for a checkpoint whose config.json describes no model that can be built.
    """
    if recipe.harness.preset == LAPTOP_PRESET:
        return recipe
    window = context_length(recipe)
    recipe = _with_fewer_slots(recipe, window)
    harness, engine = recipe.harness, recipe.engine
    chosen = "max_len" in engine.model_fields_set
    context = min(window, engine.max_len) if chosen else min(window, CONTEXT_TOKENS, _cached_tokens(recipe))
    if not chosen:
        engine = engine.model_copy(update={"max_len": context})
    fitted = {name: value for name, value in roomy(context).items() if name not in harness.model_fields_set}
    return recipe.model_copy(update={"harness": harness.model_copy(update=fitted), "engine": engine})


class EngineRoom(NamedTuple):
    """What an engine has room for: sessions in its cache at one time, and tokens of each."""

    slots: int
    window: int


def engine_room(config: ModelConfig, sessions: int, window: int | None = None) -> EngineRoom:
    """For a checkpoint that answers without a recipe: at most `sessions` slots, each of the model's whole window or of as much as the machine's
    memory holds, at most CONTEXT_TOKENS. Fewer slots come before a window below ROOMY_TOKENS. A `window` that is asked for stays as it is."""
    cached = int(CACHE_SHARE_ALONE * memory_bytes()) // (4 * config.layers * config.cache_width)  # tokens, in fp32
    least = window or min(config.context_length, ROOMY_TOKENS)
    slots = max(1, min(sessions, cached // least))
    return EngineRoom(slots, window or min(config.context_length, CONTEXT_TOKENS, _power_of_two(cached // slots)))


def roomy(context: int) -> dict[str, Any]:
    """Limits of a large model's session in a window of `context` tokens, by the names of `HarnessSettings`."""
    return {name: value for name, value in LIMITS.items() if name != "preset"} | {
        "max_tokens_per_turn": max(1, min(LIMITS["max_tokens_per_turn"], context // 5)),
        "max_session_tokens": 4 * context,
        "summary_trigger_tokens": int(SUMMARY_SHARE * context),
        "max_tool_bytes": max(32, min(LIMITS["max_tool_bytes"], context)),  # about a quarter of the window's text
    }


def context_length(recipe: Recipe) -> int:
    """Positions of the model that the recipe's agent is: those of the checkpoint that it names, else of the run's model."""
    config = _config(recipe)
    return recipe.model.context_length if config is None else config.context_length


def hidden_size(recipe: Recipe) -> int:
    """Width of the same model."""
    return (_config(recipe) or recipe.model).hidden_size


def expert_count(recipe: Recipe) -> int:
    """Experts of a layer of the same model."""
    return (_config(recipe) or recipe.model).experts


def _config(recipe: Recipe) -> Any:
    from etude.learn.model.checkpoint import load_config  # only where a checkpoint is named
    from etude.pipeline.recipe.read import find_checkpoint

    for name in (str(recipe.run.sft_checkpoint or ""), recipe.model.init):
        if name and (folder := find_checkpoint(name)) is not None:
            return load_config(folder, recipe.model.impl)
    return None


def _with_fewer_slots(recipe: Recipe, window: int) -> Recipe:
    """The recipe with those numbers of slots lowered that it does not set, so far that a window of ROOMY_TOKENS fits."""
    if recipe.engine.kind == "vllm":
        return recipe
    length = recipe.engine.max_len if "max_len" in recipe.engine.model_fields_set else min(window, ROOMY_TOKENS)
    most = max(FEWEST_SLOTS, _cache_bytes() // (length * _token_bytes(recipe)))
    engine, rl = recipe.engine, recipe.rl
    fewer = {
        name: most
        for name in ("max_slots", "max_batch")
        if name not in engine.model_fields_set and getattr(engine, name) > most
    }
    if "slots" not in rl.model_fields_set and rl.slots > most:
        rl = rl.model_copy(update={"slots": most})
    return recipe.model_copy(update={"engine": engine.model_copy(update=fewer), "rl": rl})


def _cache_bytes() -> int:
    return int(CACHE_SHARE * memory_bytes())


def _token_bytes(recipe: Recipe) -> int:
    """What one token takes in the cache, in fp32."""
    config = _config(recipe) or recipe.model
    return 4 * config.layers * config.cache_width


def _cached_tokens(recipe: Recipe) -> int:
    """Tokens a slot for which the cache of all slots fits the machine: a power of two, so that like machines agree."""
    if recipe.engine.kind == "vllm":  # sizes its cache by engine.vllm.kv_cache_mib
        return CONTEXT_TOKENS
    fitting = _cache_bytes() // (max(recipe.engine.max_slots, recipe.rl.slots) * _token_bytes(recipe))
    return _power_of_two(fitting)


def _power_of_two(tokens: int) -> int:
    """Not above `tokens`, but at least FEWEST_TOKENS."""
    return max(FEWEST_TOKENS, 1 << (max(1, tokens).bit_length() - 1))

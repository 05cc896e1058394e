"""What a recipe names by import path: it is refused before a stage starts where it does not work, and a run is bound to its source.

A stage's entry in the run's ledger holds the digest of the source of each object that the stage's settings name (`sources`). A stage that
would go on, or be taken over as done, with another source is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from etude.core.plugins import PluginError, import_object, is_import_path, source_digest
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.recipe import Recipe


@dataclass(frozen=True)
class PluginSetting:
    """A setting that may name objects by import path. `check` is the import path of the function that raises PluginError for an object that
    does not follow the protocol; it is imported only if a recipe names one, because some need torch."""

    key: str
    named: Callable[[Recipe], Iterable[str]]
    check: str


SETTINGS = (
    PluginSetting("tasks.plugins", lambda recipe: recipe.tasks.plugins, "etude.tasks.registry:custom_grader"),
    PluginSetting(
        "harness.preset", lambda recipe: [recipe.harness.preset], "etude.agent.harness.presets.preset:preset"
    ),
    PluginSetting(
        "sandbox.backend", lambda recipe: [recipe.sandbox.backend], "etude.sandbox.custom_backend:custom_backend"
    ),
    PluginSetting("rl.baseline", lambda recipe: [recipe.rl.baseline], "etude.rl.baseline:custom_advantages"),
    PluginSetting(
        "rl.rewards.weights",
        lambda recipe: recipe.rl.rewards.custom,
        "etude.rl.rewards.library:custom_component",
    ),
    PluginSetting(
        "rl.update.trust.kind",
        lambda recipe: [recipe.rl.update.trust.kind],
        "etude.learn.train.importance_weights:custom_weight",
    ),
)


def require_plugins(recipe: Recipe, reads: Iterable[str]) -> None:
    """Raises RecipeError for the first object among the settings of `reads` that can't be imported, does not follow its protocol, or has no
    source."""
    for setting, path in _named(recipe, reads):
        try:
            import_object(setting.check)(path)
            source_digest(path)
        except PluginError as error:
            raise RecipeError([f"{setting.key}: {error}"]) from error


def plugin_sources(recipe: Recipe, reads: Iterable[str]) -> dict[str, str]:
    """The digest of the source of each object that the settings of `reads` name by import path. Raises RecipeError."""
    try:
        return {path: source_digest(path) for _, path in _named(recipe, reads)}
    except PluginError as error:
        raise RecipeError([str(error)]) from error


def _named(recipe: Recipe, reads: Iterable[str]) -> Iterator[tuple[PluginSetting, str]]:
    sections = {key.partition(".")[0] for key in reads if "." not in key}
    for setting in SETTINGS:
        if setting.key.partition(".")[0] in sections:
            yield from ((setting, path) for path in setting.named(recipe) if is_import_path(path))

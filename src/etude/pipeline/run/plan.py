"""What a run would do and why: pure, from the graph, the ledger, the recipe's settings and the stage folders that exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xxhash

from etude.learn.model.lora_settings import LoraSettings
from etude.learn.train.settings import LEAST_TOKENS
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.checkpoint_identity import identity
from etude.pipeline.run.ledger import StageAttempt, StageLedger
from etude.pipeline.run.stage import Stage

# Digests of what lies in the folders that a recipe names: a stage that read them is stale when their contents change,
# not only their names.


# Behind the key in a stage's settings. An attempt that was begun before contents were noted is not stale for want of them.
CONTENTS = " (contents)"
# Behind the key of a checkpoint on a model hub (`hub_checkpoints`).
COMMIT = " (commit)"
# Settings of earlier versions that changed no result. An attempt that recorded them is not stale for that.
REMOVED_SETTINGS = ("sandbox.firecracker.",)
_LORA_OFF = {f"lora.{key}": value for key, value in LoraSettings().model_dump().items()}
# Settings that earlier versions did not have, with the value that changes no result. An attempt that recorded none is not stale for that.
TRAINING_TABLES = (
    "pretrain.base.loop",
    "pretrain.short.loop",
    "pretrain.long.loop",
    "mtp.loop",
    "sft.loop",
    "rl.update",
)
# Settings that change no result but for the rounding of sums: an attempt goes on with others, and one that has ended is not stale for that.
LAYOUT_SETTINGS = tuple(f"{table}.parallel." for table in (*TRAINING_TABLES, "rl"))
LORA_TABLES = ("pretrain.base", "pretrain.short", "pretrain.long", "sft", "rl.update")
ADDED_SETTINGS: dict[str, Any] = {
    "tasks.plugins": [],
    "engine.compute": "fp32",
    "model.impl": "auto",
    "exercises.wording": "words",
    "rl.threads": 1,  # of rewarded_sft, which always had one
    "rl.engine_threads": None,
}
ADDED_SETTINGS |= {f"model.{key}": 0.0 for key in ("query_growth", "window_partial_rotary")}
ADDED_SETTINGS |= {"model.layer_heads": [], "model.attention_gate": "none"}
ADDED_SETTINGS |= {f"{table}.compute": "fp32" for table in TRAINING_TABLES}
ADDED_SETTINGS |= {f"{table}.recompute": False for table in TRAINING_TABLES}
ADDED_SETTINGS |= {f"{table}.expert_products": "plain" for table in (*TRAINING_TABLES, "engine")}
ADDED_SETTINGS |= {f"{table}.{key}": value for table in LORA_TABLES for key, value in _LORA_OFF.items()}
# Settings whose numbers a stage chooses where they are "auto". An attempt keeps the numbers that it has, those of earlier recipes included.
AUTO_SETTINGS = {f"rl.update.{name}": name for name in LEAST_TOKENS}
SUFFIXES = (".jsonl", ".tokens", ".routes")  # of a session
CHUNK_BYTES = 1 << 22


def contents(recipe: Recipe, reads: Iterable[str]) -> dict[str, str]:
    """By key a digest of each folder that a stage with these `reads` takes from outside of the run. A folder that is not there has none."""
    read = set(reads)
    named = {"model.init": recipe.model.init, "run.sft_checkpoint": str(recipe.run.sft_checkpoint or "")}
    found = {
        key: identity(Path(name))
        for key, name in named.items()
        if name and reads_key(read, key) and (Path(name) / "config.json").is_file()
    }
    if reads_key(read, "sft.collected"):
        found |= {
            f"sft.collected.{folder}": session_folder_digest(Path(folder))
            for folder in recipe.sft.collected
            if Path(folder).is_dir()
        }
    return {key + CONTENTS: digest for key, digest in found.items()}


def session_folder_digest(folder: Path) -> str:
    """16 hex digits of the names and bytes of a folder's session files."""
    digest = xxhash.xxh3_64()
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES and path.is_file():
            digest.update(f"{path.name} {path.stat().st_size} ".encode())
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    digest.update(chunk)
    return digest.hexdigest()


def reads_key(read: set[str], key: str) -> bool:
    """Whether a stage that reads these sections and keys reads `key`."""
    return key in read or key.partition(".")[0] in read


Action = Literal["run", "resume", "skip"]
KEYS_NAMED = 3  # a reason names this many changed keys, then counts the rest


class PlanError(Exception):
    """The stages asked for can't run as things stand; says why and what to do."""


@dataclass(frozen=True)
class PlanStep:
    """One stage's fate in this run."""

    stage: str
    action: Action
    why: str


def plan(
    graph: tuple[Stage, ...],
    ledger: StageLedger,
    settings: Callable[[Stage], dict[str, Any]],
    selected: Collection[str],
    has_folder: Callable[[str], bool],
) -> list[PlanStep]:
    """A step for each selected stage, in order. Raises PlanError if one needs a stage that is neither selected nor done."""
    steps: list[PlanStep] = []
    renewed: set[str] = (
        set()
    )  # stages whose output is, or ought to be, rebuilt: the stages after them are stale as well
    for stage in graph:
        step = _decide(stage, ledger, settings(stage), renewed, selected, has_folder(stage.name))
        if step.action == "run":
            renewed.add(stage.name)
        if stage.name in selected:
            steps.append(step)
        elif step.action != "skip":
            needing = [s for s in graph if stage.name in s.after and s.name in selected]
            if needing:
                raise PlanError(_lacks(needing[0], stage, step.why))
    return steps


def require_same_sources(
    steps: Iterable[PlanStep], ledger: StageLedger, sources: Callable[[str], dict[str, str]]
) -> None:
    """Raises PlanError for a stage that would go on, or be taken over as done, with another source of what its settings name by import path."""
    for step in steps:
        attempt = ledger.latest(step.stage)
        if step.action == "run" or attempt is None or not attempt.sources:
            continue
        for path, digest in sources(step.stage).items():
            if attempt.sources.get(path, digest) != digest:
                raise PlanError(
                    f"the source of {path} has changed since stage {step.stage} began ({ledger.path}): put it back, or use another output "
                    "folder (--out)"
                )


def _lacks(needing: Stage, stage: Stage, why: str) -> str:
    remedy = (
        f"{needing.name} needs {stage.name}, which is not ready here ({why}): "
        f"run both (etude run --from {stage.name} --until {needing.name}, with the same recipe and --out)"
    )
    key = needing.stand_ins.get(stage.name)
    return (
        remedy if key is None else f"{remedy}, or begin with a checkpoint that is there (--set {key}=checkpoints/NAME)"
    )


def select(graph: tuple[Stage, ...], only: str | None, first: str | None, last: str | None) -> list[str]:
    """The stages named by --only, --from and --until, in running order. Raises PlanError."""
    order = [stage.name for stage in graph]
    for name in (only, first, last):
        if name is not None and name not in order:
            raise PlanError(f"there is no stage {name!r}; the stages are {', '.join(order)}")
    if only is not None:
        if first is not None or last is not None:
            raise PlanError("--only names one stage; leave out --from and --until")
        return [only]
    chosen = order[order.index(first) if first else 0 : order.index(last) + 1 if last else None]
    if not chosen:
        raise PlanError(f"--from {first} comes after --until {last}; exchange them")
    return chosen


def _decide(
    stage: Stage,
    ledger: StageLedger,
    settings: dict[str, Any],
    renewed: set[str],
    selected: Collection[str],
    has_folder: bool,
) -> PlanStep:
    attempt = ledger.latest(stage.name)
    if attempt is None:
        return PlanStep(stage.name, "run", "not run yet")
    stale = _stale(stage, attempt, ledger, settings, renewed, selected)
    if stale:
        return PlanStep(stage.name, "run", stale)
    if not attempt.finished:
        return PlanStep(stage.name, "resume", "was interrupted, goes on")
    if not has_folder:
        return PlanStep(stage.name, "run", "its folder is gone")
    if stage.always:
        return PlanStep(stage.name, "resume", "is rebuilt every time")
    return PlanStep(stage.name, "skip", "done")


def _stale(
    stage: Stage,
    attempt: StageAttempt,
    ledger: StageLedger,
    settings: dict[str, Any],
    renewed: set[str],
    selected: Collection[str],
) -> str:
    """Why the newest attempt is no longer what the recipe asks for; empty if it still is."""
    for name in stage.after:
        upstream = ledger.latest(name)
        if name in renewed or upstream is None or attempt.upstream.get(name) != upstream.id:
            return f"{name} is made again"
    for name in stage.also:
        if name in renewed and name in selected or attempt.upstream.get(name) != ledger.finished_attempt(name):
            return f"{name} is made again"
    absent = object()
    recorded = {key: value for key, value in attempt.settings.items() if not key.startswith(REMOVED_SETTINGS)}
    changed = [
        f"{key} was {_shown(recorded.get(key, absent), absent)}, is {_shown(settings.get(key, absent), absent)}"
        for key in sorted(recorded.keys() | settings.keys())
        if recorded.get(key, absent) != settings.get(key, absent)
        and not key.startswith(LAYOUT_SETTINGS)
        and not (key not in recorded and _added_without_effect(key, settings))
        and not (key in AUTO_SETTINGS and settings.get(key) == "auto" and isinstance(recorded.get(key), int))
    ]
    more = f" and {len(changed) - KEYS_NAMED} more" if len(changed) > KEYS_NAMED else ""
    return ", ".join(changed[:KEYS_NAMED]) + more


def with_chosen_tokens(recipe: Recipe, ledger: StageLedger, stage: str) -> Recipe:
    """The recipe with the numbers that the newest attempt at a stage has for settings that are "auto"."""
    attempt, update = ledger.latest(stage), recipe.rl.update
    recorded = {} if attempt is None else {name: attempt.settings.get(key) for key, name in AUTO_SETTINGS.items()}
    kept = {name: recorded[name] for name in update.auto_tokens if isinstance(recorded.get(name), int)}
    rl = recipe.rl.model_copy(update={"update": update.model_copy(update=kept)})
    return recipe.model_copy(update={"rl": rl})


def _added_without_effect(key: str, settings: dict[str, Any]) -> bool:
    """Whether a setting that an attempt did not record is no reason to run it again."""
    return key.endswith(CONTENTS) or (key in ADDED_SETTINGS and settings.get(key) == ADDED_SETTINGS[key])


def _shown(value: Any, absent: object) -> str:
    return "absent" if value is absent else repr(value)


def flat_settings(recipe: dict[str, Any], reads: tuple[str, ...]) -> dict[str, Any]:
    """The recipe's values under the given sections or dotted keys, by dotted leaf key."""
    found: dict[str, Any] = {}
    for path in reads:
        value: Any = recipe
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        _flatten(value, path, found)
    return found


def _flatten(value: Any, key: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            _flatten(inner, f"{key}.{name}", found)
    elif value is not None:
        found[key] = value

"""From the words on the command line to a run: which recipe, which directory, with which overrides."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etude.agent.harness.presets.preset import Preset
    from etude.learn.parallel.launched import LaunchedWorld
    from etude.pipeline.recipe.recipe import Recipe
    from etude.pipeline.run.execute import Run

DEFAULT_RECIPE = "laptop"


def prepare(
    recipes: list[str] | None, overrides: list[str] | None, out: Path | None, address: str | None = None
) -> Run:
    """Without a recipe named, a directory goes on with its own; without a directory either, it is the laptop recipe."""
    # Here and not above: building every room's settings costs 0.1 s, which --help need not pay.
    from etude.learn.model.hf_errors import UnsupportedConfig
    from etude.learn.weights.hf_files import CheckpointError
    from etude.pipeline.recipe.read import find_recipe, read_recipe
    from etude.pipeline.run.execute import Run
    from etude.pipeline.run.graph import GRAPH
    from etude.pipeline.run.hub_checkpoints import resolve_checkpoints, with_folders
    from etude.pipeline.run.limits import hidden_size
    from etude.pipeline.run.pruning import graph_of, with_shares

    own = out / "recipe.toml" if out is not None else None
    if not recipes and own is not None and own.is_file():
        files = [own]
    else:
        files = [find_recipe(name) for name in recipes or [DEFAULT_RECIPE]]
    named = [] if address is None else [f"cluster.address={json.dumps(address)}"]
    recipe = read_recipe(files, [*(overrides or []), *named])
    _find_checkpoints(recipe)
    folder = out if out is not None else Path("runs") / recipe.run.name
    checkpoints = resolve_checkpoints(recipe, folder)
    fitted = with_model_limits(with_folders(recipe, checkpoints))
    recipe = recipe.model_copy(update={"harness": fitted.harness, "engine": fitted.engine, "rl": fitted.rl})
    try:
        width = hidden_size(fitted)
    except (CheckpointError, UnsupportedConfig):
        width = 0  # a checkpoint that can't be read: `require_checkpoints` refuses the stages that need it
    return Run(recipe, folder, with_shares(graph_of(recipe, GRAPH), width), checkpoints)


def with_model_limits(recipe: Recipe) -> Recipe:
    """With the limits that the recipe leaves out. Raises RecipeError for a checkpoint that the model code can't build, and for a hub name,
    whose config is not here."""
    from etude.learn.model.hf_config import UnsupportedConfig
    from etude.learn.weights.hf_files import CheckpointError
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.run.hub_checkpoints import hub_names
    from etude.pipeline.run.limits import fit_limits

    if names := hub_names(recipe):
        key, name = next(iter(names.items()))
        raise RecipeError(
            [
                f"{key} = {name}: a hub name is not taken here; run `etude model fetch {name} --out DIR`, and name that folder"
            ]
        )
    try:
        return fit_limits(recipe)
    except (CheckpointError, UnsupportedConfig) as error:
        raise RecipeError([f"the recipe's checkpoint can't be loaded: {error}"]) from None


def require_stages(run: Run, selected: list[str]) -> None:
    """Raises PlanError if a stage is asked for that the recipe leaves out."""
    from etude.pipeline.run.plan import PlanError

    absent = [name for name in selected if name not in {stage.name for stage in run.graph}]
    if absent:
        raise PlanError(
            f"the recipe leaves {absent[0]} out (run.without): take it from the list, or name another stage"
        )


def require_checkpoints(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if a selected stage would look for a checkpoint in vain an hour later, or could not load it."""
    from etude.learn.model.checkpoint import load_config
    from etude.learn.model.hf_errors import UnsupportedConfig
    from etude.learn.weights.hf_files import CheckpointError
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.recipe.read import find_checkpoint
    from etude.pipeline.run.hub_checkpoints import named_checkpoints

    read = {path for stage in run.graph if stage.name in selected for path in stage.reads}
    lost = [
        f"{key} = {name}: there is no checkpoint here or in Etude's repository; an installed package brings none, so start "
        f"from a clone, give a path, or leave it to the run with --set {key}="
        for key, name in named_checkpoints(run.located).items()
        if read.intersection((key, key.partition(".")[0])) and find_checkpoint(name) is None
    ]
    if lost:
        raise RecipeError(lost)
    for key, name in named_checkpoints(run.located).items():
        if read.intersection((key, key.partition(".")[0])) and (folder := find_checkpoint(name)) is not None:
            try:
                load_config(folder, run.recipe.model.impl)
            except (CheckpointError, UnsupportedConfig) as error:
                raise RecipeError(
                    [
                        f"{key} = {named_checkpoints(run.recipe)[key]}: the model code can't load this checkpoint: {error}"
                    ]
                ) from None


def require_tokenizer(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if the stage corpus would find that the tokenizer of `model.init` lacks the tokens that it writes."""
    from etude.learn.corpus.fim_tokens import NoFimTokens, fim_tokens
    from etude.learn.corpus.tokenizer import load_tokenizer
    from etude.pipeline.recipe.errors import RecipeError

    init = run.recipe.model.init
    if not init or "corpus" not in selected:
        return
    try:
        tokenizer = load_tokenizer(Path(run.located.model.init))
        if run.recipe.corpus.fim_rate:
            fim_tokens(tokenizer)
    except (ValueError, FileNotFoundError, NoFimTokens) as error:
        raise RecipeError([f"model.init = {init}: {error}"]) from None


def require_demonstrations(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if the stage sessions could not write for this model, or the stage sft would have nothing to learn from."""
    from etude.agent.harness.presets.preset import preset_of
    from etude.pipeline.recipe.errors import RecipeError
    from etude.tasks.generate.expert_calls import NoSuchMove, require_moves

    recipe = run.located
    if "sft" in selected and "sessions" in recipe.run.without and not recipe.sft.collected:
        raise RecipeError(
            [
                "run.without leaves the stage sessions out, and sft.collected names no folder, so the stage sft has nothing to learn from: name "
                'folders of `etude session collect`, or leave "sft" out as well and set run.sft_checkpoint'
            ]
        )
    preset = preset_of(recipe.harness)
    if recipe.sft.collected and any(step.stage == "sft" and step.action != "skip" for step in run.plan(selected)):
        _require_collected(recipe)
        _require_chat_format(run, preset, "sft")
    if "sessions" not in selected:
        return
    try:
        require_moves(preset)
    except NoSuchMove as error:
        raise RecipeError([f"harness.preset = {recipe.harness.preset}: {error}"]) from None
    _require_chat_format(run, preset, "sessions")


def _require_collected(recipe: Recipe) -> None:
    """Raises RecipeError for a folder of sft.collected without sessions."""
    from etude.pipeline.recipe.errors import RecipeError
    from etude.rollout.collect.taught import session_files

    for folder in recipe.sft.collected:
        try:
            session_files(Path(folder))
        except FileNotFoundError as error:
            raise RecipeError([f"sft.collected: {error}"]) from None


def _require_chat_format(run: Run, preset: Preset, stage: str) -> None:
    """Raises RecipeError where the chat format of the run's model can't hold a prompt with these tools, which `stage` needs."""
    from etude.agent.chat.load import load_renderer
    from etude.core.trace.message import Message
    from etude.pipeline.recipe.errors import RecipeError

    init = run.recipe.model.init
    if not init:
        if preset.skinned:
            raise RecipeError(
                [
                    f"harness.preset = {preset.name}: a new model has the laptop's chat format, which holds the tools of nano alone; "
                    "begin with a published model (model.init), or leave harness.preset out"
                ]
            )
        return
    prompt = [*([Message("system", preset.system)] if preset.system else []), Message("user", "x")]
    try:
        load_renderer(Path(run.located.model.init)).render(prompt, preset.schemas)
    except (ValueError, FileNotFoundError) as error:
        raise RecipeError(
            [
                f"model.init = {init}: the stage {stage} can't write its demonstrations in this model's chat format with the tools of "
                f"{preset.name}: {error}. Take an instruction-tuned model, choose another harness.preset, or add the laptop model's format "
                "with `etude tokenizer extend --chat`"
            ]
        ) from None


def require_temperature(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if RL would sample the rollouts of a group all alike."""
    from etude.pipeline.recipe.errors import RecipeError

    if run.recipe.harness.temperature == 0 and {"rl", "attempts"}.intersection(selected):
        raise RecipeError(
            ["harness.temperature = 0: the rollouts of a group would all be the same; RL needs a temperature above 0"]
        )


def require_plugins(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if a selected stage's settings name something by import path that can't be used."""
    from etude.pipeline.run.plugins import require_plugins

    require_plugins(run.recipe, [key for stage in run.graph if stage.name in selected for key in stage.reads])


def require_tasks(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if the bench would find its tasks too few after all the training, or RL's folder of tasks is none."""
    from etude.evaluate.bench.suite import shares
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.run.practice import exam, folder_of, practice, require_graders
    from etude.rl.preflight import sample_of
    from etude.tasks.errors import TaskError

    recipe, benched = run.recipe, bool({"trials", "bench"}.intersection(selected))
    try:
        if folder_of(recipe) is None:
            levels = {str(level): weight for level, weight in recipe.exercises.levels.items()}
            if benched:
                shares(levels, recipe.bench.tasks, recipe.bench.minimum_tasks(levels))
            return
        if {"rl", "attempts"}.intersection(selected):
            source = practice(recipe).source
            require_graders(recipe, map(source.task, sample_of(source.ids("train"))))
        if benched:
            require_graders(recipe, exam(recipe).tasks)
    except (ValueError, TaskError) as error:
        raise RecipeError([str(error)]) from None


def require_levels(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if RL would look for tasks of a level that there is not."""
    from typing import get_args

    from etude.pipeline.recipe.errors import RecipeError
    from etude.tasks.generate.settings import LevelName

    unknown = sorted(set(run.recipe.rl.levels) - set(get_args(LevelName)))
    if run.recipe.tasks.folder:  # whose levels are its own: tasks.mix weighs them
        return
    if unknown and {"rl", "attempts"}.intersection(selected):
        raise RecipeError(
            [f"rl.levels.{unknown[0]}: there is no such level; there are {', '.join(get_args(LevelName))}"]
        )


def require_one_compute(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if RL's engine would compute in another type than its trainer, or experts in a format that the model has none for."""
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.run.limits import expert_count

    engine, trainer = run.recipe.engine, run.recipe.rl.update
    both = ("compute", "expert_products") if "rl" in selected and engine.kind == "etude" else ()
    for name in both:
        if (here := getattr(engine, name)) != (there := getattr(trainer, name)):
            raise RecipeError(
                [
                    f'engine.{name} = "{here}" and rl.update.{name} = "{there}": the trainer would learn from log-probabilities of another '
                    "type; set both to the same"
                ]
            )
    tables = {f"{table}.expert_products": loop.expert_products for table, loop in _loops(run, selected).items()}
    tables |= {"engine.expert_products": engine.expert_products}
    named = {key: value for key, value in tables.items() if value != "plain"}
    if named and not expert_count(run.located):
        key, value = next(iter(named.items()))
        raise RecipeError([f'{key} = "{value}", and the model has no experts; set it to "plain"'])


def _loops(run: Run, selected: list[str]) -> dict[str, Any]:
    """The selected stages' loops, by table."""
    recipe = run.located
    loops = {f"pretrain.{name}.loop": (name, getattr(recipe.pretrain, name).loop) for name in ("base", "short", "long")}
    loops |= {"mtp.loop": ("mtp", recipe.mtp.loop), "sft.loop": ("sft", recipe.sft.loop)}
    return {table: loop for table, (stage, loop) in loops.items() if stage in selected}


def require_layouts(run: Run, selected: list[str]) -> None:
    """Raises RecipeError now if a selected stage could not split its model over the ranks that its loop names."""
    from etude.learn.model.transformers_backend.config import implementation_of
    from etude.pipeline.recipe.errors import RecipeError
    from etude.pipeline.recipe.read import find_checkpoint
    from etude.pipeline.run.limits import expert_count

    recipe = run.located
    split = loops_over_ranks(run, selected)
    if (world := _launched()) is not None:
        require_world(split, world.size, f"torchrun started {world.size}")
    split |= {"rl": recipe.rl} if "rl" in selected and recipe.rl.parallel.ranks > 1 else {}
    folder = str(recipe.run.sft_checkpoint or recipe.model.init)
    for table, loop in split.items():
        here = find_checkpoint(folder) if folder else None
        # A checkpoint that is fetched later is judged by its stage, before its ranks start.
        own = here is None or implementation_of(here, recipe.model.impl) == "etude"
        try:
            loop.parallel.require(table, experts=expert_count(recipe), own=own)
        except ValueError as error:
            raise RecipeError([str(error)]) from None


def require_gpus(run: Run, selected: list[str]) -> None:
    """Raises DeviceMissing now, and not hours later, if a stage that is still to run would find no GPU, or fewer than its ranks on this machine."""
    ahead = [step.stage for step in run.plan(selected) if step.action != "skip"]
    on_gpus = {table: loop for table, loop in _loops(run, ahead).items() if loop.device == "cuda"}
    if not on_gpus:
        return
    from etude.learn.parallel.rank_device import require_device

    world = _launched()
    for table, loop in on_gpus.items():
        ranks = loop.parallel.ranks
        require_device(loop.device, ranks if world is None or ranks == 1 else world.of_machine, f"{table}.device")


def loops_over_ranks(run: Run, selected: list[str]) -> dict[str, Any]:
    """The loops of the selected stages that train over ranks, by table."""
    return {table: loop for table, loop in _loops(run, selected).items() if loop.parallel.ranks > 1}


def require_world(split: Mapping[str, Any], ranks: int, started: str) -> None:
    """Raises RecipeError where not all of the loops over ranks have this number of them, or none is there. `started` says who has it."""
    from etude.pipeline.recipe.errors import RecipeError

    if not split:
        raise RecipeError([f"no selected stage has a layout, and {started} processes; set its loop.parallel"])
    for table, loop in split.items():
        if (have := loop.parallel.ranks) != ranks:
            raise RecipeError([f"{table}.parallel has {have} ranks, and {started} processes; make them the same"])


def _launched() -> LaunchedWorld | None:
    """Raises RecipeError where the environment is not torchrun's."""
    from etude.learn.parallel.launched import LaunchedWorld, NoLauncher
    from etude.pipeline.recipe.errors import RecipeError

    try:
        return LaunchedWorld.find()
    except NoLauncher as error:
        raise RecipeError([str(error)]) from None


def _find_checkpoints(recipe: Recipe) -> None:
    """What the recipe names relative to the repository is found from any folder. From its root the name stays as it is."""
    from etude.pipeline.recipe.read import find_checkpoint
    from etude.pipeline.run.hub_checkpoints import named_checkpoints

    for key, name in named_checkpoints(recipe).items():
        found = find_checkpoint(name)
        if found is not None and found != Path(name):
            section, _, field = key.partition(".")
            setattr(getattr(recipe, section), field, str(found))

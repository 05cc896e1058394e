"""The two stages: goals are proposed, three are drawn, a builder has five tries from the untouched tree, and what passes is replayed.

A try is a recipe, run from its first step in a fresh sandbox over the untouched tree: what passes has therefore been replayed already, and
nothing of an exploration is in it. It passes if every step ends with 0, no file of the tree is changed by it, and the three goals behave in
a second fresh sandbox that starts from the snapshot and has no network. After five the project is discarded with the last reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.content import LINK, mode_of
from etude.tasks.environment.toolchains import with_toolchain
from etude.tasks.generate.install.goal import Goal, choose_goals
from etude.tasks.generate.install.pair import (
    RULES,
    Builder,
    GoalJudge,
    PatternJudge,
    RecipeTrial,
    RuleBuilder,
    RuleSetter,
    Setter,
    why,
)
from etude.tasks.generate.install.recipe import InstallRecipe
from etude.tasks.generate.install.site import first_failure, open_site, run_command
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.running.pin import default_cache
from etude.tasks.running.pytest_tools import with_pytest

TRIES = 5
GOAL_TIMEOUT_S = 240.0
PATIENCE_S = 240.0  # after which the rules begin no other try: a list of projects goes on


async def build(
    project: Fetched,
    pool: SandboxPool,
    setter: Setter | None = None,
    builder: Builder | None = None,
    judge: GoalJudge | None = None,
) -> tuple[InstallRecipe, list[RecipeTrial]]:
    """The recipe that passes, its snapshot made, and the tries before it. Raises Discarded, InfraError, UserError."""
    setter, builder = setter or RuleSetter(), builder or RuleBuilder()
    try:
        goals = choose_goals(await setter.goals(project), f"{project.wanted.id} {project.digest}")
    except ProjectDiscarded as error:
        raise ProjectDiscarded(str(error), builder.name) from error
    if not goals:
        raise ProjectDiscarded("no goal could be proposed for it", builder.name)
    if builder.name == RULES and not any(goal.tests for goal in goals):
        raise ProjectDiscarded(
            f"the rules find no test file that they could run ({project.wanted.language})", builder.name
        )
    trials: list[RecipeTrial] = []
    began = time.monotonic()
    for _ in range(TRIES):
        if builder.name == RULES and trials and (took := time.monotonic() - began) > PATIENCE_S:
            raise ProjectDiscarded(f"{len(trials)} tries in {took:.0f} s: {why(trials)}", RULES)
        try:
            recipe = await builder.build(project, goals, trials)
        except ProjectDiscarded as error:
            raise ProjectDiscarded(str(error), builder.name) from error
        here = _of_recipe(goals, recipe) if builder.name == RULES else goals
        objection, output = await replay(recipe, project.files, here, pool, judge)
        if not objection:
            return recipe, trials
        trials.append(RecipeTrial(recipe, objection, output))
    raise ProjectDiscarded(f"{TRIES} tries: {why(trials)}", builder.name)


def _of_recipe(goals: Sequence[Goal], recipe: InstallRecipe) -> list[Goal]:
    """With the commands that the recipe names: a try of the rules may run the same tests in another way."""
    return [replace(goal, command=command) for goal, command in zip(goals, recipe.goals, strict=True)]


async def replay(
    recipe: InstallRecipe,
    files: Mapping[str, bytes],
    goals: Sequence[Goal],
    pool: SandboxPool,
    judge: GoalJudge | None = None,
) -> tuple[str, str]:
    """Makes the snapshot of a recipe and holds it against goals: what speaks against it, and what was printed then. Raises InfraError."""
    try:
        site = await open_site(recipe, files, pool)
    except UserError as error:
        return f"no sandbox can be made with its variables: {error}", ""
    try:
        failed = await first_failure(site, recipe.steps)
        if failed is not None:
            step, done = failed
            how = "took too long" if done.timed_out else f"ended with {done.rc}"
            return f"step `{' '.join(step.split())[:80]}` {how}: {done.end}", done.text
        if changed := await _touched(site, files):
            return f"its steps change the tree's own {changed}", ""
        await site.snapshot(recipe.snapshot)
    finally:
        await site.kill()
    return await _behaves(recipe, goals, pool, judge or PatternJudge())


async def _behaves(
    recipe: InstallRecipe, goals: Sequence[Goal], pool: SandboxPool, judge: GoalJudge
) -> tuple[str, str]:
    project = f"{recipe.project}-{recipe.version}"
    try:
        box = await pool.create(fork(recipe))
    except UserError as error:
        return f"no sandbox starts from what it leaves: {error}", ""
    try:
        for goal in goals:
            done = await run_command(box, goal.command, GOAL_TIMEOUT_S)
            if done.timed_out:
                return f"{goal.short_command} hangs: it took longer than {GOAL_TIMEOUT_S:.0f} s", done.text
            if objection := await judge.objection(goal, done.rc, done.text, project):
                return objection, done.text
    finally:
        await box.kill()
    return "", ""


def fork(recipe: InstallRecipe) -> SandboxSpec:
    """A sandbox of the finished environment, as tasks get it: no network."""
    machine = recipe.environment
    spec = SandboxSpec(
        snapshot=recipe.snapshot,
        env=dict(recipe.env),
        start_script=recipe.start_script,
        memory_mb=machine.memory_mb,
        disk_mb=machine.disk_mb,
        pids=machine.pids,
    )
    if recipe.language != "python":
        return with_toolchain(spec, recipe.language)
    found = with_pytest(SandboxSpec(), default_cache())
    path = ":".join(one["PYTHONPATH"] for one in (found.env, recipe.env) if "PYTHONPATH" in one)
    env = {**recipe.env, **found.env, "PYTHONPATH": path}
    return with_toolchain(replace(spec, env=env, read_only_binds=found.read_only_binds), recipe.language)


async def _touched(site: Sandbox, files: Mapping[str, bytes]) -> str:
    """A file of the tree that is not as it was; empty if all are."""
    root = site.spec.workdir.strip("/") + "/"
    for change in await site.diff():
        path = change.path.removeprefix(root)
        if (
            path in files
            and mode_of(files[path]) != LINK
            and (
                change.kind == "removed" or await site.read(path, max_bytes=len(files[path]) + 1) != bytes(files[path])
            )
        ):
            return path
    return ""

"""Stage two by a model: it installs the project in a sandbox of its own, and hands in the steps.

That sandbox is thrown away: its answer is a recipe, which the caller replays in a fresh one (`building.replay`). Each try is a
separate session over the untouched tree, with what was tried before and why it failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import get_args

from etude.agent.harness.task_facts import TaskFacts
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import WORKDIR
from etude.tasks.environment.environment import DEPS, Environment, Runner, TestPlan
from etude.tasks.generate.install.agents.answers import BuildAnswer, build
from etude.tasks.generate.install.agents.interview import Model, NoAnswer, interview
from etude.tasks.generate.install.container import Container, container
from etude.tasks.generate.install.goal import Goal
from etude.tasks.generate.install.pair import RecipeTrial
from etude.tasks.generate.install.recipe import INSTALL_MEMORY_MB, InstallRecipe
from etude.tasks.generate.install.rules import python_layout
from etude.tasks.generate.install.site import open_site
from etude.tasks.generate.install.system import notes
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched

MOST_OUTPUT = 4_000  # characters of what a failed try printed
MOST_RUNS, MOST_RUN = 30, 400  # commands of a container file, and characters of each
LANGUAGES = {
    "python": f"For Python make a virtual environment, python3 -m venv {DEPS}/venv, and put its bin on PATH.",
    "javascript": f"For JavaScript install below {DEPS}/js and link {WORKDIR}/node_modules to its node_modules.",
}


@dataclass
class ModelBuilder:
    """`today`: packages published later are not seen, so that a recipe stays what it is."""

    model: Model
    pool: SandboxPool
    today: str = field(default_factory=lambda: date.today().isoformat())

    @property
    def name(self) -> str:
        return self.model.label

    async def build(self, project: Fetched, goals: Sequence[Goal], trials: Sequence[RecipeTrial]) -> InstallRecipe:
        """Raises Discarded where the model has no answer, InfraError."""
        wanted = project.wanted
        box = await open_site(self._recipe(project, goals, BuildAnswer((), TestPlan())), project.files, self.pool)
        try:
            facts = TaskFacts(f"{wanted.id}.build-{len(trials) + 1}", _user_prompt(project, goals, trials))
            answer = await interview(
                self.model, box, facts, lambda text: build(text, project.files), wanted.id, reads_only=False
            )
        except NoAnswer as error:
            raise ProjectDiscarded(f"no recipe: {error}", self.name) from error
        finally:
            await box.kill()
        return self._recipe(project, goals, answer)

    def _recipe(self, project: Fetched, goals: Sequence[Goal], answer: BuildAnswer) -> InstallRecipe:
        wanted = project.wanted
        return InstallRecipe(
            wanted.name,
            wanted.version,
            wanted.language,
            project.digest,
            answer.steps,
            answer.tests,
            answer.env,
            self.today,
            tuple(goal.command for goal in goals),
            self.name,
            answer.start_script,
            tuple(python_layout.distribution(wanted.in_registry, project.texts())),
        )


def _user_prompt(project: Fetched, goals: Sequence[Goal], trials: Sequence[RecipeTrial]) -> str:
    words = (Path(__file__).parent / "build.md").read_text(encoding="utf-8").strip()
    wanted = project.wanted
    listed = [f"{number}. `{goal.command}`\n   {_described(goal)}" for number, goal in enumerate(goals, 1)]
    return words.format(
        workdir=WORKDIR,
        deps=DEPS,
        project=wanted.name,
        version=wanted.version,
        language=wanted.language,
        goals="\n".join(listed),
        languages=LANGUAGES.get(wanted.language, ""),
        runners=", ".join(get_args(Runner)),
        build_mb=INSTALL_MEMORY_MB,
        memory_mb=Environment("", "").memory_mb,
        hints=_hints(container(project.texts())),
        tried="".join(_failed(number, one) for number, one in enumerate(trials, 1)),
    )


def _hints(wanted: Container) -> str:
    """What the project's own container file runs, as words for the builder."""
    if not wanted:
        return ""
    lines = [
        f"\nThe project brings {' and '.join(wanted.sources)}. It is not run here, but tells what the authors need:"
    ]
    lines += [f"    from {image}" for image in wanted.images]
    lines += [f"    env {name}={value}" for name, value in wanted.env]
    lines += [f"    run {' '.join(run.split())[:MOST_RUN]}" for run in wanted.runs[:MOST_RUNS]]
    lines += [f"({note}: do without, or put a mock in its place.)" for note in notes(wanted)]
    return "\n".join(lines) + "\n"


def _described(goal: Goal) -> str:
    more = [] if goal.status is None else [f"exit status {goal.status}"]
    more += [f"the output has {goal.pattern!r}"] if goal.pattern else []
    more += ["at least half of the tests pass"] if goal.tests else []
    return f"{goal.description} ({', '.join(more)})" if more else goal.description


def _failed(number: int, trial: RecipeTrial) -> str:
    steps = "\n".join(f"    {step[:600]}" for step in trial.recipe.steps)
    output = f"\nIt printed, at its end:\n{trial.output[-MOST_OUTPUT:]}" if trial.output else ""
    return f"\nTry {number} failed: {trial.objection}\nIts steps were:\n{steps}{output}\n"

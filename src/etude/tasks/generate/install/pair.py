"""Who sets goals, who builds and who judges: three protocols, and the embedded ones that go by rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from types import ModuleType
from typing import Protocol

from etude.tasks.generate.install.container import container
from etude.tasks.generate.install.goal import Goal
from etude.tasks.generate.install.recipe import InstallRecipe
from etude.tasks.generate.install.rules import go_rules, node_plan, node_rules, python_layout, python_rules
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched

RULES = "rules"
EDITION = 8  # of the rules: what an older one installed is installed again
BUILD_STEP = "/build "  # in the objection to a step that builds the project itself


@dataclass(frozen=True)
class RecipeTrial:
    """A recipe that was tried and what spoke against it; `output` is all that the failing command printed."""

    recipe: InstallRecipe
    objection: str
    output: str = ""


def why(trials: Sequence[RecipeTrial]) -> str:
    """The last objection; where the tests then lacked what the project's own build should have made, why that failed too."""
    last = trials[-1].objection
    builds = [one.objection for one in trials if BUILD_STEP in one.objection]
    return f"{last}; its own build: {builds[0]}" if builds and BUILD_STEP not in last else last


class Setter(Protocol):
    """Stage one. Reads the tree, runs nothing."""

    async def goals(self, project: Fetched) -> list[Goal]: ...


class Builder(Protocol):
    """Stage two. Answers with a recipe for the untouched tree; what was tried before it failed. Raises Discarded if it gives up."""

    @property
    def name(self) -> str: ...

    async def build(self, project: Fetched, goals: Sequence[Goal], trials: Sequence[RecipeTrial]) -> InstallRecipe: ...


class GoalJudge(Protocol):
    """Holds what a goal's command printed against what was described."""

    async def objection(self, goal: Goal, rc: int, output: str, project: str) -> str:
        """Why it is not the described one; empty if it is. Raises InfraError."""
        ...


class PatternJudge:
    """By the goal's status, pattern and share of passing tests."""

    async def objection(self, goal: Goal, rc: int, output: str, project: str) -> str:
        return goal.objection(rc, output)


@dataclass(frozen=True)
class BuildVariant:
    """How a try differs from the first: without the project's own lists (`plain`), with the index as of its release (`then`), without
    building the project itself (`bare`)."""

    plain: bool
    then: bool
    bare: bool


class RuleSetter:
    """Goals by what projects of the language write about themselves."""

    async def goals(self, project: Fetched) -> list[Goal]:
        with _readable(project):
            return _rules(project).goals(project)


@dataclass
class RuleBuilder:
    """First with what the project asks for, then with what the errors ask for, then without its own lists and with what was on the index
    when it was released. `today`: packages published later are not seen, so that a recipe stays what it is."""

    today: str = field(default_factory=lambda: date.today().isoformat())
    name: str = RULES

    async def build(self, project: Fetched, goals: Sequence[Goal], trials: Sequence[RecipeTrial]) -> InstallRecipe:
        before = [one.recipe for one in trials]
        with _readable(project):
            for manner in _manners(project, trials):
                recipe = self._recipe(project, goals, trials, manner)
                if recipe not in before:
                    return recipe
        raise ProjectDiscarded(f"the rules know nothing more to try: {why(trials)}", RULES)

    def _recipe(
        self, project: Fetched, goals: Sequence[Goal], trials: Sequence[RecipeTrial], how: BuildVariant
    ) -> InstallRecipe:
        rules, wanted = _rules(project), self._wanted(project, trials)
        declared = container(project.texts())
        if not how.plain:
            wanted = [*dict.fromkeys([*(declared.pip if project.wanted.language == "python" else ()), *wanted])]
        until = project.released if how.then and project.released else self.today
        steps = rules.steps(project, wanted, plain=how.plain, bare=how.bare)
        deny = tuple(python_layout.distribution(project.wanted.in_registry, project.texts()))
        if project.wanted.language == "javascript":
            deny = tuple(node_rules.own_packages(project))
        if project.wanted.language == "javascript" and any(
            node_rules.needs_itself(project, one.output) for one in trials
        ):
            steps, deny = (*steps, *node_rules.in_place_of_copies(project)), ()
        plan = node_plan.plan(project, how.bare) if rules is node_rules else rules.plan(project)
        return InstallRecipe(
            project.wanted.name,
            project.wanted.version,
            project.wanted.language,
            project.digest,
            steps,
            plan,
            {**dict(declared.env), **rules.env(project)},
            until,
            tuple(
                node_rules.with_plan(project, goal, plan).command if rules is node_rules else goal.command
                for goal in goals
            ),
            deny=deny,
            hosts=go_rules.hosts() if project.wanted.language == "go" else (),
        )

    def _wanted(self, project: Fetched, trials: Sequence[RecipeTrial]) -> list[str]:
        found: list[str] = []
        for one in trials:
            found += _rules(project).learned(project, one.output, found)
        return found


def _manners(project: Fetched, trials: Sequence[RecipeTrial]) -> list[BuildVariant]:
    """In the order to try: plain once a step failed (a listed need can't be had); of the release's own time every other try after the
    second, and whenever errors teach nothing more (a suite that today's runner no longer takes); bare as the language's rules say."""
    objections = [one.objection for one in trials]
    plain = any(one.startswith("step") and "403" not in one for one in objections)
    then = len(trials) >= 2 and len(trials) % 2 == 0
    found = [(plain, then), (plain, not then), (not plain, then), (not plain, not then)]
    if project.wanted.language == "javascript":
        bare = node_rules.other_build(project, [one.output for one in trials])
        return [BuildVariant(*one, one_bare) for one_bare in (bare, not bare) for one in found]
    bare = project.wanted.language == "python" and any(BUILD_STEP in one for one in objections)
    return [BuildVariant(*one, bare) for one in found]


@contextmanager
def _readable(project: Fetched) -> Iterator[None]:
    """A repository's own files may hold anything where a table or a list belongs: such a project is left out, and the list goes on."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise ProjectDiscarded(f"its own settings are not of the form that the rules read ({why})", RULES) from error


RULES_OF: dict[str, ModuleType] = {"python": python_rules, "javascript": node_rules, "go": go_rules}


def _rules(project: Fetched) -> ModuleType:
    language = project.wanted.language
    if language not in RULES_OF:
        raise ProjectDiscarded(
            f"the rules install Python, JavaScript and Go, not {language}: give a builder that is a model (--builder)",
            RULES,
        )
    return RULES_OF[language]

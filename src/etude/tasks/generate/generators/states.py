"""Two states of an installed project become a draft: the agent starts from the earlier one, the later one is the reference.

Both run in the environment of the project as it is installed, so that settings (which may name other dependencies) are the installed
one's; tests are those of the later state. What only a release carries (PKG-INFO) is in neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.prompts.content import names
from etude.tasks.generate.prompts.facts import KEY, Facts
from etude.tasks.generate.prompts.interface import with_interface
from etude.tasks.generate.prompts.writing import template_prompts
from etude.tasks.leftovers import leftovers
from etude.tasks.protected import PROSE, SETTINGS, is_protected, is_test
from etude.tasks.task import Task
from etude.tasks.validation.change import PYTEST_FILE
from etude.tasks.validation.project import TaskDraft, prove_draft, task_of

MOST_FILES = 30  # of code: what is more was not one goal
TEST_FILES = 8
PLACES = 3  # files that a request names
STYLES = ("terse", "ambiguous", "full")


@dataclass(frozen=True)
class States:
    """`before`, `after`: whole trees. `operators`: which kind of change it was. `prompts`: as somebody typed them, where one did; else
    they are written from the facts."""

    id: str
    category: str
    generator: str
    facts: Facts
    before: Mapping[str, str]
    after: Mapping[str, str]
    operators: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)


def draft_states(project: InstalledProject, states: States) -> TaskDraft:
    """Raises CandidateRejected for a change that no test can show, or that is none of code."""
    before, after = with_project_settings(project, states.before), with_project_settings(project, states.after)
    differing = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    code = [path for path in differing if not is_protected(path)]
    if not any(not PROSE.search(path) for path in code):
        raise CandidateRejected("it changes tests, settings and documents alone: there is no code to write")
    if len(code) > MOST_FILES:
        raise CandidateRejected(f"it changes {len(code)} files, more than {MOST_FILES}: that was not one goal")
    tests = _tests(project, after, differing)
    draft = TaskDraft(
        id=states.id,
        category=states.category,
        level=states.operators[0],
        prompts=dict.fromkeys(STYLES, states.facts.headline),
        environment=project.environment,
        base=project.files,
        changed={path: text for path, text in before.items() if project.files.get(path) != text},
        removed=sorted(path for path in project.files if path not in before),
        solution={path: after[path] for path in code if path in after},
        gone=[path for path in code if path not in after],
        hidden={path: after[path] for path in differing if is_protected(path) and path in after},
        hidden_removed=[path for path in differing if is_protected(path) and path not in after],
        tests=tests,
    )
    return _with_prompts(draft, project, states)


async def prove_states(project: InstalledProject, bench: ProofContext, states: States) -> Task:
    """Raises CandidateRejected, InfraError."""
    return await prove_draft(
        draft_states(project, states), bench.pool, bench.timeout_s, flaky=frozenset(project.baseline.flaky)
    )


def _with_prompts(draft: TaskDraft, project: InstalledProject, states: States) -> TaskDraft:
    """With prompts, and metadata as the contract asks."""
    facts = with_interface(task_of(draft), _placed(states.facts, draft))
    metadata = {
        **states.metadata,
        "generator": states.generator,
        "operators": list(states.operators),
        "origin": project.origin,
        "licence": project.licence,
    }
    if states.prompts:
        missing = "".join(f"- `{name}`\n" for name in facts.interface)
        full = states.prompts["full"] + (f"\n\n## Interface\n\n{missing}" if missing else "")
        return replace(draft, prompts={**states.prompts, "full": full}, metadata=metadata)
    metadata[KEY] = facts.to_record()
    prompts = {str(style): text for style, text in template_prompts(states.category, facts, states.id).items()}
    return replace(draft, prompts=prompts, metadata=metadata)


def _placed(facts: Facts, draft: TaskDraft) -> Facts:
    """With the files that the reference changes, or their folder where they are many, if the request itself names no feature."""
    if facts.place or names(facts.headline):
        return facts
    paths = sorted(path for path in {*draft.solution, *draft.gone} if not PROSE.search(path))
    if len(paths) > PLACES:
        paths = sorted({path.rpartition("/")[0] or "." for path in paths})[:PLACES]
    return replace(facts, place=", ".join(f"`{path}`" for path in paths if path != "."))


def with_project_settings(project: InstalledProject, files: Mapping[str, str]) -> dict[str, str]:
    """The tree with the installed project's settings."""
    noise = leftovers(files) | {path for path in files if path.rpartition("/")[2] == "PKG-INFO"}
    kept = {path: text for path, text in files.items() if not _is_setting(path) and path not in noise}
    return kept | {path: text for path, text in project.files.items() if _is_setting(path)}


def _is_setting(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name in SETTINGS and name != "conftest.py" and not is_test(path)


def _tests(project: InstalledProject, after: Mapping[str, str], differing: list[str]) -> list[str]:
    """The test files that changed; where none did, those that the project names and that speak of a module which changed."""
    known = set(project.baseline.by_file) | set(project.environment.tests.files)
    runnable = [path for path in after if is_test(path) and (PYTEST_FILE.search(path) or path in known)]
    changed = sorted(path for path in runnable if path in differing)
    stems = {path.rpartition("/")[2].partition(".")[0] for path in differing if not is_protected(path)}
    found = changed or sorted(path for path in runnable if any(stem in after[path] for stem in stems))
    if not found:
        raise CandidateRejected(
            "no test file speaks of what it changes: nothing shows whether the request is fulfilled"
        )
    if not changed and len(found) > TEST_FILES:
        raise CandidateRejected(f"it changes no test, and {len(found)} test files speak of its modules")
    return found

"""Generator `migration`: deprecated generics of `typing` go from a whole project, a folder of it, or one module with many of them (PEP 585).

Nothing that a project's own tests see changes by it, so a hidden test reads the modules' syntax trees: none uses what was to go, in quotes
neither, and none lost its annotations. The project's tests of those modules show that they behave as before.
"""

from __future__ import annotations

import inspect
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from etude.core.bounded_python import parse_python
from etude.tasks.content import like
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.kinds.modules import modules, test_files
from etude.tasks.generate.generators.migration import stale as typing_checks
from etude.tasks.generate.generators.migration.generics import migrate_source
from etude.tasks.generate.prompts.checks import words
from etude.tasks.generate.prompts.facts import KEY, Facts
from etude.tasks.generate.prompts.interface import with_interface
from etude.tasks.generate.prompts.writing import template_prompts
from etude.tasks.protected import is_test
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, prove_draft, task_of
from etude.tasks.validation.suite_build import Candidate

NAME = "migration"
KIND = "typing-generics"
FEWEST = 8  # lines that change of a module that is a task of its own
TESTS_S = 60.0  # of the other tests that are run; those that mention the modules most come first
HIDDEN = "test_no_deprecated_generics.py"


@dataclass(frozen=True)
class Scope:
    """`paths` are migrated, `kept` stay: there a new name would mean something else."""

    name: str
    description: str
    paths: tuple[str, ...]
    kept: tuple[str, ...] = ()


class Migration:
    name = NAME
    category = "migrations"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        done = rewrite_modules(project)
        found = scopes(project, done)
        rest = found[1:]
        random.Random(f"migration {project.name} {seed}").shuffle(rest)
        for scope in [*found[:1], *rest]:
            task_id = f"migrations/{project.name}/{KIND}/{scope.name}"
            yield Candidate(task_id, partial(build, project, bench, scope, done, task_id))


def rewrite_modules(project: InstalledProject) -> dict[str, str]:
    """The modules that use what is deprecated, as they are without it; empty where that can't be written."""
    found: dict[str, str] = {}
    for path in modules(project):
        try:
            if typing_checks.stale(parse_python(project.files[path])):
                found[path] = like(project.files[path], migrate_source(project.files[path]))
        except CandidateRejected:
            found[path] = ""
        except (SyntaxError, ValueError):
            continue  # of another Python: no module of this one
    return found


def scopes(project: InstalledProject, done: Mapping[str, str]) -> list[Scope]:
    """The whole first, then folders, then modules; none twice."""
    able = [path for path, text in done.items() if text]
    if not able:
        return []
    kept = tuple(path for path, text in done.items() if not text)
    found = [Scope("all", "all modules", tuple(able), kept)]
    folders = sorted({str(PurePosixPath(path).parent) for path in able})
    for folder in folders if len(folders) > 1 else ():
        inside = tuple(path for path in able if str(PurePosixPath(path).parent) == folder)
        if len(inside) > 1:
            siblings = tuple(path for path in kept if str(PurePosixPath(path).parent) == folder)
            found.append(Scope(folder.replace("/", "."), f"all modules in `{folder}`", inside, siblings))
    for path in able if len(able) > 1 else ():
        if _lines(project.files[path], done[path]) >= FEWEST:
            found.append(Scope(path.removesuffix(".py").replace("/", "."), f"`{path}`", (path,)))
    return found


async def build(
    project: InstalledProject, bench: ProofContext, scope: Scope, done: Mapping[str, str], task_id: str
) -> Task:
    """Raises CandidateRejected, InfraError."""
    draft = draft_migration(project, scope, done, task_id)
    return await prove_draft(draft, bench.pool, bench.timeout_s, flaky=frozenset(project.baseline.flaky))


def draft_migration(project: InstalledProject, scope: Scope, done: Mapping[str, str], task_id: str) -> TaskDraft:
    """Raises CandidateRejected where no test of the project would notice a mistake."""
    tests = concerned_tests(project, scope)
    place = str(PurePosixPath(tests[0]).parent / HIDDEN)
    metadata = {
        "generator": NAME,
        "operators": [KIND],
        "origin": project.origin,
        "licence": project.licence,
        "must_say": sorted(words(f"typing {scope.description}") - words("all modules in")),
    }
    draft = TaskDraft(
        id=task_id,
        category=Migration.category,
        level=KIND,
        prompts=dict.fromkeys(("terse", "ambiguous", "full"), KIND),
        environment=project.environment,
        base=project.files,
        solution={path: done[path] for path in scope.paths},
        hidden={place: hidden_test(project, scope, place)},
        tests=[place, *tests],
        metadata=metadata,
    )
    facts = with_interface(task_of(draft), facts_of(scope))
    prompts = {str(style): text for style, text in template_prompts(Migration.category, facts, task_id).items()}
    return TaskDraft(**{**vars(draft), "prompts": prompts, "metadata": {**metadata, KEY: facts.to_record()}})


def concerned_tests(project: InstalledProject, scope: Scope) -> list[str]:
    """Test files that speak of the modules, the most telling first, as long as their time allows. Raises CandidateRejected."""
    stems = {PurePosixPath(path).stem for path in scope.paths} - {"__init__"}
    stems |= {PurePosixPath(path).parent.name for path in scope.paths} - {"", "src", "lib"}
    known = [path for path in project.baseline.by_file if path.endswith(".py") and path in project.texts] or test_files(
        project
    )
    counts = {path: sum(project.files[path].count(word) for word in stems) for path in known if is_test(path)}
    spent, kept = 0.0, []
    for path in sorted((path for path in counts if counts[path]), key=lambda path: (-counts[path], path)):
        spent += project.baseline.seconds.get(path, 0.0)
        if kept and spent > TESTS_S:
            break
        kept.append(path)
    if not kept:
        raise CandidateRejected("no test file names its modules, so no test would notice what breaks")
    return kept


def hidden_test(project: InstalledProject, scope: Scope, place: str) -> str:
    """Reads the modules and runs nothing of them; unittest, so that any runner of Python tests takes it."""
    up = len(PurePosixPath(place).parts) - 1
    least = {path: typing_checks.annotated(parse_python(project.files[path])) for path in scope.paths}
    source = inspect.getsource(typing_checks).replace("from __future__ import annotations\n", "")
    return (
        f"{source}\n\nimport unittest\nfrom pathlib import Path\n\n"
        f"ROOT = Path(__file__).resolve().parents[{up}]\n"
        f"ANNOTATED = {json.dumps(least, indent=4)}\n\n\n"
        "class Migrated(unittest.TestCase):\n"
        "    def test_no_module_uses_what_was_to_go(self):\n"
        "        for path in ANNOTATED:\n"
        '            self.assertEqual(stale(ast.parse((ROOT / path).read_text(encoding="utf-8"))), [], path)\n\n'
        "    def test_annotations_are_still_there(self):\n"
        "        for path, least in ANNOTATED.items():\n"
        '            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))\n'
        "            self.assertEqual(stale(tree), [], path)\n"
        "            self.assertGreaterEqual(annotated(tree), least, path)\n"
    )


def facts_of(scope: Scope) -> Facts:
    but = f", but for {_listed(scope.kept)}, where a new name would mean something else" if scope.kept else ""
    return Facts(
        headline=f"replace the deprecated generics of `typing` in {scope.description} by those that PEP 585 names{but}",
        place=_listed(scope.paths),
        expected="`List[int]` is `list[int]`, `Callable` comes from `collections.abc`, and so on; in quoted annotations too.",
        notes=(
            "`Optional`, `Union` and whatever else PEP 585 does not name stay as they are",
            "Annotations stay where they are, and behaviour does not change",
        ),
    )


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(f"`{path}`" for path in paths)


def _lines(old: str, new: str) -> int:
    left = Counter(new.splitlines())
    return (Counter(old.splitlines()) - left).total()

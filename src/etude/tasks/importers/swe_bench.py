"""SWE-bench rows as candidates: repositories from a folder of mirrors, results proved here, not believed.

A row's FAIL_TO_PASS must all be shown by running (three times before and after); of its PASS_TO_PASS those count that pass
here. Names are pytest's node ids; where a row has other names (of another runner's log), what is found here counts instead.
The prompt rule is the Composer 2 report's for SWE-bench Multilingual: the issue, prefixed, and no instructions about tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from etude.agent.git_links.git import GitError
from etude.tasks.environment.environment import Environment, TestPlan
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.importers.swe_bench_rows import SweBenchRow
from etude.tasks.importers.swe_grading import meant
from etude.tasks.patch import PatchRefused, apply_patch
from etude.tasks.protected import is_protected
from etude.tasks.task import Task
from etude.tasks.tree import TreeTooLarge, tree
from etude.tasks.validation.change import PYTEST_FILE, GradingContext, RepositoryChange, prove_change
from etude.tasks.validation.project import STYLES, TaskDraft, prove_draft
from etude.tasks.validation.suite_build import Candidate

PREFIX = "please solve this github issue"
LEVEL, CATEGORY, STYLE = "swe-bench", "debugging", "issue"


# Installs a project's tree and says what its tasks run in; raises CandidateRejected where it can't. The factory's, handed in from above.
Installer = Callable[[SweBenchRow, Mapping[str, str]], Awaitable[Environment]]


def candidates(
    rows: Sequence[SweBenchRow],
    mirrors: Path,
    bench: GradingContext,
    command: tuple[str, ...] = (),
    install: Installer | None = None,
) -> list[Candidate]:
    """In the order of the rows. `install`: for projects that need more than their own tree; without it the host's Python runs them."""
    return [Candidate(row.instance_id, _builder(row, mirrors, bench, command, install)) for row in rows]


def without_clone(rows: Sequence[SweBenchRow], mirrors: Path) -> dict[str, str]:
    """Which rows have no clone there, with the reason, before anything is run."""
    found: dict[str, str] = {}
    for row in rows:
        try:
            mirror_of(row.repo, mirrors)
        except CandidateRejected as error:
            image = f"; its image {row.image} is of a registry, from which nothing is fetched" if row.image else ""
            found[row.instance_id] = f"{error}{image}"
    return found


def _builder(
    row: SweBenchRow, mirrors: Path, bench: GradingContext, command: tuple[str, ...], install: Installer | None
) -> Callable[[], Awaitable[Task]]:
    async def build() -> Task:
        change = change_of(row, mirrors, command)
        if install is None:
            return named_as(row, await prove_change(change, bench, xfail=True))
        base = change.after if row.reversed else change.before  # the tree of the clone, as it is installed
        environment = await install(row, base)
        return named_as(
            row, await prove_draft(_draft(change, base, environment), bench.pool, bench.timeout_s, xfail=True)
        )

    return build


def on_host(command: tuple[str, ...] = ()) -> Installer:
    """Nothing is installed: the host's Python and what it has run the tests, by pytest or by `command`."""
    runner = "pytest" if not command else "junit" if any("{report}" in word for word in command) else "exit"

    async def install(row: SweBenchRow, files: Mapping[str, str]) -> Environment:
        return Environment(row.repo.rpartition("/")[2], row.base_commit[:12], tests=TestPlan(runner, command))

    return install


def _draft(change: RepositoryChange, base: Mapping[str, str], environment: Environment) -> TaskDraft:
    """The same change over an installed snapshot of the tree that was installed: the reference's tests are hidden, its sources the solution."""
    before, after = change.before, change.after
    differs = {path: text for path, text in after.items() if before.get(path) != text}
    gone = [path for path in before if path not in after]
    return TaskDraft(
        change.id,
        change.category,
        change.level,
        dict.fromkeys(STYLES, change.instruction),
        environment,
        base,
        changed={path: text for path, text in before.items() if base.get(path) != text},
        removed=[path for path in base if path not in before],
        solution={path: text for path, text in differs.items() if not is_protected(path)},
        gone=[path for path in gone if not is_protected(path)],
        hidden={path: text for path, text in differs.items() if is_protected(path)},
        hidden_removed=[path for path in gone if is_protected(path)],
        tests=change.tests or (),
        metadata=change.metadata,
        split="heldout",
    )


def change_of(row: SweBenchRow, mirrors: Path, command: tuple[str, ...] = ()) -> RepositoryChange:
    """Raises CandidateRejected."""
    if not row.patch.strip():
        raise CandidateRejected(
            f"its sources and tests are in the image {row.image or 'it does not name'} alone, of a registry: not here"
        )
    try:
        before = tree(mirror_of(row.repo, mirrors), row.base_commit)
        right = apply_patch(before.files, row.patch)
        if row.reversed:  # the patch makes the bug: taking it back is the reference
            before, right = replace(before, files=right), before.files
        after = apply_patch(right, row.test_patch)
    except (GitError, TreeTooLarge, PatchRefused) as error:
        raise CandidateRejected(f"its state can't be made: {error}") from error
    changed = tuple(path for path, text in after.items() if right.get(path) != text and PYTEST_FILE.search(path))
    named = {name.partition("::")[0] for name in row.fail_to_pass}
    tested = changed or tuple(path for path in after if path in named)
    return RepositoryChange(
        row.instance_id,
        CATEGORY,
        LEVEL,
        f"{PREFIX}\n\n{row.problem_statement.strip()}",
        before.files,
        after,
        command=command,
        visible=(),
        tests=tested,
        metadata={
            "project": row.repo,
            "base_commit": row.base_commit,
            "style": STYLE,
            "left_out": list(before.left_out),
            "form": row.form,
            "image": row.image,
            "created_at": row.created_at,
        },
    )


def named_as(row: SweBenchRow, task: Task) -> Task:
    """The task with the row's own lists of tests, read by the rule by which logs are graded (`swe_grading.meant`). Names that are none
    (`[100%]`) are left aside, and a FAIL_TO_PASS test that passes before the change too must pass, but shows nothing. Raises CandidateRejected where
    the lists are not what is found here."""
    named = {name: mapped for name in row.fail_to_pass if (mapped := junit_name(name)) is not None}
    if not named:
        return replace(task, metadata={**task.metadata, "names": "found here"})
    shown, kept = set(task.hidden["fail_to_pass"]), set(task.hidden["pass_to_pass"])
    found = {name: meant(mapped, (*shown, *kept)) for name, mapped in named.items()}
    if lost := [name for name, here in found.items() if not here]:
        raise CandidateRejected(f"FAIL_TO_PASS is not shown here: {lost[0]} ({len(lost)} of {len(named)})")
    mapped_names = [mapped for name in row.pass_to_pass if (mapped := junit_name(name)) is not None]
    tests = dict.fromkeys(test for here in found.values() for test in here)
    maintained = dict.fromkeys(test for name in mapped_names for test in meant(name, (*shown, *kept)))
    fail_to_pass = [test for test in (*tests, *maintained) if test in shown]
    if not set(fail_to_pass) & set(tests):
        raise CandidateRejected(f"FAIL_TO_PASS is not shown here: {next(iter(named))} passes before the change as well")
    pass_to_pass = [test for test in (*maintained, *tests) if test in kept]
    facts = {
        "names": "the row's",
        "pass_to_pass_missing_here": sum(not meant(name, (*shown, *kept)) for name in mapped_names),
        "names_that_are_none": len(row.fail_to_pass) + len(row.pass_to_pass) - len(named) - len(mapped_names),
        "fail_to_pass_that_passes_before": sum(test in kept for test in tests),
    }
    lists = {"fail_to_pass": list(dict.fromkeys(fail_to_pass)), "pass_to_pass": list(dict.fromkeys(pass_to_pass))}
    return replace(task, hidden={**task.hidden, **lists}, metadata={**task.metadata, **facts})


def junit_name(node_id: str) -> str | None:
    """`tests/test_a.py::TestB::test_c[1]` as JUnit reports name it: `tests.test_a.TestB::test_c[1]`. None for other names."""
    head, bracket, parameters = node_id.partition("[")
    file, *inner = head.split("::")
    if not file.endswith(".py") or not inner:
        return None
    module = file.removesuffix(".py").replace("/", ".")
    return f"{'.'.join([module, *inner[:-1]])}::{inner[-1]}{bracket}{parameters}"


def mirror_of(repo: str, mirrors: Path) -> Path:
    """The clone of `owner/name`, bare or not. Raises CandidateRejected."""
    places = [mirrors / repo, mirrors / repo.replace("/", "__"), mirrors / repo.rpartition("/")[2]]
    places += [place.with_name(f"{place.name}.git") for place in places]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise CandidateRejected(
            f"there is no clone of {repo} under {mirrors}: it is looked for as {places[0].name}, {places[1].name} and with .git"
        )
    return found

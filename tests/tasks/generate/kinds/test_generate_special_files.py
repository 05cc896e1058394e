"""Every generator proposes the same for a project whether or not its tree holds files that are no text, and keeps their modes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from grid_project import SHAPES, TESTS, grid

from etude.tasks.content import EXECUTABLE, LINK, FileBytes, FileText, file_text, mode_of
from etude.tasks.generate.generator import Generator, InstalledProject, ProofContext
from etude.tasks.generate.generators import release
from etude.tasks.generate.generators.bugs.concern import Concern
from etude.tasks.generate.generators.bugs.injection import with_bugs
from etude.tasks.generate.generators.bugs.listing import list_sites, sources
from etude.tasks.generate.generators.bugs.trial import BugTrial
from etude.tasks.generate.generators.migration.generator import draft_migration, rewrite_modules, scopes
from etude.tasks.generate.generators.registry import GENERATORS
from etude.tasks.generate.generators.release import ProjectRelease, states
from etude.tasks.generate.generators.states import draft_states as state_draft
from etude.tasks.generate.prompts.interface import signature
from etude.tasks.generate.sources.fetched import Fetched
from etude.tasks.task import Task

SPECIAL = {
    "logo.png": file_text(b"\x89PNG\0"),
    "grid/link.py": FileText("shapes.py", LINK),
    "grid/latin.py": file_text(b"# caf\xe9\ndef late(): return 1\n"),
    "docs/page.md": file_text(b"caf\xe9\n>>> 1\n1\n>>> 2\n2\n>>> 3\n3\n>>> 4\n4\n"),
    "notes/latin.js": file_text(b"// caf\xe9\nfunction late() { return 1 }\n"),
    "tests/test_latin.py": file_text(b"# caf\xe9\ndef test_nothing(): pass\n"),
}


def with_special(project: InstalledProject) -> InstalledProject:
    return replace(project, files={**project.files, **SPECIAL})


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS.keys())
async def test_files_that_are_no_text_change_no_proposal(bench: ProofContext, generator: Generator) -> None:
    project = grid({"grid/more.py": "def more(value):\n    return value + 1\n"})
    ids = [each.id for each in generator.candidates(project, bench, 0)]
    assert [each.id for each in generator.candidates(with_special(project), bench, 0)] == ids


def test_a_module_that_can_be_run_can_be_run_after_its_migration() -> None:
    text = "from typing import List\n\n\ndef f(value: List[int]) -> List[int]:\n    return value\n"
    project = with_special(grid({"grid/shapes.py": FileText(text + SHAPES, EXECUTABLE)}))
    done = rewrite_modules(project)
    draft = draft_migration(project, scopes(project, done)[0], done, "x")
    assert [mode_of(text) for text in draft.solution.values()] == [EXECUTABLE]


def test_of_two_releases_only_what_differs_is_in_the_reference() -> None:
    news = {"CHANGELOG.md": "# 1.0\n\n- Add the function more, which counts one more\n"}
    later = with_special(grid({**news, "grid/more.py": "def more(value):\n    return value + 1\n"}))
    later = replace(
        later,
        files={
            **later.files,
            "tests/test_more.py": "from grid.more import more\n\n\ndef test_more(): assert more(1) == 2\n",
        },
    )
    before = {path: text for path, text in later.files.items() if "more" not in path and path not in news}
    found = states(later, lambda project, back: ProjectRelease("0.9", {**before, "CHANGELOG.md": "# 0.9\n"}), 0, "x")
    draft = state_draft(later, found)
    assert set(draft.solution) == {"grid/more.py"} and set(draft.hidden) == {"tests/test_more.py"}


def test_a_reference_in_another_encoding_has_no_signature_that_can_be_read() -> None:
    solution = {"a.py": file_text(b"# caf\xe9\ndef f(): ...\n")}
    assert signature(Task("t", "c", "l", "", {}, (), "commands", solution=solution), "f") == "f"


def test_an_earlier_release_has_all_files_that_the_installed_one_has(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"logo.png": b"\x89PNG\0", "run.sh": FileBytes(b"echo\n", EXECUTABLE), "a.py": b"x = 1\n"}
    monkeypatch.setattr(release, "versions", lambda wanted, cache: ["1.0", "0.9"])
    monkeypatch.setattr(release, "fetch", lambda wanted, cache: Fetched(wanted, files, "sdist grid 0.9"))
    found = release.earlier_release(replace(grid(), origin="sdist grid 1.0"), 1)
    assert {path: text.encode() for path, text in found.files.items()} == files


def test_a_program_with_a_bug_can_be_run() -> None:
    project = grid(
        {"grid/shapes.py": FileText(SHAPES, EXECUTABLE), "tests/test_shapes.py": FileText(TESTS, EXECUTABLE)}
    )
    baseline = replace(project.baseline, by_file={"tests/test_shapes.py": ("test_clamp",)})
    project = replace(project, baseline=baseline)
    codes = sources(project.files)
    trial = BugTrial(project, ProofContext(None), Concern(project))  # type: ignore[arg-type]
    draft = with_bugs(trial, codes, [next(iter(list_sites(codes, 0)))], "x", "bug-injection")
    assert [mode_of(text) for text in (*draft.changed.values(), *draft.solution.values())] == [EXECUTABLE, EXECUTABLE]
    cut = trial.without_tests(draft, frozenset(["Shapes::test_clamp"]))
    assert mode_of({**draft.changed, **cut.changed, **cut.hidden}["tests/test_shapes.py"]) == EXECUTABLE

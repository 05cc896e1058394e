"""A rename and a move are whole in the reference, candidates are the same for the same seed, and a task is proved in real sandboxes."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from etude.tasks.audit import leaks
from etude.tasks.cheats.refactored import REFACTORED
from etude.tasks.content import EXECUTABLE, LINK, FileText, file_text, mode_of
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.refactor.generator import Refactor, draft_refactoring
from etude.tasks.generate.generators.refactor.move import move_symbol
from etude.tasks.generate.generators.refactor.rename import new_name, rename_symbol
from etude.tasks.generate.generators.refactor.sources import RefactorSymbol, Sources
from etude.tasks.generate.prompts.checks import words
from etude.tasks.generate.run.finalization import finalize_task
from etude.tasks.graders.canonical import program
from etude.tasks.registry import grade

WRAP = RefactorSymbol("ink/lines.py", "ink.lines", "wrap_line", "function")
COUNT = RefactorSymbol("ink/lines.py", "ink.lines", "count_lines", "function")


def test_a_rename_reaches_code_strings_comments_tests_and_prose(ink: InstalledProject) -> None:
    changed = rename_symbol(Sources(ink), WRAP, "fold_line")
    assert set(changed) == set(ink.files) - {"ink/marks.py"}
    assert not any("wrap_line" in text for text in changed.values())
    assert [ast.parse(text) for path, text in changed.items() if path.endswith(".py")]


def test_a_name_with_another_meaning_is_not_renamed(ink: InstalledProject) -> None:
    for line in (
        "def f(wrap_line): return wrap_line",
        "class A:\n    def wrap_line(self): ...",
        "print(object().wrap_line)",
    ):
        files = {**ink.files, "ink/marks.py": f"{line}\n"}
        with pytest.raises(CandidateRejected, match="means something else too"):
            rename_symbol(Sources(replace(ink, files=files)), WRAP, "fold_line")


def test_the_new_name_is_free(ink: InstalledProject) -> None:
    parse = replace(WRAP, name="parse_x")
    assert new_name(parse, frozenset()) == "read_x"
    assert new_name(parse, frozenset(("read_x",))) == "compute_parse_x"


def test_a_move_takes_its_imports_along_and_leaves_nothing(ink: InstalledProject) -> None:
    files = {**ink.files, "ink/pages.py": ink.files["ink/pages.py"].replace("lines.wrap_line(text)", "[text]")}
    sources = Sources(replace(ink, files=files))
    changed = move_symbol(sources, WRAP, "ink/marks.py")
    after = program({**files, **changed}, sources.python)
    assert "wrap_line" not in after.bound["ink.lines"] and "wrap_line" in after.bound["ink.marks"]
    assert after.resolve_name("ink.wrap_line") == "ink.marks.wrap_line"
    assert "from ink.lines import WIDTH" in changed["ink/marks.py"] and "import textwrap" in changed["ink/marks.py"]
    assert "from ink.marks import wrap_line" in changed["tests/test_ink.py"]
    assert "from ink.lines import count_lines\n" in changed["tests/test_ink.py"]


def test_a_move_that_imports_in_a_circle_is_refused(ink: InstalledProject) -> None:
    files = {**ink.files, "ink/marks.py": "from ink.pages import Page\n\nDOT = Page\n"}
    files["ink/pages.py"] = files["ink/pages.py"].replace(
        "from . import lines", "from ink.lines import count_lines\n\nN = count_lines"
    )
    with pytest.raises(CandidateRejected, match="import itself"):
        move_symbol(Sources(replace(ink, files=files)), COUNT, "ink/marks.py")


def test_candidates_are_the_same_for_the_same_seed(ink: InstalledProject, bench: ProofContext) -> None:
    ids = [[each.id for each in Refactor().candidates(ink, bench, seed)] for seed in (0, 0, 1)]
    assert ids[0] == ids[1] and sorted(ids[0]) == sorted(ids[2]) and len(ids[0]) == 8


def test_a_project_whose_tests_do_not_name_the_place_gives_no_task(ink: InstalledProject) -> None:
    files = {**ink.files, "tests/test_ink.py": "from ink import Page\n"}
    with pytest.raises(CandidateRejected, match="no test file would notice"):
        draft_refactoring(Sources(replace(ink, files=files)), COUNT, "move", "x", 0)


@pytest.mark.parametrize(
    "operation", [pytest.param("rename-ink.lines.wrap_line", marks=pytest.mark.nightly), "move-ink.lines.count_lines"]
)
async def test_a_task_is_proved_and_no_cheat_scores(ink: InstalledProject, bench: ProofContext, operation: str) -> None:
    (candidate,) = (each for each in Refactor().candidates(ink, bench, 0) if each.id.endswith(operation))
    task = await candidate.build()
    assert task.grader == "refactor" and not leaks(task) and task.metadata["facts"]["interface"]
    finished = await finalize_task(task, ink)
    assert finished.metadata["style"] in ("terse", "full") and set(task.metadata["must_say"]) <= words(
        finished.instruction
    )
    for name, cheat in REFACTORED.items():
        assert (await grade(task, cheat(task), bench.pool)).score == 0, name


def with_special(ink: InstalledProject, **files: str) -> InstalledProject:
    special = {
        "logo.png": file_text(b"\x89PNG wrap_line\0"),
        "wrap_line": FileText("ink/lines.py", LINK),
        "tests/test_latin.py": file_text(b"# caf\xe9\ndef test_nothing(): pass\n"),
        "ink/link.py": FileText("lines.py", LINK),
    }
    return replace(ink, files={**ink.files, **special, **files})


def test_files_that_are_no_text_do_not_hinder_a_refactoring(ink: InstalledProject, bench: ProofContext) -> None:
    project = with_special(ink)
    assert rename_symbol(Sources(project), WRAP, "fold_line") == rename_symbol(Sources(ink), WRAP, "fold_line")
    ids = [each.id for each in Refactor().candidates(project, bench, 0)]
    assert sorted(ids) == sorted(each.id for each in Refactor().candidates(ink, bench, 0))


def test_code_in_another_encoding_that_names_the_thing_refuses_it_with_its_path(ink: InstalledProject) -> None:
    project = with_special(ink, **{"old.py": file_text(b"# caf\xe9\nfrom ink.lines import wrap_line\n")})
    with pytest.raises(CandidateRejected, match=r"old\.py names it, and is no UTF-8 text"):
        rename_symbol(Sources(project), WRAP, "fold_line")


def test_prose_in_another_encoding_and_programs_keep_their_bytes_and_modes(ink: InstalledProject) -> None:
    prose = {"OLD.md": file_text(b"caf\xe9: `wrap_line(text)`\n")}
    program = {"ink/lines.py": FileText(ink.files["ink/lines.py"], EXECUTABLE)}
    draft, _ = draft_refactoring(Sources(with_special(ink, **prose, **program)), WRAP, "rename", "x", 0)
    new = draft.solution["OLD.md"]
    assert bytes(new.encode()).startswith(b"caf\xe9: `") and "`wrap_line" not in new
    assert mode_of(draft.solution["ink/lines.py"]) == EXECUTABLE

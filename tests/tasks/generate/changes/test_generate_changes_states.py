"""Two states of a project become one task: releases, commits and patches, with what a person asked for as the request."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from etude.tasks.environment.environment import Environment
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, InstalledProject
from etude.tasks.generate.generators import changelog, debian, history, recorded, release
from etude.tasks.generate.generators.registry import GENERATORS, bound
from etude.tasks.generate.generators.states import States, draft_states
from etude.tasks.generate.prompts.content import lacking_content
from etude.tasks.generate.prompts.facts import Facts, facts_of
from etude.tasks.generate.sources.projects import CatalogueProject

AFTER = {
    "m.py": "def one():\n    return 1\n",
    "tests/test_m.py": "from m import one\n\n\ndef test_one():\n    assert one() == 1\n",
    "setup.cfg": "[metadata]\nname = m\nversion = 2\n",
    "CHANGES.md": "# 2\n\n- `one` returns one,\n  not two\n\n# 1\n\n- begun\n",
}
BEFORE = {
    "m.py": "def one():\n    return 2\n",
    "tests/test_m.py": "",
    "old.py": "x = 1\n",
    "setup.cfg": "[metadata]\nname = m\nversion = 1\n",
    "CHANGES.md": "# 1\n\n- begun\n",
}
PROJECT = InstalledProject(Environment("m", "2"), AFTER, Baseline(frozenset()), "sdist m 2")


def states(before: dict[str, str], after: dict[str, str]) -> States:
    return States("features/m-2/x", "features", "x", Facts("make `one` right"), before, after, ("x",))


def test_the_agent_starts_from_the_earlier_state_in_the_later_environment():
    draft = draft_states(PROJECT, states(BEFORE, AFTER))
    seen = {path: text for path, text in {**draft.base, **draft.changed}.items() if path not in draft.removed}
    assert seen == {**BEFORE, "setup.cfg": AFTER["setup.cfg"]}
    assert draft.solution == {path: AFTER[path] for path in ("m.py", "CHANGES.md")} and draft.gone == ["old.py"]
    assert draft.hidden == {"tests/test_m.py": AFTER["tests/test_m.py"]} and draft.tests == ["tests/test_m.py"]


def test_a_request_without_a_name_of_its_own_says_where_it_is():
    named = draft_states(PROJECT, states(BEFORE, AFTER))
    said = replace(states(BEFORE, AFTER), facts=Facts("return the right number"))
    placed = draft_states(PROJECT, said)
    assert named.metadata["facts"]["place"] == "" and placed.metadata["facts"]["place"] == "`m.py`, `old.py`"
    assert lacking_content(facts_of(placed.metadata) or said.facts, placed.prompts["ambiguous"]) == []


def test_a_change_of_documents_alone_is_no_task():
    with pytest.raises(CandidateRejected, match="no code to write"):
        draft_states(PROJECT, states({**AFTER, "CHANGES.md": ""}, AFTER))


def test_a_change_of_half_the_project_is_no_task():
    many = {f"part{n}.py": "x = 1\n" for n in range(40)}
    with pytest.raises(CandidateRejected, match="not one goal"):
        draft_states(PROJECT, states(BEFORE, {**AFTER, **many}))


def test_a_changelog_tells_its_new_points_whole():
    assert changelog.requested_changes(BEFORE, AFTER) == ["`one` returns one, not two"]


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ("Fix issue with regex flags in shell completion. :issue:`2581`", "Fix issue with regex flags in shell completion."),
        ("[#506](https://example.org/506): fix: allow unsortable containers in In (fixes [#451](https://example.org/451))",
         "allow unsortable containers in In"),
        ("`#178 <https://example.org/178>`_: Add support for deprecating ``hook`` parameters.", "Add support for deprecating `hook` parameters."),
        ("Added `ieee_float` to `common`. PR submitted by Bob Peterson (#538).", "Added `ieee_float` to `common`."),
        ("Support TypedLiterals in get_parameters (pr649, by Khrol).", "Support TypedLiterals in get_parameters."),
        ("Use :func:`Signer.derive_key <pkg.Signer.derive_key>` for all keys", "Use `Signer.derive_key` for all keys"),
        ("docs: document the description field", ""),
        ("Drop support for Python 3.7. :pr:`372`", ""),
        ("Various small bugfixes", ""),
        ("Update CI environment.", ""),
        ("[Fix] `stringify`: avoid encoding arrayformat comma (#463)", "`stringify`: avoid encoding arrayformat comma"),
        ("**[New]** `parse`: add `strictNullHandling` option", "`parse`: add `strictNullHandling` option"),
        ("[Dev Deps] update `object-inspect`, `tape` and others", ""),
        ("[readme] remove travis badge; add github badges", ""),
        ("[an address](https://example.org) is taken as it is", "an address is taken as it is"),
    ],
)  # fmt: skip
def test_a_point_is_described_as_a_person_would_and_no_chore_is_asked_for(point: str, said: str):
    assert changelog.request_text(point) == said


def test_a_release_without_a_changelog_is_no_task():
    with pytest.raises(CandidateRejected, match="no changelog"):
        changelog.requested_changes({}, {"m.py": ""})


def test_a_release_of_chores_alone_is_no_task():
    with pytest.raises(CandidateRejected, match="none asks for code"):
        changelog.requested_changes({}, {"CHANGES": "- Update CI environment\n"})


def test_of_a_release_documents_stay_as_they_were_and_short_prompts_may_drop_no_point():
    project = replace(PROJECT, files={**AFTER, "docs/a.md": "new", "README.md": "new"})
    before = release.ProjectRelease("1", {**BEFORE, "docs/a.md": "old"})
    found = release.states(project, lambda _, back: before, 0, "features/m-2/release/0-back")
    draft = draft_states(project, found)
    assert draft.solution == {"m.py": AFTER["m.py"]} and draft.gone == ["old.py"]
    assert found.metadata["earlier"] == "1" and found.metadata["must_say"] == ["not", "one", "returns", "two"]


def test_a_release_whose_tests_are_the_earlier_ones_is_no_task():
    before = release.ProjectRelease("1", {**BEFORE, "tests/test_m.py": AFTER["tests/test_m.py"]})
    with pytest.raises(CandidateRejected, match="1 passes the tests of 2"):
        release.states(PROJECT, lambda _, back: before, 0, "features/m-2/release/0-back")


def test_the_release_before_is_the_next_lower_number_and_not_an_old_line_s_latest_mend():
    listed = ["6.10.5", "6.11.1", "6.11.0", "6.10.4", "6.11.0-rc.1", "6.9.7", "1.0a1"]
    assert release.before(listed, "6.11.0") == ["6.10.5", "6.10.4", "6.9.7"]
    with pytest.raises(CandidateRejected, match="no plain release"):
        release.before(listed, "6.11.0-rc.1")


def test_releases_are_those_of_a_package_index():
    assert [*release.Releases().candidates(replace(PROJECT, origin="npm m 2 x"), None, 0)]  # type: ignore[arg-type]
    assert len([*release.Releases().candidates(PROJECT, None, 0)]) == release.PAIRS  # type: ignore[arg-type]
    assert not [*release.Releases().candidates(replace(PROJECT, origin="git abc"), None, 0)]  # type: ignore[arg-type]


PATCH = """\
Description: one is one
 The function returned two.
Author: A Person <a@example.org>

--- a/m.py
+++ b/m.py
@@ -1,2 +1,2 @@
 def one():
-    return 2
+    return 1
"""
PACKAGE = {"m.py": BEFORE["m.py"], "debian/control": "Source: m\n"}
PATCHES = {"series": "# why\none.patch -p1\n", "one.patch": PATCH}


def test_a_patch_series_is_applied_in_order_and_the_packaging_is_not_shown():
    assert debian.series(PATCHES) == ["one.patch"]
    assert debian.states_at(PACKAGE, PATCHES, 0) == ({"m.py": BEFORE["m.py"]}, {"m.py": AFTER["m.py"]})


def test_a_patch_that_does_not_go_on_is_named():
    with pytest.raises(CandidateRejected, match="one.patch does not go on"):
        debian.states_at({**PACKAGE, "m.py": "nothing\n"}, PATCHES, 0)


def test_a_patch_goes_on_whatever_folder_its_paths_begin_with():
    other = {
        **PATCHES,
        "one.patch": PATCH.replace("a/m.py", "m-1.0.orig/m.py\t2020-01-01").replace("b/m.py", "m-1.0/m.py"),
    }
    assert debian.states_at(PACKAGE, other, 0) == debian.states_at(PACKAGE, PATCHES, 0)


def test_a_debian_package_has_a_candidate_a_patch():
    package = replace(PROJECT, origin="debian m 2-1 sha256:0")
    found = [*debian.DebianPatches(lambda _: PATCHES).candidates(package, None, 0)]  # type: ignore[arg-type]
    assert [one.id for one in found] == ["debugging/m-2/debian-patches/one"]
    assert not [*debian.DebianPatches(lambda _: PATCHES).candidates(PROJECT, None, 0)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        (PATCH, ("one is one", "The function returned two.")),
        ("From: A <a@b>\nSubject: [PATCH 1/2] Fix it\n\n---\n a | 2 +-\n\ndiff --git a/a b/a\n", ("Fix it", "")),
        ("--- a/m.py\n+++ b/m.py\n", ("", "")),
    ],
)
def test_a_description_is_read_by_dep3(patch: str, said: tuple[str, str]):
    assert debian.describe_patch(patch) == said


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def git(*words: str) -> None:
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-q")
    for number, message in enumerate(
        ("Begin it", "Count from one\n\nSigned-off-by: A <a@example.org>", "wip", "Add x")
    ):
        (tmp_path / "m.py").write_text(f"x = {number}\n")
        git("add", ".")
        git("commit", "-q", "-m", message)
    git("tag", "2")
    return tmp_path


def test_commits_are_goals_alone_and_runs_of_one_author_squashed(repository: Path):
    line = history.commits(repository, "HEAD")
    assert [commit.message for commit in line] == ["Begin it", "Count from one", "wip", "Add x"]
    assert [[commit.message for commit in run] for run in history.runs(line)] == [["Add x"], ["Count from one"]]
    said = [[commit.message for commit in run] for run in history.runs([*line[1:2], line[3]])]
    assert said == [["Add x"], ["Count from one"], ["Count from one", "Add x"]]


def test_a_project_without_a_known_repository_has_no_history(repository: Path):
    assert not [*history.HistoryGenerator().candidates(PROJECT, None, 0)]  # type: ignore[arg-type]
    found = [*history.HistoryGenerator({"m": repository}).candidates(PROJECT, None, 0)]  # type: ignore[arg-type]
    assert len(found) == 2 and len({one.id for one in found}) == 2


def test_a_making_gives_history_and_sessions_the_repositories_of_its_list(tmp_path: Path):
    listed = {"m": CatalogueProject("m", "git", "2", path=str(tmp_path)), "n": CatalogueProject("n", "sdist", "1")}
    found = bound(GENERATORS, listed, [tmp_path])
    assert list(found) == list(GENERATORS)
    assert found["history"] == history.HistoryGenerator({"m": tmp_path})
    assert found["recorded"] == recorded.RecordedSessions({"m": tmp_path}, (tmp_path,))
    assert found["release"] is GENERATORS["release"]

"""SWE-bench rows: read, named by row and field where they are wrong, and proved before they become tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from suites_lab import FIXED, NEW_TEST, OLD_TEST, Shop, bench_in

from etude.bench.suites.errors import SuiteError
from etude.bench.suites.making import Workshop, make_tasks
from etude.bench.suites.patch import PatchRefused, patched
from etude.bench.suites.proof import LeftOut
from etude.bench.suites.swe_bench import Row, candidates, change_of, junit_name, mirror_of, named_as, read_rows
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.task import Task


def row_of(shop: Shop) -> dict[str, object]:
    """The repair as a row: the source patch and the test patch of two commits that are then taken back."""
    patches = []
    for path, text in (("core.py", FIXED), ("tests/test_core.py", NEW_TEST)):
        shop.commit({path: text})
        patches.append(shop.git("diff", "HEAD~1", "HEAD") + "\n")
    shop.git("reset", "-q", "--hard", shop.base)
    return {
        "instance_id": "owner__shop-1",
        "repo": "owner/shop",
        "base_commit": shop.base,
        "patch": patches[0],
        "test_patch": patches[1],
        "problem_statement": "tally is off by one\n",
        "FAIL_TO_PASS": json.dumps(["tests/test_core.py::test_tally"]),
        "PASS_TO_PASS": ["tests/test_core.py::test_other", "tests/test_core.py::test_elsewhere"],
        "version": "1.0",
    }


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    return Shop(tmp_path)


def written(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_becomes_a_change_with_the_reports_prompt_and_no_word_about_tests(shop: Shop, tmp_path: Path):
    [row] = read_rows(written(tmp_path, row_of(shop)))
    change = change_of(row, tmp_path)
    assert change.instruction == "please solve this github issue\n\ntally is off by one" and change.visible == ()
    assert change.after == dict(change.before) | {"core.py": FIXED, "tests/test_core.py": NEW_TEST}
    assert change.before["tests/test_core.py"] == OLD_TEST and change.tests == ("tests/test_core.py",)


@pytest.mark.timeout(300)
@pytest.mark.nightly
async def test_a_row_is_proved_by_running_and_keeps_its_own_names(shop: Shop, tmp_path: Path):
    pool = await open_pool(SandboxSettings())
    rows = read_rows(written(tmp_path, row_of(shop)))
    wrong = replace(rows[0], instance_id="owner__shop-2", fail_to_pass=("tests/test_core.py::test_other",))
    absent = replace(rows[0], instance_id="owner__shop-3", repo="owner/absent")
    try:
        found = candidates([*rows, wrong, absent], tmp_path, bench_in(pool, tmp_path))
        [task], decided = await make_tasks(found, Workshop(tmp_path / "s", {}))
    finally:
        await pool.close()
    assert task.hidden["fail_to_pass"] == ["tests.test_core::test_tally"] and task.test_command == ()
    assert task.hidden["pass_to_pass"] == ["tests.test_core::test_other"]
    assert task.metadata["pass_to_pass_missing_here"] == 1
    reasons = {d.id: d.reason for d in decided}
    assert "FAIL_TO_PASS is not shown here: tests/test_core.py::test_other" in reasons["owner__shop-2"]
    assert "no clone of owner/absent" in reasons["owner__shop-3"]


def test_names_of_another_runner_give_way_to_what_is_found():
    task = Task("t", "debugging", "l", "i", {}, (), "commands", {"fail_to_pass": ["a::b"], "pass_to_pass": []})
    row = Row("t", "o/n", "c", "", "", "", ("test_b (pkg.tests.A)",), ())
    assert named_as(row, task).hidden == task.hidden and named_as(row, task).metadata["names"] == "found here"
    with pytest.raises(LeftOut, match="not shown here: x.py::y"):
        named_as(replace(row, fail_to_pass=("x.py::y",)), task)


@pytest.mark.parametrize(
    "node_id, name",
    [
        ("tests/test_a.py::test_b", "tests.test_a::test_b"),
        ("tests/test_a.py::TestB::test_c[x::y/1]", "tests.test_a.TestB::test_c[x::y/1]"),
        ("test_b (tests.A)", None),
        ("TestFoo/sub", None),
    ],
)
def test_node_ids_are_named_as_junit_reports_name_them(node_id: str, name: str | None):
    assert junit_name(node_id) == name


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"patch": None}, "row 1: patch must be a text"),
        ({"FAIL_TO_PASS": "[1"}, "row 1: FAIL_TO_PASS is no JSON"),
        ({"PASS_TO_PASS": {"a": 1}}, "row 1: PASS_TO_PASS must be a list"),
    ],
)
def test_a_wrong_row_is_named_with_its_field(tmp_path: Path, change: dict[str, object], complaint: str):
    row = dict.fromkeys(("instance_id", "repo", "base_commit", "patch", "test_patch", "problem_statement"), "x")
    with pytest.raises(SuiteError, match=complaint):
        read_rows(written(tmp_path, {**row, "FAIL_TO_PASS": [], "PASS_TO_PASS": [], **change}))


def test_rows_that_stand_twice_or_not_at_all_are_refused(shop: Shop, tmp_path: Path):
    row = row_of(shop)
    with pytest.raises(SuiteError, match="owner__shop-1 twice"):
        read_rows(written(tmp_path, row, row))
    with pytest.raises(SuiteError, match="no row"):
        read_rows(written(tmp_path))


def test_a_patch_adds_changes_renames_and_removes_or_is_refused_whole():
    files = {"a.py": "one\ntwo\n", "b.py": "b\n", "kept.py": "k\n"}
    patch = (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        "diff --git a/b.py b/b.py\ndeleted file mode 100644\n--- a/b.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
        "diff --git a/new/c.py b/new/c.py\nnew file mode 100644\n--- /dev/null\n+++ b/new/c.py\n@@ -0,0 +1 @@\n+c\n"
    )
    assert patched(files, patch) == {"a.py": "one\n2\n", "kept.py": "k\n", "new/c.py": "c\n"}
    assert patched(files, "") == files
    with pytest.raises(PatchRefused, match="a.py"):
        patched(files | {"a.py": "other\n"}, patch)


def test_a_mirror_is_found_by_each_of_its_usual_names(tmp_path: Path):
    for name in ("one/a", "two__b", "c.git"):
        (tmp_path / name).mkdir(parents=True)
    assert [mirror_of(repo, tmp_path).name for repo in ("one/a", "two/b", "three/c")] == ["a", "two__b", "c.git"]

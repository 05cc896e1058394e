"""SWE-bench rows: read, named by row and field where they are wrong, and proved before they become tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from suites_lab import FIXED, NEW_TEST, OLD_TEST, Shop, bench_in

from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.importers.swe_bench import candidates, change_of, junit_name, mirror_of, named_as, without_clone
from etude.tasks.importers.swe_bench_rows import SweBenchRow, read_rows
from etude.tasks.patch import PatchRefused, apply_patch
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import SuiteBuild, make_tasks


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
    [row], left_out = read_rows(written(tmp_path, row_of(shop)))
    assert left_out == {}
    change = change_of(row, tmp_path)
    assert change.instruction == "please solve this github issue\n\ntally is off by one" and change.visible == ()
    assert change.after == dict(change.before) | {"core.py": FIXED, "tests/test_core.py": NEW_TEST}
    assert change.before["tests/test_core.py"] == OLD_TEST and change.tests == ("tests/test_core.py",)


@pytest.mark.timeout(300)
@pytest.mark.nightly
async def test_a_row_is_proved_by_running_and_keeps_its_own_names(shop: Shop, tmp_path: Path):
    pool = await open_pool(SandboxSettings())
    rows, _ = read_rows(written(tmp_path, row_of(shop)))
    wrong = replace(rows[0], instance_id="owner__shop-2", fail_to_pass=("tests/test_core.py::test_other",))
    absent = replace(rows[0], instance_id="owner__shop-3", repo="owner/absent")
    try:
        found = candidates([*rows, wrong, absent], tmp_path, bench_in(pool, tmp_path))
        [task], decided = await make_tasks(found, SuiteBuild(tmp_path / "s", {}))
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
    row = SweBenchRow("t", "o/n", "c", "", "", "", ("test_b (pkg.tests.A)",), ())
    assert named_as(row, task).hidden == task.hidden and named_as(row, task).metadata["names"] == "found here"
    with pytest.raises(CandidateRejected, match="not shown here: x.py::y"):
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


GOOD = {
    "instance_id": "owner__shop-1",
    "repo": "owner/shop",
    "base_commit": "0123456789abcdef",
    "patch": "x",
    "test_patch": "x",
    "problem_statement": "x",
    "FAIL_TO_PASS": [],
    "PASS_TO_PASS": [],
}


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"patch": None}, "patch must be a text"),
        ({"patch": " "}, "patch is empty"),
        ({"problem_statement": ""}, "problem_statement is empty"),
        ({"problem_statement": "\ud800"}, "half of a surrogate pair"),
        ({"FAIL_TO_PASS": "[1"}, "FAIL_TO_PASS is no JSON"),
        ({"PASS_TO_PASS": {"a": 1}}, "PASS_TO_PASS must be a list"),
        ({"instance_id": ".."}, "can't be called '..'"),
        ({"instance_id": "../../x"}, "can't be called '../../x'"),
        ({"instance_id": "a\u0000b"}, "can't be called"),
        ({"instance_id": "x" * 300}, "200 characters at most"),
        ({"repo": "../../etc/x"}, "repo must be owner/name"),
        ({"repo": "/etc/x"}, "repo must be owner/name"),
        ({"base_commit": "--output=/tmp/x"}, "base_commit must be a commit's hexadecimal id"),
        ({"base_commit": "HEAD"}, "base_commit must be"),
    ],
)
def test_a_broken_or_hostile_row_is_left_out_by_its_number_and_the_others_are_read(
    tmp_path: Path, change: dict[str, object], complaint: str
):
    rows, left_out = read_rows(written(tmp_path, GOOD, {**GOOD, "instance_id": "owner__shop-2", **change}))
    assert [row.instance_id for row in rows] == ["owner__shop-1"]
    assert list(left_out) == ["row 2"] and complaint in left_out["row 2"]


def test_lines_that_are_no_rows_and_rows_that_stand_twice_are_named_and_a_file_without_any_is_refused(tmp_path: Path):
    path = written(tmp_path, GOOD, ["a list"], GOOD)
    path.write_text(path.read_text() + '{"torn": \n' + "[" * 5000 + "\n")
    rows, left_out = read_rows(path)
    assert len(rows) == 1 and list(left_out) == ["row 2", "row 3", "row 4", "row 5"]
    assert "no object but list" in left_out["row 2"] and "is already in row 1" in left_out["row 3"]
    assert all("its line is no JSON" in left_out[f"row {n}"] for n in (4, 5))
    with pytest.raises(TaskError, match="no row that can be used, 1 that can't; row 1: it is no object"):
        read_rows(written(tmp_path, 7))
    for name, data, complaint in (
        ("rows.parquet", b"PAR1\xff\xfe", "is Parquet"),
        ("rows.jsonl", b"\xff\xfe", "no UTF-8"),
        ("rows.json", b"[{", "no JSON array"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TaskError, match=complaint):
            read_rows(tmp_path / name)


def test_rows_without_a_clone_are_known_before_anything_is_run(tmp_path: Path):
    (tmp_path / "shop").mkdir()
    rows, _ = read_rows(written(tmp_path, GOOD, {**GOOD, "instance_id": "x-2", "repo": "owner/absent"}))
    found = without_clone(rows, tmp_path)
    assert list(found) == ["x-2"] and "no clone of owner/absent" in found["x-2"]


@pytest.mark.parametrize(
    "patch",
    [
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n",
        "diff --git a/../out.py b/../out.py\n--- /dev/null\n+++ b/../out.py\n@@ -0,0 +1 @@\n+x\n",
        "diff --git a/.git/config b/.git/config\n--- /dev/null\n+++ b/.git/config\n@@ -0,0 +1 @@\n+x\n",
    ],
)
def test_a_patch_that_leaves_the_tree_or_makes_a_link_out_of_it_is_refused(patch: str):
    with pytest.raises(PatchRefused):
        apply_patch({"a.py": "one\n"}, patch)


def test_a_patch_adds_changes_renames_and_removes_or_is_refused_whole():
    files = {"a.py": "one\ntwo\n", "b.py": "b\n", "kept.py": "k\n"}
    patch = (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
        "diff --git a/b.py b/b.py\ndeleted file mode 100644\n--- a/b.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
        "diff --git a/new/c.py b/new/c.py\nnew file mode 100644\n--- /dev/null\n+++ b/new/c.py\n@@ -0,0 +1 @@\n+c\n"
    )
    assert apply_patch(files, patch) == {"a.py": "one\n2\n", "kept.py": "k\n", "new/c.py": "c\n"}
    assert apply_patch(files, "") == files
    with pytest.raises(PatchRefused, match="a.py"):
        apply_patch(files | {"a.py": "other\n"}, patch)


def test_a_mirror_is_found_by_each_of_its_usual_names(tmp_path: Path):
    for name in ("one/a", "two__b", "c.git"):
        (tmp_path / name).mkdir(parents=True)
    assert [mirror_of(repo, tmp_path).name for repo in ("one/a", "two/b", "three/c")] == ["a", "two__b", "c.git"]

"""Every set of the SWE-bench family is read by its own keys; what can be tried is imported, what can't is reported; nothing is believed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.harbor import read_task
from etude.tasks.importers.importing import import_tasks
from etude.tasks.importers.swe_bench import candidates, change_of, on_host
from etude.tasks.importers.swe_bench_rows import RowError, SweBenchRow, read_rows, rows_of
from etude.tasks.validation.change import GradingContext

CLASSIC: dict[str, Any] = {
    "instance_id": "owner__shop-1", "repo": "owner/shop", "base_commit": "0123456789abcdef", "patch": "p", "test_patch": "t",
    "problem_statement": "it is off", "hints_text": "h", "created_at": "2024-01-01T00:00:00Z", "version": "1.2",
    "environment_setup_commit": "fedcba9876543210", "FAIL_TO_PASS": '["t.py::a"]', "PASS_TO_PASS": ["t.py::b"], "difficulty": "1 hour",
}  # fmt: skip
LISTS = {"FAIL_TO_PASS", "PASS_TO_PASS"}


def read(folder: Path, *rows: Any) -> list[SweBenchRow]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found, left_out = read_rows(path)
    assert left_out == {}, left_out
    return found


def test_every_field_of_a_classic_row_and_of_version_5_is_kept(tmp_path: Path):
    v5 = {
        "image": "org/img:1",
        "eval_script": "#!/bin/bash\n",
        "log_parser": "parse_log_pytest_v2",
        "eval_type": "fail_only",
    }
    [old, new] = read(tmp_path, CLASSIC, {**CLASSIC, **v5, "instance_id": "owner__shop-2"})
    assert (
        old.fail_to_pass == ("t.py::a",) and old.pass_to_pass == ("t.py::b",) and old.rest == {"difficulty": "1 hour"}
    )
    assert (old.version, old.hints_text, old.created_at[:4], old.environment_setup_commit[:4]) == (
        "1.2",
        "h",
        "2024",
        "fedc",
    )
    assert (new.image, new.eval_script, new.log_parser, new.eval_type) == (
        "org/img:1",
        "#!/bin/bash\n",
        "parse_log_pytest_v2",
        "fail_only",
    )
    assert (
        new.expected.eval_type == "fail_only"
        and new.expected.fail_to_pass == ("t.py::a",)
        and old.eval_type == "pass_and_fail"
    )


def test_repositories_whose_logs_name_failures_alone_are_judged_so_without_being_asked(tmp_path: Path):
    [row] = read(tmp_path, {**CLASSIC, "repo": "eslint/eslint"})
    assert row.eval_type == "fail_only"


def test_swe_rebench_tells_its_image_and_reader_next_to(tmp_path: Path):
    config = {
        "install": "pip install -e .",
        "test_cmd": "pytest -rA",
        "log_parser": "parse_log_pytest",
        "python": "3.9",
    }
    [row] = read(tmp_path, {**CLASSIC, "image_name": "swerebench/x", "install_config": json.dumps(config)})
    assert row.image == "swerebench/x" and row.install_config == config and row.log_parser == "parse_log_pytest"


def test_swe_bench_pro_has_lists_as_text_and_more_of_a_statement(tmp_path: Path):
    classic = {key: value for key, value in CLASSIC.items() if key not in LISTS}
    pro = {
        "fail_to_pass": "['t.py::it\\'s']",
        "pass_to_pass": '["b"]',
        "requirements": "- r",
        "interface": "def f()",
        "dockerhub_tag": "o.s-1",
    }
    [row] = read(tmp_path, {**classic, **pro})
    assert row.form == "swe-bench-pro" and row.fail_to_pass == ("t.py::it's",) and row.pass_to_pass == ("b",)
    assert row.problem_statement == "it is off\n\nRequirements:\n- r\n\nNew interfaces introduced:\ndef f()"
    assert row.image.endswith(":o.s-1")


def test_swe_smith_names_its_mirror_and_its_patch_is_the_bug(tmp_path: Path):
    keys = ("instance_id", "patch", "problem_statement", "FAIL_TO_PASS", "PASS_TO_PASS")
    smith = {key: CLASSIC[key] for key in keys} | {"repo": "swesmith/owner__shop.0123abcd", "image_name": "i"}
    [row] = read(tmp_path, smith)
    assert (row.form, row.repo, row.base_commit, row.reversed, row.test_patch) == (
        "swe-smith",
        "owner/shop",
        "0123abcd",
        True,
        "",
    )


def test_r2e_gym_needs_its_image_and_says_so(tmp_path: Path):
    r2e = {
        "repo_name": "sympy",
        "commit_hash": "0123456789abcdef",
        "docker_image": "n/sympy:1",
        "problem_statement": "x",
    }
    [row] = read(tmp_path, {**r2e, "expected_output_json": '{"test_a": "PASSED"}'})
    assert (
        row.form == "r2e-gym"
        and row.instance_id == "sympy-0123456789ab"
        and row.expected_output == {"test_a": "PASSED"}
    )
    with pytest.raises(CandidateRejected, match="in the image n/sympy:1 alone, of a registry"):
        change_of(row, tmp_path)


@pytest.mark.parametrize("columns", [True, False])
def test_multi_swe_bench_names_tests_by_what_they_did_in_three_runs(tmp_path: Path, columns: bool):
    def tests(**words: tuple[str, str, str]) -> dict[str, Any]:
        if columns:
            return {
                "name": list(words),
                **{key: [word[n] for word in words.values()] for n, key in enumerate(("run", "test", "fix"))},
            }
        return {name: dict(zip(("run", "test", "fix"), word, strict=True)) for name, word in words.items()}

    multi = {
        "org": "o", "repo": "r", "number": 7, "base": {"sha": "0123456789abcdef"}, "fix_patch": "p", "test_patch": "t",
        "resolved_issues": [{"number": 1, "title": "T", "body": "B"}], "title": "pull", "body": "request",
        "fixed_tests": tests(a=("FAIL", "FAIL", "PASS"), lost=("NONE", "FAIL", "FAIL")), "p2p_tests": tests(b=("PASS", "PASS", "PASS")),
    }  # fmt: skip
    [row] = read(tmp_path, multi)
    assert (row.instance_id, row.repo, row.problem_statement) == ("o__r-7", "o/r", "T\n\nB")
    assert row.fail_to_pass == ("a",) and row.pass_to_pass == ("b",) and row.base_commit == "0123456789abcdef"


@pytest.mark.parametrize(
    "change, complaint",
    [
        ({"eval_type": "some"}, "eval_type must be one of pass_and_fail, fail_only"),
        ({"image": ["x"]}, "image must be a text"),
        ({"install_config": "{"}, "install_config is no JSON"),
        ({"install_config": [1]}, "install_config must be an object"),
        ({"expected_output_json": "[1]"}, "expected_output_json must be an object"),
        ({"version": {"a": 1}}, "version must be a text"),
    ],
)
def test_what_is_wrong_with_the_further_fields_is_named(tmp_path: Path, change: dict[str, Any], complaint: str):
    (tmp_path / "rows.jsonl").write_text(json.dumps({**CLASSIC, **change}) + "\n")
    [(number, found)] = rows_of(tmp_path / "rows.jsonl")
    assert number == 1 and isinstance(found, RowError) and complaint in str(found)


plain = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
nested = st.lists(plain, max_size=2) | st.dictionaries(st.text(max_size=4), plain, max_size=2)
values = plain | nested | st.lists(nested, max_size=2) | st.dictionaries(st.sampled_from(["name", "fix"]), nested)
keys = st.sampled_from([*CLASSIC, "org", "fix_patch", "fixed_tests", "p2p_tests", "base", "repo_name", "commit_hash", "image_name", "fail_to_pass",
                        "expected_output_json", "install_config", "resolved_issues", "dockerhub_tag"])  # fmt: skip


@given(st.dictionaries(keys, values, max_size=6), st.sets(st.sampled_from(list(CLASSIC)), max_size=4))
def test_no_row_ends_in_anything_but_a_row_or_what_is_wrong_with_it(change: dict[str, Any], gone: set[str]):
    from etude.tasks.importers import swe_bench_rows

    row = {key: value for key, value in {**CLASSIC, **change}.items() if key not in gone or key in change}
    try:
        assert isinstance(swe_bench_rows._row(row), SweBenchRow)  # pyright: ignore[reportPrivateUsage]
    except RowError as error:
        assert str(error)


def test_rows_are_read_one_at_a_time(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(CLASSIC) + "\n" + "{broken\n" * 3)
    found = rows_of(path)
    assert isinstance(next(found)[1], SweBenchRow) and isinstance(next(found)[1], RowError)
    with pytest.raises(TaskError, match="no such file of rows"):
        next(rows_of(tmp_path / "absent.jsonl"))


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is here: nothing to complain of")
def test_parquet_without_its_reader_names_it(tmp_path: Path):
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        TaskError, match="pyarrow, which reads it, is not installed: `pip install pyarrow`, or write the rows as JSON"
    ):
        read_rows(tmp_path / "rows.parquet")


def git(folder: Path, *words: str) -> str:
    setting = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(
        ["git", *setting, "-C", str(folder), *words], check=True, capture_output=True, text=True
    ).stdout


def repository(folder: Path) -> dict[str, Any]:
    """A clone under `folder`, and the row of a repair in it."""
    shop = folder / "owner__shop"
    (shop / "tests").mkdir(parents=True)
    (shop / "shop.py").write_text("def total(prices):\n    return sum(prices) + 1\n")
    (shop / "tests" / "test_shop.py").write_text(
        "import shop\n\n\ndef test_type():\n    assert isinstance(shop.total([1]), int)\n"
    )
    git(shop, "init", "-q")
    git(shop, "add", "-A")
    git(shop, "commit", "-qm", "base")
    base, patches = git(shop, "rev-parse", "HEAD").strip(), []
    more = (shop / "tests" / "test_shop.py").read_text() + "\n\ndef test_total():\n    assert shop.total([1, 2]) == 3\n"
    for path, text in (("shop.py", "def total(prices):\n    return sum(prices)\n"), ("tests/test_shop.py", more)):
        (shop / path).write_text(text)
        patches.append(git(shop, "diff"))
        git(shop, "commit", "-qam", path)
    git(shop, "reset", "-q", "--hard", base)
    names = {"FAIL_TO_PASS": ["tests/test_shop.py::test_total"], "PASS_TO_PASS": ["tests/test_shop.py::test_type"]}
    return {**CLASSIC, **names, "base_commit": base, "patch": patches[0], "test_patch": patches[1]}


@pytest.mark.nightly
async def test_rows_become_a_folder_of_sound_tasks_and_the_rest_is_reported(tmp_path: Path):
    good = repository(tmp_path / "mirrors")
    wrong = {**good, "instance_id": "owner__shop-2", "FAIL_TO_PASS": ["tests/test_shop.py::test_type"]}
    broken = {**good, "instance_id": "owner__shop-3", "patch": good["patch"].replace("sum", "max")}
    rows = read(tmp_path, good, wrong, broken)
    pool = await open_pool(SandboxSettings.model_validate({"layers": str(tmp_path / "layers")}))
    try:
        found = candidates(rows, tmp_path / "mirrors", GradingContext(pool, CommandsGrader(), 60.0), install=on_host())
        done = await import_tasks(found, tmp_path / "out", {"rows": 3}, {"row 9": "no JSON"})
    finally:
        await pool.close()
    assert done.taken == ("owner__shop-1",) and set(done.left_out) == {"row 9", "owner__shop-2", "owner__shop-3"}
    assert "is not shown here" in done.left_out["owner__shop-2"] and "can't be made" in done.left_out["owner__shop-3"]
    task = read_task(tmp_path / "out" / "tasks" / "owner__shop-1")
    assert task.grader == "commands" and task.metadata["names"] == "the row's" and task.metadata["form"] == "swe-bench"
    assert json.loads((tmp_path / "out" / "imported.json").read_text())["taken"] == ["owner__shop-1"]

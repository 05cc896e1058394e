"""`etude tasks check`: leaks of the whole sandbox, one commit as history, rows that are kept; a bad task is a named row (promise 10)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.auditing.scan import audit_problems, needles, scan_for_leaks
from etude.tasks.checking.check import KEPT, check_folder, check_task, folders_of
from etude.tasks.checking.version import code_version
from etude.tasks.environment.birth import history_of, objects
from etude.tasks.environment.environment import DEPS, Environment, TestPlan
from etude.tasks.environment.workspace import open_workspace, read_workspace
from etude.tasks.errors import TaskError
from etude.tasks.harbor import write_task
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, task_of

GOOD = "def tally(items):\n    counted_twice = len(items) * 2\n    halved = counted_twice // 2\n    return halved\n"
BAD = "def tally(items):\n    return 0\n"
TESTS = "import unittest\nimport tally\n\n\nclass T(unittest.TestCase):\n    def test_two(self):\n        self.assertEqual(tally.tally([1, 2]), 2)\n"
BASE = {"tally.py": GOOD, "test_tally.py": TESTS, "docs/a/b.txt": "same\n", "docs/c/b.txt": "same\n"}
PROMPTS: dict[str, str] = dict.fromkeys(("terse", "ambiguous", "full"), "tally gives 0")


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[SandboxPool]:
    opened_pool = await open_pool(SandboxSettings(layers=str(tmp_path / "layers")))
    yield opened_pool
    await opened_pool.close()


async def made(pool: SandboxPool, litter: dict[str, bytes], outside: dict[str, bytes] | None = None) -> Task:
    """A task over a snapshot that also holds `litter` in the workspace and `outside` elsewhere."""
    box = await pool.create(SandboxSpec(files={path: text.encode() for path, text in BASE.items()} | litter))
    for path, data in (outside or {}).items():
        await box.write(path, data)
    await box.snapshot("tally-1")
    await box.kill()
    environment = Environment("tally", "1", snapshot="tally-1", tests=TestPlan("unittest"))
    draft = TaskDraft(
        "bugs/tally/1", "debugging", "bug", PROMPTS, environment, BASE, {"tally.py": BAD}, (), {"tally.py": GOOD}
    )
    task = task_of(replace(draft, tests=("test_tally.py",)))
    task.hidden.update(fail_to_pass=["test_tally.T::test_two"], pass_to_pass=[], seconds=1.0, universal=[])
    return task


async def test_an_agent_finds_one_commit_no_caches_and_leaves_no_history_behind(shop: SandboxPool):
    litter = {
        "__pycache__/tally.cpython-311.pyc": b"\0",
        ".git/HEAD": b"ref: refs/heads/old\n",
        "node_modules/x/__pycache__/y": b"1",
    }
    task = await made(shop, litter)
    box = await open_workspace(task, shop, SandboxSpec(), history=True)
    proof = await history_of(box, task)
    assert proof is not None and proof["clean"] and proof["objects"] == proof["expected"] == objects(task)
    assert proof["commits"] == proof["refs"] == 1
    shown = await box.run("git log --format='%an %ad %s' --date=iso; git status --short; ls -A __pycache__")
    assert shown.out == b"project 2000-01-01 00:00:00 +0000 The project\n" and shown.rc != 0
    await box.run("git commit -q --allow-empty -m mine; printf 'x = 1\\n' > new.py")
    later = await history_of(box, task)
    assert later is not None and not later["clean"]
    files = await read_workspace(box, task)
    assert files["new.py"] == b"x = 1\n" and not any(path.startswith(".git/") for path in files)
    await box.kill()


async def test_copies_of_the_reference_are_found_wherever_they_lie(shop: SandboxPool):
    outside = {
        f"{DEPS}/site-packages/tally.py": GOOD.replace("    ", "\t").encode(),
        "/tmp/cache/tally.cpython-311.pyc": b"\x6f\x0d\0\0" + b"counted_twice\0halved\0",
        "/tmp/other/unrelated.pyc": b"\0\0counted_twice",
    }
    task = await made(shop, {}, outside)
    audit = await scan_for_leaks(task, shop)
    assert {one["path"]: one["what"] for one in audit["found"]} == {
        f"{DEPS}/site-packages/tally.py": "lines",
        "/tmp/cache/tally.cpython-311.pyc": "names",
    }
    assert len(audit_problems(audit)) == 2 and audit["history"]["clean"] and audit["files"] > 0


async def test_a_wheel_with_the_reference_in_it_is_found(shop: SandboxPool, tmp_path: Path):
    import io
    import zipfile

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("tally.py", GOOD)
    task = await made(shop, {}, {"/tmp/wheels/any.whl": packed.getvalue()})
    assert [one["path"] for one in (await scan_for_leaks(task, shop))["found"]] == ["/tmp/wheels/any.whl!tally.py"]


async def test_what_an_agent_sees_anyway_is_no_needle(shop: SandboxPool):
    task = await made(shop, {})
    assert needles(task).names == ("counted_twice", "halved")
    assert all("counted_twice" in window or "halved" in window for window in needles(task).windows[0])
    assert not audit_problems(await scan_for_leaks(task, shop))


async def test_of_many_windows_one_that_anybody_writes_tells_nothing_and_of_few_it_does(shop: SandboxPool):
    common = "    @property\n    def name_of_it(self):\n        return self._name_of_it\n"
    long = (
        "class A:\n" + common + "".join(f"    def of_{n}(self):\n        return self.parts[{n}]\n" for n in range(99))
    )
    few = await made(shop, {}, {"/tmp/deps/lib/any.py": common.encode()})
    many = replace(few, solution={"tally.py": long})
    assert needles(few).least == (1, 1) and needles(many).least == (8, 1)
    assert not audit_problems(await scan_for_leaks(many, shop))
    assert (
        len(audit_problems(await scan_for_leaks(replace(few, solution={"tally.py": "class A:\n" + common}), shop))) == 1
    )
    copied = await made(shop, {}, {"/tmp/deps/lib/any.py": long.replace("of_50(", "other(").encode()})
    assert len(audit_problems(await scan_for_leaks(replace(copied, solution={"tally.py": long}), shop))) == 1


@pytest.mark.nightly
async def test_a_sound_task_is_a_good_row_and_is_not_checked_twice(shop: SandboxPool, tmp_path: Path):
    task = await made(shop, {})
    write_task(task, tmp_path / "tasks" / "one")
    (tmp_path / "tasks" / "two").mkdir()
    (tmp_path / "tasks" / "two" / "task.toml").write_text("[task\n")
    rows = await check_folder(tmp_path / "tasks", shop)
    assert [row.good for row in rows] == [True, False], [
        (row.leaks, row.flaky, row.problem, {k: v for k, v in row.cheats.items() if v}) for row in rows
    ]
    assert "malformed" in rows[1].problem
    shown = rows[0].to_json()
    assert {key: shown[key] for key in ("id", "category", "reference", "nop", "leaks", "flaky")} == {
        "id": "bugs/tally/1",
        "category": "debugging",
        "reference": 1,
        "nop": 0,
        "leaks": [],
        "flaky": False,
    }
    assert shown["cheats"] and set(shown["cheats"].values()) == {0} and shown["audit"]["history"]["clean"]
    TaskFolder(tmp_path / "stored", make=True).add(task)
    assert (await check_folder(tmp_path / "stored", shop))[0].to_json() == shown
    before = shop.stats().created
    assert (await check_folder(tmp_path / "tasks", shop))[0] == rows[0] and shop.stats().created == before
    kept = (tmp_path / "tasks" / KEPT).read_text().splitlines()
    assert len(kept) == 1 and json.loads(kept[0])["id"] == "bugs/tally/1"


@pytest.mark.nightly
async def test_a_finding_counts_for_the_code_that_made_it_alone(
    shop: SandboxPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    TaskFolder(tmp_path, make=True).add(await made(shop, {}))
    first = (await check_folder(tmp_path, shop))[0]
    made_before = shop.stats().created
    monkeypatch.setattr("etude.tasks.checking.version.code_version", lambda: "0" * 64)
    second = (await check_folder(tmp_path, shop))[0]
    assert shop.stats().created > made_before and second.good and first.good
    made_before = shop.stats().created
    assert (await check_folder(tmp_path, shop)) == [second] and shop.stats().created == made_before
    assert (await check_folder(tmp_path, shop, again=True))[0].good and shop.stats().created > made_before


async def test_a_checked_task_has_its_audit_and_the_content_that_it_had(shop: SandboxPool, tmp_path: Path):
    task = await made(shop, {})
    row = TaskFolder(tmp_path, make=True).add(task)
    found = (await check_folder(tmp_path, shop))[0]
    folder = TaskFolder(tmp_path, make=True)
    audit = folder.task(task.id).metadata["audit"]
    assert audit["sound"] and audit["leaks"] == [] and audit["history"] == found.audit["history"]
    assert audit["by"] == code_version()[:16] and set(audit["cheats"].values()) == {0}
    assert folder.rows[task.id].digest == row.digest and folder.verify() == {}
    changed = replace(folder.task(task.id), instruction="another")
    assert folder.add(changed).digest != row.digest and "audit" not in folder.task(task.id).metadata
    with open(tmp_path / "audits.jsonl", "a") as file:
        file.write('{"id": "bugs/tal')  # a kill tore it
    assert "audit" not in TaskFolder(tmp_path).task(task.id).metadata


async def test_trouble_of_the_machine_is_a_row_that_is_off_and_not_kept(shop: SandboxPool, tmp_path: Path):
    task = await made(shop, {})
    task.metadata["environment"]["snapshot"] = "gone"
    row = await check_task("t", lambda: task, shop)
    assert not row.good and row.problem.startswith("the machine or the task's environment")
    with pytest.raises(TaskError, match="holds no task"):
        folders_of(tmp_path / "layers")

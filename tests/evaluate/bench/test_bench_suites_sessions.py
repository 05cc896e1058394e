"""From recorded sessions and the commits that came of them to a suite whose tasks are proved by running them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from suites_lab import BASE, BROKEN, FIXED, NEW_TEST, OLD_TEST, REPAIR, REQUEST, Shop, bench_in

from etude.agent.git_links.home import read_entries
from etude.agent.git_links.links import link_commit
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.content import LINK, FileText
from etude.tasks.fail_to_pass import CandidateRejected, prove_fail_to_pass
from etude.tasks.protected import is_protected
from etude.tasks.recorded.origin import origin_of
from etude.tasks.recorded.session import RecordedSession, read_recorded
from etude.tasks.recorded.task_plans import category, change_of, plan_recorded_tasks
from etude.tasks.running.report import TestRun
from etude.tasks.running.testrun import RunReport
from etude.tasks.tree import tree
from etude.tasks.validation.change import RepositoryChange, draft_task, prove_change


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    pool = await open_pool(SandboxSettings())
    yield pool
    await pool.close()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    return Shop(tmp_path)


def sessions_of(shop: Shop) -> list[RecordedSession]:
    found, left_out = read_recorded([shop.home])
    assert left_out == {}
    return found


async def test_a_session_is_tied_to_its_commit_by_link_by_note_and_by_its_lines(shop: Shop, pool: SandboxPool):
    file = await shop.session("s-1", pool)
    shop.commit({"unrelated.txt": "by hand\n"} | REPAIR)  # the session's lines go in with it
    commit = shop.git("rev-parse", "HEAD")
    [session] = sessions_of(shop)
    found = origin_of(session, shop.root)
    assert (found.how, found.base, found.head) == ("lines", shop.base, commit)
    link_commit(shop.root, commit, [(file, *read_entries(file))])
    assert origin_of(session, shop.root).how == "note"
    [session] = sessions_of(shop)
    assert origin_of(session, shop.root).how == "link"
    shop.git("commit", "-q", "--amend", "-m", "another")  # the linked commit is gone, its note came along
    amended = origin_of(session, shop.root)
    assert (amended.how, amended.head) == ("note", shop.git("rev-parse", "HEAD"))


async def test_a_session_that_came_to_nothing_is_left_out_with_the_reason(shop: Shop, pool: SandboxPool):
    await shop.session("s-1", pool)
    shop.git("checkout", "-q", "--", ".")
    shop.commit({"other.py": "x = 1\n"})
    _, left_out = plan_recorded_tasks(sessions_of(shop), None)
    assert list(left_out) == ["s-1"] and "no commit" in left_out["s-1"]
    _, elsewhere = plan_recorded_tasks(sessions_of(shop), shop.root.parent)
    assert "is in no git repository" in elsewhere["s-1"]


async def test_sessions_with_the_same_request_from_the_same_commit_are_solutions_of_one_task(
    shop: Shop, pool: SandboxPool
):
    await shop.session("s-1", pool)
    shop.commit(REPAIR)
    shop.git("checkout", "-q", "-b", "second", shop.base)
    await shop.session("s-2", pool, REQUEST.upper(), "sum(1 for item in items)")
    second = shop.commit({"notes.md": "done otherwise\n"})
    shop.git("checkout", "-q", "-b", "third", shop.base)
    await shop.session("s-3", pool, REQUEST, "len(items) or 0  # not quite yet")
    shop.commit({"notes.md": "not done\n"})
    found, left_out = plan_recorded_tasks(sessions_of(shop), None)
    assert left_out == {} and [one.reference.session.id for one in found] == ["s-1"]
    assert [other.session.id for other in found[0].others] == ["s-2", "s-3"]
    assert found[0].others[0].head == second and len(change_of(found[0], ()).others) == 2


@pytest.mark.nightly
async def test_a_task_is_proved_with_every_solution_of_its_request(shop: Shop, pool: SandboxPool, tmp_path: Path):
    await shop.session("s-1", pool)
    shop.commit(REPAIR)
    shop.git("checkout", "-q", "-b", "second", shop.base)
    await shop.session("s-2", pool, REQUEST, "sum(1 for item in items)")
    shop.commit({"notes.md": "done otherwise\n"})
    [one], _ = plan_recorded_tasks(sessions_of(shop), None)
    task = await prove_change(change_of(one, ()), bench_in(pool, tmp_path))
    assert task.metadata["solutions"] == 2


@pytest.mark.nightly
async def test_tests_that_refuse_another_solution_make_no_task(pool: SandboxPool, tmp_path: Path):
    before = {"core.py": BROKEN, "tests/test_core.py": OLD_TEST}
    narrow = (
        NEW_TEST + "\n\ndef test_by_name():\n    import inspect, core\n    assert 'list' in inspect.getsource(core)\n"
    )
    after = before | {"core.py": FIXED, "tests/test_core.py": narrow}
    other = before | {"core.py": BROKEN.replace(" - 1", " + 0")}
    change = RepositoryChange("t", "debugging", "session", "fix it", before, after, [other])
    with pytest.raises(CandidateRejected, match="refuse another solution.*test_by_name"):
        await prove_change(change, bench_in(pool, tmp_path))


async def test_a_change_whose_tests_do_not_run_is_left_out_with_what_was_printed(pool: SandboxPool, tmp_path: Path):
    before = {"core.py": BROKEN, "tests/test_core.py": OLD_TEST}
    broken = before | {"core.py": FIXED, "tests/test_core.py": "import nothing_of_the_kind\n"}
    with pytest.raises(CandidateRejected, match="do not run after the change.*nothing_of_the_kind"):
        await prove_change(
            RepositoryChange("t", "debugging", "session", "fix it", before, broken), bench_in(pool, tmp_path)
        )


def ran(*passed: str, failed: tuple[str, ...] = ()) -> RunReport:
    return RunReport(TestRun(frozenset(passed), frozenset(failed), 1, 2.0), "said")


def runner(before: list[RunReport], after: list[RunReport]):
    waiting = {b"before": iter(before), b"after": iter(after)}

    async def run(files) -> RunReport:
        return next(waiting[files["state"]])

    return run


async def test_what_the_change_makes_pass_is_distinguished_from_what_it_keeps_and_from_chance():
    before = [ran("kept", "shaky"), ran("kept"), ran("kept", "lucky")]
    after = [ran("kept", "new", "late", "lucky"), ran("kept", "new", "lucky"), ran("kept", "new", "late", "lucky")]
    found = await prove_fail_to_pass({"state": b"before"}, {"state": b"after"}, runner(before, after))
    assert (found.fail_to_pass, found.pass_to_pass) == (("new",), ("kept",))
    assert found.flaky == ("late", "lucky", "shaky") and found.seconds == 2.0


async def test_a_change_that_no_test_shows_or_only_by_chance_is_left_out():
    with pytest.raises(CandidateRejected, match="no test that fails before the change passes after it"):
        await prove_fail_to_pass({"state": b"before"}, {"state": b"after"}, runner([ran("a")], [ran("a")]))
    by_chance = runner([ran("a")] * 3, [ran("a", "b"), ran("a"), ran("a", "b")])
    with pytest.raises(CandidateRejected, match="are flaky: b"):
        await prove_fail_to_pass({"state": b"before"}, {"state": b"after"}, by_chance)


@pytest.mark.parametrize("after", [{"tests/test_core.py": NEW_TEST}, {"core.py": FIXED}])
def test_a_change_needs_a_source_and_a_test(after: dict[str, str]):
    before = {"core.py": BROKEN, "tests/test_core.py": OLD_TEST}
    with pytest.raises(CandidateRejected, match="nothing for an agent to do|adds or changes no test"):
        draft_task(RepositoryChange("t", "debugging", "session", "fix it", before, before | after))


async def test_a_command_of_ones_own_that_an_early_exit_fools_makes_no_task(pool: SandboxPool, tmp_path: Path):
    before = {"core.py": BROKEN, "tests/check.py": "import core\n"}
    after = {"core.py": FIXED, "tests/check.py": "import core\nassert core.tally([1]) == 1\n"}
    command = ("sh", "-c", "PYTHONPATH=. python3 tests/check.py")
    change = RepositoryChange("t", "debugging", "session", "fix it", before, after, command=command)
    with pytest.raises(CandidateRejected, match="not sound.*source_exits"):
        await prove_change(change, bench_in(pool, tmp_path))


def test_requests_too_short_and_files_that_are_no_sessions_are_named(tmp_path: Path):
    (tmp_path / "notes.json").write_text('{"a": 1}')
    found, left_out = read_recorded([tmp_path])
    assert found == [] and "can't be recognized by its keys" in left_out[str(tmp_path / "notes.json")]
    with pytest.raises(FileNotFoundError, match="no such file or folder"):
        read_recorded([tmp_path / "absent"])


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"\xff\0", b"", b"null\n7\n"])
def test_a_hostile_file_among_sessions_is_left_out_by_name(tmp_path: Path, data: bytes):
    (tmp_path / "a.jsonl").write_bytes(data)
    found, left_out = read_recorded([tmp_path])
    assert found == [] and list(left_out) == [str(tmp_path / "a.jsonl")] and left_out[str(tmp_path / "a.jsonl")]


def test_a_foreign_session_is_read_like_ones_own():
    places = [Path(__file__).parents[2] / "agent" / "importers" / "data"]
    found, _ = read_recorded(places)
    assert {session.id.split("-")[0] for session in found} >= {"claude", "codex"}
    assert all(session.request for session in found)


def test_a_tree_holds_every_kind_of_file_and_says_what_it_left_out(shop: Shop):
    (shop.root / "link.py").symlink_to("core.py")
    (shop.root / ".gitattributes").write_text("tests export-ignore\n")
    commit = shop.commit({"big.txt": "x" * (1 << 20) + "y", "empty.py": ""})
    found = tree(shop.root, commit)
    assert set(found.files) == {"core.py", "tests/test_core.py", "empty.py", ".gitattributes", "data.bin", "link.py"}
    assert found.files["data.bin"].encode() == BASE["data.bin"] and found.files["link.py"] == FileText("core.py", LINK)
    assert found.left_out == ("big.txt", "dist/x")


def test_tests_settings_and_whatever_replaces_the_runner_are_protected():
    expected = (
        "tests/data/a.json",
        "pkg/test_x.py",
        "x_test.go",
        "a.spec.ts",
        "conftest.py",
        "pyproject.toml",
        "pytest.py",
    )
    expected += ("_pytest/runner.py", "src/pluggy/__init__.py", "sitecustomize.py")
    assert all(map(is_protected, expected))
    assert not any(
        map(is_protected, ("core.py", "src/latest.py", "contest.py", "attestation/main.go", "docs/index.md"))
    )


def test_a_category_is_decided_by_the_first_telling_word():
    expected = {"Rename foo and fix the docs": "refactors", "why does it crash?": "debugging", "add a flag": "features"}
    assert {request: category(request) for request in expected} == expected


def test_files_next_to_sessions_are_no_logs_of_another_agent(tmp_path: Path) -> None:
    (tmp_path / "signals").mkdir()
    for name in ("s-1.undo.jsonl", "s-1.agent-trace.jsonl", "signals/signals.jsonl"):
        (tmp_path / name).write_text('{"at": 3, "path": "a.py"}\n')
    assert read_recorded([tmp_path]) == ([], {})
    (tmp_path / "strange.jsonl").write_text('{"at": 3, "path": "a.py"}\n')
    assert list(read_recorded([tmp_path])[1]) == [str(tmp_path / "strange.jsonl")]

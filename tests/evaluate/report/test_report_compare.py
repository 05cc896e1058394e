"""Two runs side by side: only differences are shown, pairs are of the same task, and a page shows it without running anything."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.statistics.bounded import difference
from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.session import Session
from etude.core.trace.writer import write_session
from etude.evaluate.report.compare.align import AlignedRow, AlignedStep, align, parts_at, steps_of
from etude.evaluate.report.compare.document import compare, differences, names
from etude.evaluate.report.compare.page import page
from etude.evaluate.report.compare.sessions import final_patch, net
from etude.evaluate.report.compare.text import text
from etude.evaluate.report.paired import RESAMPLES, SEED, Means, compare_means
from etude.evaluate.report.query.tables import NoRun

Call = tuple[str, dict[str, Any]]


def entries(calls: list[Call], results: dict[int, tuple[str, bool]] | None = None, score: float = 0.0) -> list[Entry]:
    """A session of one call a turn."""
    found = [Entry(0, None, "message", 0.0, {"role": "user", "text": "do"})]
    for n, (name, arguments) in enumerate(calls):
        call = {"id": f"c{n}", "name": name, "arguments": arguments}
        said = {"message": {"role": "assistant", "text": "", "calls": [call]}}
        answer, failed = (results or {}).get(n, ("ok <b>", False))
        found.append(Entry(len(found), None, "completion", 0.1, said))
        found.append(
            Entry(len(found), None, "tool_result", 0.2, {"call_id": f"c{n}", "text": answer, "failed": failed})
        )
    return [*found, Entry(len(found), None, "verdict", 0.3, {"score": score})]


def a_run(root: Path, scores: dict[str, float], calls: list[Call], lr: float = 0.1, score: float = 0.0) -> Path:
    root.mkdir(parents=True)
    (root / "recipe.toml").write_text(f'[run]\nname = "same"\n[rl.update]\nlr = {lr}\n')
    metric = {"kind": "metric", "stage": "rl", "time": 1.0}
    rows = [metric | {"step": n, "values": {"reward": n * lr, "odd_one": 1.0}} for n in range(3)]
    (root / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / "trials").mkdir()
    outcomes = [{"task_id": task, "attempt": n, "score": s} for task, s in scores.items() for n in range(2)]
    (root / "trials" / "rl.jsonl").write_text("".join(json.dumps(row) + "\n" for row in outcomes))
    (root / "stages.json").write_text('{"rl": {"seconds": 4.0, "core_seconds": 7.0, "peak_rss_bytes": 1073741824}}')
    path = root / "rl" / "sessions" / "step-000" / "000000-0.jsonl"
    path.parent.mkdir(parents=True)
    header = SessionHeader("s", "one-bug/</details><script>", policy="engine", recipe={"stage": "rl"})
    write_session(path, Session(header, entries(calls, score=score)), keep_routes=False)
    return root


VIEW: Call = ("view", {"path": "a.py"})
EDIT: Call = ("edit", {"path": "a.py", "old": "x = 1", "new": "x = 2"})
OTHER: Call = ("edit", {"path": "a.py", "old": "x = 1", "new": "x = 3"})


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    a = a_run(tmp_path / "one" / "run", {f"t{n}": n % 2 for n in range(8)} | {"lone": 1.0}, [VIEW, EDIT])
    b = a_run(
        tmp_path / "two" / "run", {f"t{n}": 1.0 for n in range(8)}, [VIEW, ("test", {}), OTHER], lr=0.2, score=1.0
    )
    return a, b


def test_only_keys_that_differ_are_reported_and_figures_are_paired_on_shared_tasks(two: tuple[Path, Path]) -> None:
    found = compare(*two, tasks=5).to_json()
    assert (found["a"], found["b"]) == ("one/run", "two/run")
    assert found["different"] == {"recipe": [{"key": "rl.update.lr", "a": 0.1, "b": 0.2}]}
    score = found["figures"][0]
    assert (score["name"], score["figure"], score["a"], score["b"], score["difference"]) == (
        "rl",
        "score",
        0.5,
        1.0,
        0.5,
    )
    assert (score["tasks"], score["tasks_a"]) == (8, 9)
    assert -0.1 < score["ci95"][0] < 0 < 0.5 < score["ci95"][1] < 1  # 4 of 8 changed: by their signs alone p = 0.125
    assert found["curves"] == {"rl": ["odd_one", "reward"]}
    [session] = found["sessions"]["shown"]
    assert session["steps"] == {"same": 1, "only b": 1, "differs": 1} and session["parts_at_step"] == 2
    assert (session["a_score"], session["b_score"], session["patch_equal"]) == (0.0, 1.0, False)


def test_a_run_next_to_itself_differs_in_nothing(two: tuple[Path, Path]) -> None:
    found = compare(two[0], two[0], tasks=5)
    assert found.different == {} and all(row["a"] == row["b"] for row in found.figures)
    [session] = found.to_json()["sessions"]["shown"]
    assert session["parts_at_step"] is None and session["patch_equal"]
    assert "are the same" in text(found) and "the same steps throughout" in page(found)


def test_the_page_is_self_contained_and_shows_a_sessions_text_as_text(two: tuple[Path, Path]) -> None:
    html = page(compare(*two, tasks=5))
    assert "<script" not in html and not re.search(r'(?:src|href)="(?!#)', html) and "ok &lt;b&gt;" in html
    assert "one-bug/&lt;/details&gt;" in html and html.count("<svg") == 2
    assert "B +x = 3" in html and "A +x = 2" in html
    assert html.count("<details") == html.count("</details>") and html.count("<div") == html.count("</div>")


def test_the_table_says_the_difference_with_its_interval(two: tuple[Path, Path]) -> None:
    printed = text(compare(*two, tasks=0))
    assert re.search(r"rl +score +0\.5 +1 +0\.5 +\[-0\.\d+, \+0\.\d+\] +8", printed) and "sessions" not in printed


def test_two_bench_runs_of_one_policy_each_are_a_pair_whatever_their_names(tmp_path: Path) -> None:
    for name, policy, score in (("a", "mini", 0.0), ("b", "big", 1.0)):
        folder = tmp_path / name / "policies"
        folder.mkdir(parents=True)
        (folder / f"{policy}@high.jsonl").write_text(json.dumps({"task_id": "t", "attempt": 0, "score": score}) + "\n")
    [row] = compare(tmp_path / "a", tmp_path / "b", tasks=1).figures
    assert (row["name"], row["difference"]) == ("mini high against big high", 1.0)


def test_a_folder_that_is_no_run_is_refused(two: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(NoRun, match="is no run"):
        compare(two[0], tmp_path / "nothing", tasks=1)


def test_names_are_as_long_as_they_must_be() -> None:
    assert names(Path("/r/a"), Path("/r/b")) == ("a", "b") and names(Path("/x/r"), Path("/y/r")) == ("x/r", "y/r")


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_interval_is_the_benchs_own(differences: list[float]) -> None:
    a, b = Means(), Means()
    for task, change in enumerate(differences):
        a.add(f"t{task:02}", 0.0)
        b.add(f"t{task:02}", change)
    printed = compare_means(a, b, scores=True)
    expected = difference({"": np.array(differences)}, {"": 1.0}, resamples=RESAMPLES, seed=SEED)
    assert printed is not None and printed["ci95"] == [expected.low, expected.high]


def test_nothing_shared_is_no_comparison() -> None:
    a, b = Means(), Means()
    a.add("x", 1.0)
    b.add("y", 1.0)
    assert compare_means(a, b, scores=True) is None


keys = st.dictionaries(st.sampled_from("abcde"), st.one_of(st.integers(0, 1), st.booleans(), st.just("1")))


@given(keys, keys)
def test_differences_name_every_key_that_differs_and_no_other(a: dict, b: dict) -> None:
    found = {row["key"] for row in differences(a, b)}
    assert found == {k for k in {*a, *b} if repr(a.get(k, "?")) != repr(b.get(k, "?"))}


steps = st.lists(
    st.sampled_from([("view", "1"), ("view", "2"), ("edit", "1"), ("edit", "2"), ("test", "")]), max_size=12
)


@given(steps, steps)
def test_every_step_appears_once_in_order_and_equal_ones_face_each_other(a: list, b: list) -> None:
    ours, theirs = ([AlignedStep(n, "", (call,), ()) for n, call in enumerate(calls)] for calls in (a, b))
    rows = align(ours, theirs)
    assert [row.a for row in rows if row.a] == ours and [row.b for row in rows if row.b] == theirs
    for row in rows:
        same = row.a is not None and row.b is not None and row.a.calls == row.b.calls
        assert (row.kind == "same") == same and (row.kind.startswith("only")) == (row.a is None or row.b is None)
    assert (parts_at(rows) is None) == (a == b)


def test_another_answer_to_the_same_call_is_reported_and_is_no_parting() -> None:
    a, b = steps_of(entries([VIEW], {0: ("x", False)})), steps_of(entries([VIEW], {0: ("y", False)}))
    [row] = align(a, b)
    assert row == AlignedRow("other answer", a[0], b[0]) and parts_at([row]) is None


def edit(old: str, new: str) -> Call:
    return ("edit", {"path": "a.py", "old": old, "new": new})


@pytest.mark.parametrize(
    ("calls", "kept"),
    [
        ([edit("a", "b"), edit("b", "a")], []),
        ([edit("a", "b c"), edit("b", "d")], [("a", "d c")]),
        ([edit("a", "b"), edit("x b y", "z")], [("x a y", "z")]),
        ([edit("a", "b"), edit("c", "d")], [("a", "b"), ("c", "d")]),
        ([("write", {"path": "a.py", "contents": "one"}), edit("one", "two")], [(None, "two")]),
        ([edit("a", "b"), ("write", {"path": "a.py", "contents": "new"})], [(None, "new")]),
        ([("view", {"path": "a.py"})], []),
    ],
)
def test_edits_add_up_to_what_was_changed_in_the_end(calls: list[Call], kept: list[tuple[str | None, str]]) -> None:
    assert [(f.old, f.new) for fragments in net(entries(calls)).values() for f in fragments] == kept


def test_an_edit_that_failed_changed_nothing() -> None:
    assert net(entries([edit("a", "b")], {0: ("no such text", True)})) == {}


def test_a_kept_patch_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "s.patch").write_text("--- a\n+++ b\n")
    assert final_patch(tmp_path / "s.jsonl", entries([EDIT])) == ["--- a", "+++ b"]
    assert final_patch(tmp_path / "t.jsonl", entries([EDIT])) == ["=== a.py", "-x = 1", "+x = 2"]

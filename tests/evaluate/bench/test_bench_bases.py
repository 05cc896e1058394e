"""Checkpoints are asked the same, each by its own tokenizer; what was measured once is not measured again."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from bases_lab import checkpoint, repository
from hypothesis import given
from hypothesis import strategies as st

from etude.core.trace.entry import SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.writer import SessionWriter
from etude.evaluate.bench.bases import compare as comparison
from etude.evaluate.bench.bases.compare import compare, plan
from etude.evaluate.bench.bases.compared_checkpoint import Incomparable, compared_checkpoints, names
from etude.evaluate.bench.bases.figures import difference, ratio
from etude.evaluate.bench.bases.material import QUICK, Extent, material
from etude.evaluate.bench.bases.result_cache import ResultCache
from etude.evaluate.bench.bases.text import text
from etude.learn.corpus.codebase import NoCode
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.train.perplexity import codebase_perplexity

SMALL = Extent(changes=(1, 2, 8), questions=2, knowledge=4, batches=(1, 2), rounds=1)
PLAIN = "# A file of more than the few bytes that a library asks for.\nNAMES = ['x', 'y']\n"
ALL = ("perplexity", "state", "knowledge", "cost")


@pytest.fixture
def found(tmp_path: Path):
    folders = [
        checkpoint(tmp_path / "one" / "checkpoint", "qwen3_moe", 0),
        checkpoint(tmp_path / "two", "deepseek_v3", 20),
    ]
    return compared_checkpoints(folders)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return repository(tmp_path / "code")


def recorded(folder: Path) -> Path:
    """One session that looked something up and used it."""
    folder.mkdir()
    writer = SessionWriter(folder / "0.jsonl", SessionHeader("s"))
    writer.append("message", {"role": "user", "text": "make it retry"})
    calls = [("grep", {"pattern": "retries"}, "http.py:1 def with_retries(call, attempts=3):"),
             ("edit", {"path": "a.py", "old": "return call()", "new": "return with_retries(call, attempts=3)"}, "ok")]  # fmt: skip
    for number, (tool, arguments, result) in enumerate(calls):
        message = Message("assistant", calls=(ToolCall(f"c{number}", tool, arguments),))
        writer.append("completion", {"message": message.to_json(), "finish": "stop"})
        writer.append("tool_result", {"call_id": f"c{number}", "name": tool, "text": result, "failed": False})
    writer.close()
    return folder


def silent(words: str) -> None:
    pass


@pytest.mark.nightly
def test_one_document_holds_every_measure_of_every_checkpoint(found, code: Path, tmp_path: Path):
    asked = material(found, [code], [recorded(tmp_path / "sessions")], SMALL, None)
    document = compare(found, asked, SMALL, ALL, ResultCache(tmp_path / "out"), silent)
    assert json.loads(json.dumps(document)) == document
    assert document["state_questions"] == {"1": 2, "2": 2} and document["knowledge_questions"] == 1
    one, two = document["checkpoints"]
    assert (one["name"], two["name"]) == ("one", "two") and (one["family"], two["family"]) == (
        "qwen3_moe",
        "deepseek_v3",
    )
    for row in (one, two):
        low, high = row["perplexity"]["ci95"]
        assert low <= row["perplexity"]["value"] <= high and row["state"]["by_changes"].keys() == {"1", "2"}
        assert row["cost"]["batches"]["2"]["tokens_per_s"] > 0 and row["knowledge"]["exact_percent"] in (0, 100)
    assert "over_first" not in one["perplexity"]
    assert two["perplexity"]["over_first"]["value"] == pytest.approx(
        two["perplexity"]["value"] - one["perplexity"]["value"]
    )
    assert document["unchanged"]["value"] <= 2  # one digit a version
    assert document["unchanged"]["answer_characters"] == len(asked.state[0].answer)
    table = text(document)
    assert "8 changes" not in table and "after 2 changes" in table and "decoding 2 at a time" in table


def test_perplexity_is_the_report_s_on_the_same_files_in_alphabetical_order(found, code: Path, tmp_path: Path):
    asked = material(found, [code], [], SMALL, 64)
    document = compare(found, asked, SMALL, ["perplexity"], ResultCache(tmp_path / "out"), silent)
    assert [path for path, _ in asked.files] == ["a.py", "b.py"]
    for contender, row in zip(found, document["checkpoints"], strict=True):
        ids = [contender.encode(words) for _, words in asked.files]
        sizes = [len(words.encode()) for _, words in asked.files]
        wanted = codebase_perplexity(load_checkpoint(contender.folder), ids, sizes, window=64, stride=32)
        assert row["perplexity"]["value"] == pytest.approx(wanted.bits_per_byte)
    assert document["checkpoints"][0]["perplexity"]["tokens"] > document["checkpoints"][1]["perplexity"]["tokens"]


@pytest.mark.nightly
def test_nothing_is_measured_twice_and_a_stopped_comparison_goes_on(found, code: Path, tmp_path: Path, monkeypatch):
    asked, kept = material(found, [code], [], SMALL, None), ResultCache(tmp_path / "out")
    measured: list[tuple[str, str]] = []
    real = comparison._measured

    def counted(measure, contender, *rest):
        if len(measured) == 3 and measured[-1] != ("stop", ""):
            measured.append(("stop", ""))
            raise KeyboardInterrupt
        measured.append((measure, contender.name))
        return real(measure, contender, *rest)

    monkeypatch.setattr(comparison, "_measured", counted)
    with pytest.raises(KeyboardInterrupt):
        compare(found, asked, SMALL, ALL, kept, silent)
    assert plan(found, asked, SMALL, ALL, kept)["kept"] == {"one": ["perplexity", "state"], "two": ["perplexity"]}
    first = compare(found, asked, SMALL, ALL, kept, silent)
    assert measured == [("perplexity", "one"), ("state", "one"), ("perplexity", "two"), ("stop", ""), ("state", "two")]
    assert compare(found, asked, SMALL, ALL, kept, silent) == first and len(measured) == 5


def test_other_weights_or_other_files_are_measured_again(found, code: Path, tmp_path: Path):
    asked, kept = material(found, [code], [], SMALL, None), ResultCache(tmp_path / "out")
    compare(found, asked, SMALL, ["perplexity"], kept, silent)
    (code / "c.py").write_text(PLAIN)
    other = material(found, [code], [], SMALL, None)
    assert plan(found, other, SMALL, ["perplexity"], kept)["kept"] == {"one": [], "two": []}
    checkpoint(tmp_path / "two", "deepseek_v3", 19)
    again = compared_checkpoints([contender.folder for contender in found])
    assert plan(again, asked, SMALL, ["perplexity"], kept)["kept"] == {"one": ["perplexity"], "two": []}


def test_a_folder_without_a_past_is_reported_and_never_a_zero(found, tmp_path: Path):
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.py").write_text(PLAIN)
    asked = material(found, [tmp_path / "plain"], [], SMALL, None)
    document = compare(found, asked, SMALL, ("perplexity", "state", "knowledge"), ResultCache(tmp_path / "out"), silent)
    assert "state" not in document["checkpoints"][0] and "unchanged" not in document
    assert (
        document["left_out"]["state"] == "no history"
        and document["left_out"]["knowledge"] == "no sessions (--sessions)"
    )
    assert "Left out, state: no history." in text(document) and "[no interval]" in text(document)


def test_no_question_is_too_long_for_any_checkpoint(found, code: Path):
    asked = material(found, [code], [], SMALL, 400)
    for question in asked.state:
        for contender in found:
            assert len(contender.encode(question.prompt())) + len(contender.encode(question.answer)) < 400
    none = material(found, [code], [], SMALL, 100)
    assert none.state == [] and none.left_out["state"] == "no file with its changes fits into 100 tokens"


def test_a_sample_is_whole_files_and_the_seed_s(found, code: Path, tmp_path: Path):
    for number in range(30):
        (code / f"f{number:02}.py").write_text(f"{PLAIN}value = {number}\n")
    asked = material(found, [code], [], Extent(most_bytes=900), None)
    assert asked.all_files == 32 and 1 <= len(asked.files) < 32 and asked.files == sorted(asked.files)
    assert sum(len(words) for _, words in asked.files) <= 900
    assert asked.files != material(found, [code], [], Extent(most_bytes=900, seed=1), None).files


def test_of_several_folders_every_file_says_whose_it_is(found, code: Path, tmp_path: Path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.py").write_text(PLAIN)
    asked = material(found, [code, tmp_path / "more"], [], QUICK, None)
    assert [path for path, _ in asked.files] == ["code/a.py", "code/b.py", "more/a.py"]
    assert asked.left_out["history"].startswith(f"no history in {tmp_path / 'more'}") and asked.state


def test_a_tokenizer_of_another_checkpoint_is_refused(tmp_path: Path):
    folder = checkpoint(tmp_path / "c", "qwen3_moe", 20, rows=260)
    with pytest.raises(Incomparable, match="276 entries, the model 260.*copy the tokenizer"):
        compared_checkpoints([folder])


def test_what_can_not_be_compared_is_named(found, code: Path, tmp_path: Path, monkeypatch):
    with pytest.raises(Incomparable, match="named twice"):
        compared_checkpoints([found[0].folder, found[0].folder])
    with pytest.raises(Incomparable, match=r"2,000 tokens.*ends at 1,024"):
        material(found, [code], [], SMALL, 2000)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoCode, match="empty holds no text"):
        material(found, [tmp_path / "empty"], [], SMALL, None)
    with pytest.raises(FileNotFoundError, match="no such folder of sessions"):
        material(found, [code], [tmp_path / "nowhere"], SMALL, None)
    monkeypatch.setattr("os.access", lambda *_: False)  # tests may run as root, whom nothing is forbidden
    with pytest.raises(PermissionError, match="can't be read by this user"):
        material(found, [code], [], SMALL, None)


@given(
    st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), min_size=1, max_size=5, unique=True)
)
def test_names_tell_the_checkpoints_apart(paths):
    folders = [Path("/runs", *parts, "checkpoint") for parts in paths]
    found = names(folders)
    assert len(set(found)) == len(found) and all(
        str(f.parent).endswith(name) for f, name in zip(folders, found, strict=True)
    )


@given(st.lists(st.tuples(st.floats(0, 9), st.floats(0.5, 9), st.integers(0, 3)), min_size=1, max_size=20))
def test_a_ratio_lies_in_its_interval_and_a_difference_to_itself_is_none(items):
    parts, wholes, groups = (list(column) for column in zip(*items, strict=True))
    value, ci95 = ratio(parts, wholes, groups)
    assert value == pytest.approx(sum(parts) / sum(wholes))
    assert (ci95 is None) == (len(set(groups)) == 1)
    assert difference(parts, parts, wholes, groups)[0] == 0


def test_items_of_one_group_are_drawn_together():
    """Ten copies of each item say no more than one."""
    draw = np.random.default_rng(0)
    values = draw.lognormal(0, 1, 30).tolist()
    once = ratio(values, [1.0] * 30, range(30))[1]
    often = ratio(values * 10, [1.0] * 300, list(range(30)) * 10)[1]
    assert once == pytest.approx(often) and not math.isclose(*once)


def test_few_groups_are_not_called_sure():
    """Five files whose rates spread by a third: the bootstrap alone holds the truth in four of five comparisons."""
    rng, trials, hits = np.random.default_rng(1), 300, np.zeros(2)
    for _ in range(trials):
        sizes = rng.lognormal(7, 1, 5)
        nats = sizes * rng.lognormal(0, 0.35, 5)
        better = nats + sizes * rng.normal(-0.1, 0.15, 5)
        found = (ratio(nats, sizes, range(5))[1], difference(better, nats, sizes, range(5))[1])
        for side, (interval, truth) in enumerate(zip(found, (math.exp(0.35**2 / 2), -0.1), strict=True)):
            hits[side] += interval is not None and interval[0] <= truth <= interval[1]
    assert min(hits) >= 0.87 * trials

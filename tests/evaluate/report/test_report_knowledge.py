"""The knowledge phase has its pages: what was measured is there, what was not is left out, and a document stays text."""

import json
import re
import shutil
from pathlib import Path

import pytest

from etude.evaluate.report.collect import collect
from etude.evaluate.report.pages.corpus import clusters
from etude.evaluate.report.pages.perplexity import lower
from etude.evaluate.report.pages.retrieval import pool_accuracy, together
from etude.evaluate.report.settings import ReportSettings
from etude.evaluate.report.write import write_report

SECTIONS = ("Corpus", "Pretraining", "Perplexity", "Long context", "Draft layers")


def html_of(run: Path) -> str:
    write_report(run, ReportSettings())  # pyright: ignore[reportCallIssue]
    return (run / "report.html").read_text()


def sections(html: str) -> list[str]:
    return re.findall(r"<h2 [^>]*>([^<]*)<", html)


def test_report_json_has_what_was_measured_and_no_list_that_grows_with_the_corpus(knowledge_run: Path):
    report = collect(knowledge_run)
    assert set(report["perplexity"]) == {"base", "short", "long", "paired", "by_position"}
    assert report["retrieval"]["old_length"] == 256 and len(report["retrieval"]["long"]) == 30
    assert report["mtp"]["acceptance"]["greedy"][0] == 0.81 and report["mtp"]["speedup"]["batch"]["1"] == 1.41
    assert report["mtp"]["training"]["steps"] == 150
    library = report["corpus"]["library"]
    assert library["heldout_projects"] == 12
    assert library["left_out"] == {"projects": 7, "reasons": {"not reachable": 4, "fingerprint of a suite": 3}}
    assert report["short"]["mix"]["installed.changes"] == 0.1


def test_pages_stand_in_the_order_of_the_stages_and_before_the_learning_curves(knowledge_run: Path):
    found = sections(html_of(knowledge_run))
    assert found[: len(SECTIONS) + 1] == [*SECTIONS, "Learning curves"]


@pytest.mark.parametrize(
    ("missing", "gone"),
    [
        (("corpus",), ["Corpus"]),
        (("probes",), ["Perplexity", "Long context", "Draft layers"]),
        (("short", "long", "events.jsonl"), ["Pretraining", "Learning curves"]),
    ],
)
def test_a_page_whose_file_is_not_there_is_left_out(knowledge_run: Path, missing: tuple[str, ...], gone: list[str]):
    before = sections(html_of(knowledge_run))
    for name in missing:
        path = knowledge_run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert sections(html_of(knowledge_run)) == [name for name in before if name not in gone]


def test_what_was_made_from_an_attempt_set_aside_is_in_no_page(knowledge_run: Path):
    ledger = [
        {"time": 1, "event": "started", "stage": "short", "attempt": "short-1", "upstream": {}},
        {"time": 2, "event": "started", "stage": "probes", "attempt": "probes-1", "upstream": {"short": "short-1"}},
        {"time": 3, "event": "started", "stage": "short", "attempt": "short-2", "upstream": {}},
    ]
    (knowledge_run / "ledger.jsonl").write_text("".join(json.dumps(e) + "\n" for e in ledger))
    report = collect(knowledge_run)
    assert "perplexity" not in report and "retrieval" not in report and set(report["mtp"]) == {"training"}


def test_a_corpus_without_shards_by_source_has_no_page(knowledge_run: Path):
    (knowledge_run / "corpus" / "summary.json").write_text('{"vocabulary": 768, "documents": 3, "refused": {}}')
    (knowledge_run / "corpus" / "samples.json").unlink()
    assert "Corpus" not in sections(html_of(knowledge_run))
    assert collect(knowledge_run)["corpus"]["documents"] == 3


def test_a_document_stays_text_and_can_be_read_without_the_script(knowledge_run: Path):
    html = html_of(knowledge_run)
    assert html.count('<details class="rollout document"') == 6 and html.count("<script") == 2
    assert "&lt;/pre&gt;&lt;script&gt;alert(3)" in html and 'id="another" hidden' in html
    assert "stdlib / json / 3.11 / json/tool0.py" in html


def test_figures_stand_with_their_intervals_and_what_is_asked_is_judged(knowledge_run: Path):
    html = html_of(knowledge_run)
    for words in (
        "2.3100 <span class=\"muted\">[2.2500, 2.3700]</span>",
        '<b class="good">-0.1900</b> <span class="muted">[-0.2100, -0.1700]</span>',
        '<b class="open">-0.0600</b>',
        'at least 1.2: <b class="good">met</b>',
        'yes: <b class="good">met</b>',
        "none &lt;found&gt; 0.2%",
        "64 or more alike",
        "trained to here before long: 256",
    ):  # fmt: skip
        assert words in html


def test_drafts_that_change_the_output_or_do_not_pay_are_called_not_met(knowledge_run: Path):
    path = knowledge_run / "probes" / "summary.json"
    probes = json.loads(path.read_text())
    probes["mtp"]["speedup"] |= {"batch": {"1": 1.1}, "identical": False}
    path.write_text(json.dumps(probes))
    html = html_of(knowledge_run)
    assert 'at least 1.2: <b class="bad">not met' in html and 'yes: <b class="bad">not met' in html


def test_phases_are_drawn_one_after_another_and_skipped_steps_are_counted(knowledge_run: Path):
    html = html_of(knowledge_run)
    assert "<td>short</td><td>350</td><td>700,000</td><td>2.100</td><td>1.6800</td><td>1</td>" in html
    loss = html[html.index("Loss, phase after phase") :].split("</svg>")[0]
    ends = [float(points.split()[-1].split(",")[0]) for points in re.findall(r'<polyline points="([^"]*)"', loss)]
    assert len(ends) == 3 and ends == sorted(ends) and loss.count('class="moment"') == 2


def test_a_phase_that_stopped_says_why(knowledge_run: Path):
    path = knowledge_run / "long" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"stopped": "regression <set> worsened by 3%"}))
    assert "long stopped early: regression &lt;set&gt; worsened by 3%" in html_of(knowledge_run)


def test_cells_are_pooled_by_their_questions():
    entries = [{"questions": 30, "accuracy": 0.5}, {"questions": 10, "accuracy": 0.9}]
    middle, low, high = pool_accuracy(entries)
    assert middle == pytest.approx(60.0) and 40 < low < 60 < high < 80
    assert pool_accuracy([{"questions": 5, "accuracy": 1.0}])[2] == 100.0


def test_an_entry_of_all_depths_together_is_taken_as_it_is(knowledge_run: Path):
    path = knowledge_run / "probes" / "summary.json"
    probes = json.loads(path.read_text())
    whole = {"kind": "definition", "length": 64, "depth": None, "questions": 9, "accuracy": 0.5, "ci95": [0.25, 0.75],
             "chance": 0.25, "nats": 1.5}  # fmt: skip
    assert together([*probes["retrieval"]["base"][:3], whole]) == (50.0, 25.0, 75.0)
    probes["retrieval"]["base"].append(whole)
    path.write_text(json.dumps(probes))
    html = html_of(knowledge_run)
    assert (
        "base: 64, 50<" in html
        and "Looking up a definition: surprise at the answer" in html
        and "base: 64, 1.5<" in html
    )


def test_a_running_phase_shows_its_regression_set_from_its_events(knowledge_run: Path):
    (knowledge_run / "long" / "summary.json").unlink()
    with open(knowledge_run / "events.jsonl", "a") as events:
        for step, bits in ((20, 2.5), (40, 2.25)):
            values = {"regression_bits_per_byte": bits}
            events.write(json.dumps({"kind": "metric", "stage": "long", "step": step, "values": values}) + "\n")
    assert "long: 40, 2.25<" in html_of(knowledge_run)


def test_a_corpus_of_exercises_alone_has_a_page_without_a_library(knowledge_run: Path):
    path = knowledge_run / "corpus" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"library": None}))
    html = html_of(knowledge_run)
    assert "What each phase reads" in html and "Licences" not in html


def test_buckets_of_copies_hold_every_cluster():
    sizes = {str(size): 1 for size in range(2, 200)}
    assert sum(clusters(sizes).values()) == len(sizes)
    assert list(clusters({"2": 5, "5": 1})) == ["2 alike", "4 to 7 alike"]


def test_less_is_better_only_where_the_interval_leaves_zero_out():
    assert 'class="good"' in lower(-0.1, [-0.2, -0.05]) and 'class="bad"' in lower(0.1, [0.05, 0.2])
    assert 'class="open"' in lower(-0.1, [-0.3, 0.1])

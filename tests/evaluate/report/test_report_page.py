"""A report is rebuilt from files alone, shows what was measured, and never what a session's text smuggles in."""

import hashlib
import json
import re
import subprocess
import sys
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path

import pytest

from etude.evaluate.report.collect import NotARun, collect, metrics
from etude.evaluate.report.settings import ReportSettings
from etude.evaluate.report.write import write_report

SETTINGS = ReportSettings()  # pyright: ignore[reportCallIssue]


def entry(average: float) -> dict:
    split = {"avg": average, "ci95": [average - 4, average + 4], "tasks": 12, "best_of_16": 80.0}
    return {
        "avg_equal": average - 2, "ci95_equal": [average - 6, average + 2], "by_holdout": {"template": split},
        "avg": average, "ci95": [average - 3, average + 3], "best_of": {"1": average, "2": 60.0, "4": 70.0, "16": 80.0},
        "tokens": 60.0, "tool_calls": 4.0, "turns": 5.0, "seconds": 0.4, "tasks": 96, "passes": 16,
        "by_category": {"debugging": split}, "by_level": {"one-bug": split},
    }  # fmt: skip


def lift(points: float, low: float, high: float) -> dict:
    return {
        "avg_points": points, "ci95": [low, high], "avg_points_equal": points - 5, "ci95_equal": [low - 5, high - 5],
        "best_of": {"k": 16, "before": 70.0, "after": 80.0, "points": 10.0, "ci95": [4.0, 16.0]},
        "by_level": {"one-bug": {"avg_points": points, "ci95": [low, high], "tasks": 12}},
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_text('[run]\nname = "laptop"\n')
    curve = [
        {"step": s, "pass_rate": 0.2 + 0.01 * s, "staleness_max": 2, "staleness_mean": 1.0, "drift_k3": 1e-8 * (s + 1)}
        for s in range(30)
    ]
    files = {
        "stages.json": {"sft": {"seconds": 60.0, "core_seconds": 110.0, "peak_rss_bytes": 10**9}},
        "machine.json": {"machine": {"cores": 2, "gpu": None}, "versions": {"torch": "2.13.0"}},
        "rl/summary.json": {
            "steps": 30, "curve": curve, "staleness": {"max": 2, "mean": 1.0}, "mismatch": {"k3": 1e-12, "p99": 1e-6},
            "counts": {"rollouts": 3840, "swapped_in_flight": 1500, "in_flight_swaps": 1600, "summarized": 96,
                       "summaries": 120, "summary_tokens": 2400, "broken_summaries": 3,
                       "replayed_tokens": 5, "replayed_routes": 0, "tokens_by_version": {"0": 40, "1": 50}},
        },
        "rl/samples.json": [{
            "task_id": "one-bug/<script>", "step": 3, "advantage": 0.5, "rewards": {"outcome": 1.0},
            "segments": [{"tokens": ["<|user|>", "fix <b>", "ok"], "sampled": [False, False, True],
                          "logprobs": [0, 0, -0.5], "versions": [-1, -1, 2]}],
        }],
        "bench/summary.json": {
            "bench": {"base": entry(5.0), "sft": entry(20.0), "rl": entry(55.0),
                      "controls": {"competent_sft": entry(40.0)}},
            "split": "heldout", "lift": lift(35.0, 30.0, 40.0),
            "over_controls": {"competent_sft": lift(15.0, 9.0, 21.0), "rewarded_sft": lift(2.0, -3.0, 7.0)},
            "sandbox": {"backend": "local", "isolation": "namespace", "available": True, "reason": ""},
            "overlap": {"statement": "905 bodies in training, none <seen>", "seen_share": 0.0, "validation_share": 0.0},
            "discovery": {"level": "relapse", "k": 16, "before": 20.0, "after": 22.0, "points": 2.0,
                          "ci95": [-3.0, 6.0], "verdict": "sharpening, no discovery"},
        },
    }  # fmt: skip
    for name, data in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(data))
    events = [{"kind": "metric", "stage": "sft", "step": s, "values": {"loss": 6.0 / (s + 1)}} for s in range(50)]
    text = "\n".join(json.dumps(e) for e in [*events, events[3] | {"values": {"loss": 9.0}}])
    (tmp_path / "events.jsonl").write_text(text + '\n{"kind": "met')
    return tmp_path


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.outside: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href") and value]


def test_report_says_what_was_measured_and_can_be_rebuilt(run: Path):
    first = write_report(run, SETTINGS)
    assert first["schema"] == 1 and first["lift"]["avg_points"] == 35.0 and first["seconds"] == {"sft": 60.0}
    written = (run / "report.json").read_bytes()
    (run / "report.json").unlink()
    write_report(run, SETTINGS)
    assert (run / "report.json").read_bytes() == written
    html = (run / "report.html").read_text()
    for words in (
        "+35.0 points",
        "+30.0 points",
        "sharpening, no discovery",
        "competent SFT",
        "1,500",
        "Before and after",
    ):
        assert words in html
    for words in ("sandboxes: local (namespace)", "none &lt;seen&gt;", "by how it is kept from training"):
        assert words in html
    assert "it is +2.0 [-3.0, 7.0]: no difference is shown" in html and "[9.0, 21.0]: RL is ahead" in html


def test_counts_have_shares_and_what_falls_short_is_called_not_met(run: Path):
    report = write_report(run, SETTINGS)
    assert report["rl"]["shares"] == {
        "summarized_percent": 2.5, "swapped_in_flight_percent": 39.062, "in_flight_swaps_per_rollout": 0.417,
    }  # fmt: skip
    html = (run / "report.html").read_text()
    assert 'at least 5%: <b class="bad">not met' in html and 'at least 1 in 3 rollouts: <b class="good">met' in html
    assert 'more than 1: <b class="good">met' in html
    for words in ("of them empty, malformed or cut off", "2.5%", "20 each"):
        assert words in html
    assert html.count("more than 0: ") == 2 and 'more than 0: <b class="bad">not met' in html  # replayed routes


def test_what_an_attempt_that_was_set_aside_left_is_in_no_curve_and_no_figure(run: Path):
    """sft started again at 100: its old curve is gone, and so is the bench that was made from the old one."""
    ledger = [
        {"time": 1, "event": "started", "stage": "sft", "attempt": "sft-1", "upstream": {}},
        {"time": 2, "event": "started", "stage": "bench", "attempt": "bench-1", "upstream": {"sft": "sft-1"}},
        {"time": 100, "event": "started", "stage": "sft", "attempt": "sft-2", "upstream": {}},
    ]
    (run / "ledger.jsonl").write_text("".join(json.dumps(e) + "\n" for e in ledger))
    events = [(10, s, 5.0) for s in range(300)] + [(110, s, 9.0) for s in range(90)]
    (run / "events.jsonl").write_text(
        "".join(
            json.dumps({"time": t, "kind": "metric", "stage": "sft", "step": s, "values": {"loss": v}}) + "\n"
            for t, s, v in events
        )
    )
    assert metrics(run)["sft"]["loss"] == [(s, 9.0) for s in range(90)]
    report = collect(run)
    assert "lift" not in report and "bench" not in report and "rl" in report


def test_validation_figures_are_never_called_held_out(run: Path):
    path = run / "bench" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"split": "validation"}))
    assert write_report(run, SETTINGS)["split"] == "validation"
    html = (run / "report.html").read_text()
    assert "no evidence of generalisation" in html and "Validation tasks solved" in html
    assert "held-out" not in html


def test_stages_side_by_side_are_waited_for_once_and_pauses_not_at_all(run: Path):
    """base ends at 100 after 100 s, sessions at 90 after 60 s; after a pause sft runs from 500 to 540."""
    seconds = {"base": (100.0, 100.0), "sessions": (90.0, 60.0), "sft": (540.0, 40.0)}
    stages = {name: {"seconds": s, "core_seconds": s, "peak_rss_bytes": int(s)} for name, (_, s) in seconds.items()}
    (run / "stages.json").write_text(json.dumps(stages))
    ends = [{"time": end, "event": "finished", "stage": name} for name, (end, _) in seconds.items()]
    (run / "ledger.jsonl").write_text("".join(json.dumps(e) + "\n" for e in ends) + '{"ti')
    report = write_report(run, SETTINGS)
    assert report["wall_seconds"] == 140.0 and sum(report["seconds"].values()) == 200.0
    assert report["peak_rss_bytes"] == 160  # base and sessions, as if both peaked at once


def test_report_is_one_file_and_session_text_stays_text(run: Path):
    write_report(run, SETTINGS)
    tags = Tags()
    tags.feed((run / "report.html").read_text())
    assert "b" in tags.names and all(link.startswith("#") or link == "data:," for link in tags.outside)


def test_the_only_script_is_the_pages_own_and_a_browser_may_run_no_other(run: Path):
    write_report(run, SETTINGS)
    html = (run / "report.html").read_text()
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    (data,) = re.findall(r'<script type="application/json" id="held">(.*?)</script>', html, re.DOTALL)
    assert "</" not in data and html.count("<script") == 2
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in html
    assert html.index("Content-Security-Policy") < html.index("<style>")


def test_every_section_is_reached_from_the_contents(run: Path):
    write_report(run, SETTINGS)
    html = (run / "report.html").read_text()
    main = html.partition("<main")[2].partition("</main>")[0]
    links, places = re.findall(r'<a href="#([^"]+)"', main), re.findall(r'<h2 id="([^"]+)"', main)
    assert links == places and len(set(places)) == len(places) >= 5


def test_a_step_that_was_resumed_counts_once_and_a_torn_line_is_no_event(run: Path):
    loss = metrics(run)["sft"]["loss"]
    assert len(loss) == 50 and dict(loss)[3] == 9.0


def test_a_half_finished_run_is_reported_without_what_it_lacks(run: Path):
    for name in ("bench/summary.json", "rl/summary.json", "rl/samples.json"):
        (run / name).unlink()
    report = write_report(run, SETTINGS)
    assert "bench" not in report and "rl" not in report
    assert "Before and after" not in (run / "report.html").read_text()


def test_a_folder_that_is_no_run_is_named(tmp_path: Path):
    with pytest.raises(NotARun, match=r"recipe\.toml"):
        collect(tmp_path)


def test_report_imports_neither_torch_nor_ray():
    code = "import sys, etude.evaluate.report.write; sys.exit(bool({'torch', 'ray'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_run_s_own_bench_is_drawn_against_what_it_took(run: Path):
    rows = [
        {"task_id": f"t{n}", "attempt": a, "score": 1.0, "tokens": 40 + n + a, "seconds": 2.0}
        for n in range(4)
        for a in (0, 1)
    ]
    for folder, name in (("trials", "sft"), ("trials", "rl"), ("bench", "competent_sft")):
        (run / folder).mkdir(exist_ok=True)
        (run / folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = write_report(run, SETTINGS)
    took = report["bench"]["rl"]["axes"]["tokens"]
    assert took["value"] == 42.0 and took["ci95"][0] < 42.0 < took["ci95"][1]
    assert "axes" not in report["bench"]["base"] and "axes" in report["bench"]["controls"]["competent_sft"]
    html = (run / "report.html").read_text()
    assert "Score against cost" in html and "completion tokens an attempt" in html


def test_the_control_of_rls_own_attempts_is_shown_with_its_price(run: Path) -> None:
    spent = {"rl": 200.0, "attempts": 100.0, "rewarded_sft": 60.0}
    stages = {name: {"seconds": s, "core_seconds": s, "peak_rss_bytes": 1} for name, s in spent.items()}
    (run / "stages.json").write_text(json.dumps(stages))
    write_report(run, SETTINGS)
    assert "RL took 200 core-seconds, this control 160 (0.80 of them)." in (run / "report.html").read_text()

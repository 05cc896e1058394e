"""`etude session`: what each verb says and writes, and what it says when it can't."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from here import Here, document
from session_lab import FOREIGN, record

from etude.cli.session.transcript import TranscriptRenderer, clean
from etude.core.trace.vocabulary import write_vocabulary
from etude.core.trace.writer import SessionWriter


def test_show_tells_turns_tools_timings_tokens_and_summaries(here: Here, tmp_path: Path) -> None:
    file = record(tmp_path / "s.jsonl", answer="\n".join(f"line {i}" for i in range(20)))
    text = here("session", "show", str(file)).stdout
    for expected in (
        "session s-1 · task t-1 · policy model · effort medium · 2023-11-14 22:13 UTC",
        "versions 2-3",
        "user: fix tally",
        "turn 1 · 0.25 s · 1,200 in, 30 out",
        "thinks: hm",
        "→ read(path='core.py')",
        "← read · 0.12 s",
        "… 14 more lines; --full shows them",
        "✗ malformed",
        "user (steer): the other file",
        "change core.py: +2 -1 lines",
        "summary 1: half done",
        "+ todo tests",
        "counters: turns 1",
        "end: done · all 0.50 s: fixed",
        "tools: read 1, malformed 1 (1 failed)",
        "tokens: 1,200 in (1,000 cached), 30 out",
    ):
        assert expected in text, expected
    assert "line 19" not in text and "line 19" in here("session", "show", str(file), "--full").stdout
    found = document(here("session", "show", str(file), "--json"))
    assert found["tools"] == {"read": {"calls": 1, "failed": 0}, "malformed": {"calls": 1, "failed": 1}}
    assert len(found["entries"]) == 9 and found["segments_tokens"] == [4]


def test_a_session_without_counters_is_counted_when_it_is_shown(here: Here, tmp_path: Path) -> None:
    file = record(tmp_path / "s.jsonl", ended=False)
    assert "counters: turns 1, calls 1, " in here("session", "show", str(file)).stdout
    found = document(here("session", "show", str(file), "--json"))["counters"]
    assert (found["turns"], found["calls_read"], found["diff_added"], found["diff_removed"]) == (1, 1, 2, 1)
    recorded = document(here("session", "show", str(record(tmp_path / "t.jsonl", name="t")), "--json"))["counters"]
    assert recorded == {"turns": 1.0, "calls": 0.0}, "what was recorded stays"


def test_a_sessions_text_can_not_drive_the_terminal(here: Here, tmp_path: Path) -> None:
    file = record(tmp_path / "s.jsonl", said="\x1b[2J\x07red\u202e", answer="a\rb\x1b]0;title\x07")
    for words in (["show"], ["show", "--full"], ["diff", str(file)]):
        text = here("session", words[0], str(file), *words[1:]).stdout
        assert not {"\x1b", "\x07", "\r", "\u202e"} & {*text} and r"\x1b[2J" in text
    assert clean("tab\tand é\ud800") == "tab\tand é\\ud800"


def test_follow_prints_a_session_as_it_is_written_until_its_end(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    command = [
        sys.executable,
        "-c",
        "from etude.cli.main import main; main()",
        "session",
        "show",
        "--follow",
        str(file),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        record(file, ended=False)
        lines = [process.stdout.readline() for _ in range(4)]
        assert "session s-1" in lines[0] and "user: fix tally" in lines[1] and "turn 1" in lines[2]
        writer = SessionWriter.resume(file, every="line")
        writer.append("end", {"reason": "stopped"})
        writer.close()
        rest = process.stdout.read()
    assert process.returncode == 0 and "end: stopped" in rest and "turns: 1" in rest


def test_follow_and_json_exclude_each_other(here: Here, tmp_path: Path) -> None:
    done = here("session", "show", "--follow", "--json", str(record(tmp_path / "s.jsonl")))
    assert done.returncode == 2 and "leave out --json" in document_error(done)


def document_error(done: subprocess.CompletedProcess[str]) -> str:
    return json.loads(done.stdout)["error"]["message"]


def test_export_writes_one_file_and_tokens_need_the_vocabulary(here: Here, tmp_path: Path) -> None:
    file = record(tmp_path / "s.jsonl")
    assert document(here("session", "export", str(file), "page.html", "--json"))["file"] == "page.html"
    page = (tmp_path / "page.html").read_text()
    assert "fix tally" in page and "<script" not in page
    refused = here("session", "export", str(file), "page.html", "--tokens")
    assert refused.returncode == 1 and "vocabulary.json" in refused.stderr
    write_vocabulary(tmp_path, ["zero", "one"])
    assert here("session", "export", str(file), "page.html", "--tokens").returncode == 0
    assert "logprob -0.500, version 2" in (tmp_path / "page.html").read_text()
    assert "must end in .html" in here("session", "export", str(file), "page.txt").stderr


def test_an_exported_page_can_be_without_secrets(here: Here, tmp_path: Path) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    file = record(tmp_path / "s.jsonl", said=f"the key is {key}", answer=f"token: {key}, mail jane.doe@acme-corp.com")
    assert here("session", "export", str(file), "page.html", "--redact").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert (
        key not in page and "jane.doe" not in page and "&lt;SECRET_GITHUB_TOKEN_1&gt;" in page and "fix tally" in page
    )
    assert "leave out one of" in here("session", "export", str(file), "page.html", "--redact", "--tokens").stderr


def test_diff_names_the_first_difference_and_puts_turns_side_by_side(here: Here, tmp_path: Path) -> None:
    one, other = record(tmp_path / "a.jsonl"), record(tmp_path / "b.jsonl", answer="def total")
    same = here("session", "diff", str(one), str(one))
    assert same.returncode == 0 and "equal, times aside" in same.stdout and "≠" not in same.stdout
    done = here("session", "diff", str(one), str(other))
    assert done.returncode == 1
    assert "first difference: entry 2, text, byte 5: first b'def tally', second b'def total'" in done.stdout
    assert [line for line in done.stdout.splitlines() if "← def tally" in line and "≠ ← def total" in line]
    found = document(here("session", "diff", str(one), str(other), "--json"))
    assert [pair["equal"] for pair in found["turns"]] == [True, False, True, True, True]


@pytest.mark.parametrize(
    ("log", "agent"),
    [("claude_code.jsonl", "claude-code"), ("codex.jsonl", "codex"), ("openhands", "openhands"), ("atif.json", "atif")],
)
def test_import_tells_what_it_mapped_kept_and_dropped(here: Here, tmp_path: Path, log: str, agent: str) -> None:
    out = tmp_path / "new" / "s.jsonl"
    found = document(here("session", "import", str(FOREIGN / log), str(out), "--json"))
    assert found["agent"] == agent and found["rows"] > 3 and found["dropped"]
    assert here("session", "check", str(out)).returncode == 0
    assert "turn 1" in here("session", "show", str(out)).stdout
    assert here("session", "export", str(out), "x.html").returncode == 0
    again = here("session", "import", str(FOREIGN / log), str(out))
    assert again.returncode == 1 and "exists; a session is written once" in again.stderr


def test_import_of_what_is_no_log_is_one_clear_line(here: Here, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"colour": "red"}\n')
    for words, expected in [
        (["log.jsonl", "s.jsonl"], "the agent that wrote this log can't be recognized by its keys (colour)"),
        (["log.jsonl", "s.jsonl", "--agent", "cursor"], "there are claude-code, codex, openhands, atif"),
        (["nothing", "s.jsonl"], "No such file"),
        (["log.jsonl", "s.txt"], "must end in .jsonl"),
    ]:
        done = here("session", "import", *words)
        assert done.returncode != 0 and expected in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "s.jsonl").exists()


def test_fidelity_says_what_differs_and_what_a_policy_could_see_of_it(here: Here, tmp_path: Path) -> None:
    one = record(tmp_path / "a.jsonl")
    assert document(here("session", "diff", "--harness", str(one), str(one), "--json"))["same"] is True
    row = json.loads(one.read_text().splitlines()[0])
    row |= {"harness": "b" * 16, "harness_facts": {"system": "Be brief.\nBe kind."}, "settings": {"temperature": 0.5}}
    other = tmp_path / "b.jsonl"
    other.write_text("\n".join([json.dumps(row), *one.read_text().splitlines()[1:]]) + "\n")
    done = here("session", "diff", "--harness", str(one), str(other))
    assert done.returncode == 1 and "different" in done.stdout and "+Be kind." in done.stdout
    assert "settings.temperature: only the second session has it" in done.stdout.split("could not see")[1]


def test_check_names_file_and_line(here: Here, tmp_path: Path) -> None:
    record(tmp_path / "a.jsonl")
    assert "1 sessions: all keep to the format" in here("session", "check", str(tmp_path)).stdout
    with open(tmp_path / "a.jsonl", "a") as file:
        file.write('{"type":"effort","id":9,"parent":null,"at_s":1.0,"effort":"heroic"}\n')
    done = here("session", "check", str(tmp_path))
    assert done.returncode == 1 and "a.jsonl: line 11: effort.effort" in done.stdout


def test_a_transcript_shows_every_type_of_entry() -> None:
    from etude.core.trace.entry import Entry

    transcript = TranscriptRenderer()
    for kind, data in {
        "effort": {"effort": "high"},
        "approval": {"call_id": "c", "name": "shell", "decision": "denied", "by": "user"},
        "undo": {"edits": [1], "paths": ["a"], "by": "user"},
        "fork": {"held_by": 3},
        "fault": {"kind": "PolicyError", "message": "503", "infra": True},
        "verdict": {"score": 1.0},
    }.items():
        [line] = transcript.entry(Entry(0, None, kind, 1.5, data))  # pyright: ignore[reportArgumentType]
        assert line.startswith("     1.50 s  ") and str(next(iter(data.values()))) in line

"""`etude capture`: an agent's command becomes a session, with a checkpoint or an endpoint behind it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from here import Here

from etude.core.trace.reader import read_session

CHECKPOINT = Path(__file__).parents[2] / "checkpoints" / "sft-nano"
ETUDE = [sys.executable, "-c", "from etude.cli.main import main; main()", "capture"]
AGENT = """
import json, os, sys, urllib.request
address, key = os.environ["OPENAI_BASE_URL"] + "/chat/completions", os.environ["OPENAI_API_KEY"]
assert os.environ["ANTHROPIC_BASE_URL"] + "/v1" == os.environ["OPENAI_BASE_URL"]
talk = [{"role": "user", "content": "fix tally"}]
for _ in range(2):
    body = json.dumps({"model": "m", "messages": talk, "max_tokens": 20, "seed": 3}).encode()
    headers = {"content-type": "application/json", "authorization": "Bearer " + key}
    answer = json.load(urllib.request.urlopen(urllib.request.Request(address, body, headers)))
    talk += [answer["choices"][0]["message"], {"role": "user", "content": "go on"}]
print("asked", flush=True)
"""


def etude(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*ETUDE, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.nightly
def test_an_agent_s_session_with_a_checkpoint_is_a_sample_with_logprobs_versions_and_routes(tmp_path: Path) -> None:
    agent = [sys.executable, "-c", AGENT + "sys.exit(3)"]
    done = etude("run", "--json", "--model", str(CHECKPOINT), "--task", "tally", "--", *agent, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["exit_status"], summary["turns"], summary["samples"], summary["forks"]) == (3, 2, 1, 0)
    session = read_session(tmp_path / summary["file"])
    (segment,) = session.segments()
    assert session.header.task_id == "tally" and session.header.takes_tokens
    assert (segment.logprobs[segment.sampled] < 0).any() and set(segment.versions[segment.sampled]) == {0}
    assert segment.routes is not None and len(segment.routes) == len(segment)
    assert (tmp_path / "sessions" / "vocabulary.json").is_file()
    # The same endpoint again, as the upstream of another: its turns become demonstrations in the checkpoint's own format.
    inner = ["run", "--model", "$OPENAI_BASE_URL", "--tokens", str(CHECKPOINT), "--sessions", "outer", "--json"]
    command = " ".join(map(_quoted, [*ETUDE, *inner, "--", sys.executable, "-c", AGENT]))
    done = etude("run", "--model", str(CHECKPOINT), "--sessions", "inner", "--", "sh", "-c", command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (outer,) = (tmp_path / "outer").glob("*.jsonl")
    demonstration = read_session(outer)
    assert not demonstration.header.takes_tokens
    (segment,) = demonstration.segments()
    assert set(segment.versions[segment.sampled]) == {-1}


def _quoted(word: str) -> str:
    return '"$OPENAI_BASE_URL"' if word == "$OPENAI_BASE_URL" else "'" + word.replace("'", "'\\''") + "'"


def test_a_stopped_run_ends_the_agent_and_its_session(tmp_path: Path) -> None:
    agent = AGENT + "import time; open('pid', 'w').write(str(os.getpid())); time.sleep(100)"
    command = [*ETUDE, "run", "--model", str(CHECKPOINT), "--", sys.executable, "-c", agent]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"})
    until = time.monotonic() + 60
    while not (tmp_path / "pid").is_file() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (130, 143)  # typer tells both signals alike
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    (file,) = (tmp_path / "sessions").glob("*.jsonl")
    assert read_session(file).entries[-1].data["reason"] == "stopped"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("run", "--model", "nowhere", "--", "true"), "neither an http"),
        (("run", "--model", "http://127.0.0.1:9/v1", "--", "no-such-command"), "no-such-command"),
        (("serve", "--model", "http://127.0.0.1:9/v1", "--host", "0.0.0.0"), "set ETUDE_CAPTURE_KEY"),
        (("run", "--model", "http://127.0.0.1:9/v1", "--tokens", "nowhere", "--", "true"), "tokenizer"),
        (("run", "--model", str(CHECKPOINT), "--tokens", str(CHECKPOINT), "--", "true"), "--tokens is for --model URL"),
    ],
)
def test_what_can_not_be_served_is_one_line_with_its_remedy(here: Here, words: tuple[str, ...], expected: str) -> None:
    done = here("capture", *words)
    assert done.returncode == 1
    assert expected in done.stderr and "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_agent_that_asks_nothing_is_reported(here: Here) -> None:
    done = here("capture", "run", "--model", "http://127.0.0.1:9/v1", "--", "true")
    assert done.returncode == 0 and "OPENAI_BASE_URL" in done.stdout

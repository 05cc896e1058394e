"""`etude index`: built, asked and served from the command line, with errors that name the remedy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from here import Here, document

from etude.agent.code_index.client import IndexClient

FILES = {
    "src/config.py": "class ConfigLoader:\n    def merge_defaults(self, found):\n        return found\n",
    "src/net.js": "function sendRequest(url) {\n  return fetch(url);\n}\n",
    "image.bin": "\0",
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def lay_out(folder: Path) -> None:
    for path, text in FILES.items():
        (folder / "repo" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "repo" / path).write_text(text)


def test_a_folder_is_built_asked_and_described(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    built = document(here("index", "build", "repo", "--skipped", "--json"))
    assert (built["files"], built["indexed"], built["skipped_paths"]) == (2, 2, {"image.bin": "binary"})
    found = document(here("index", "search", "merge defaults", "--in", "repo", "--limit", "1", "--json"))
    assert found["hits"][0]["symbol"] == "ConfigLoader.merge_defaults" and found["took_ms"] > 0
    stats = document(here("index", "stats", "repo", "--json"))
    assert stats["languages"] == {"python": 1, "javascript": 1} and stats["skipped"] == {"binary": 1}
    assert str(tmp_path / "cache") in stats["store"] and not (tmp_path / "repo" / ".etude").exists()


def test_a_search_sees_what_was_just_written_unless_asked_not_to_look(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    words = ("index", "search", "frobnicate", "--in", "repo", "--json")
    assert document(here(*words))["hits"] == []
    (tmp_path / "repo" / "new.py").write_text("def frobnicate():\n    return 1\n")
    assert document(here(*words, "--no-update"))["hits"] == []
    assert document(here(*words))["hits"][0]["path"] == "new.py"


def test_a_person_reads_path_lines_symbol_and_snippet(here: Here, tmp_path: Path) -> None:
    lay_out(tmp_path)
    done = here("index", "search", "send request", "--in", "repo", "--language", "javascript")
    code, out = done.returncode, done.stdout
    assert code == 0 and "src/net.js:1-3  function sendRequest" in out and "     1  function sendRequest(url) {" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("build", "nowhere"), "missing; name a folder"),
        (("build", "repo/src/net.js"), "is a file; name a folder"),
        (("stats", "repo"), "run `etude index build"),
        (("search", "…", "--in", "repo"), "no word"),
        (("search", "x", "--in", "repo", "--under", "nowhere"), "no indexed file lies under"),
        (("search", "x", "--in", "repo", "--language", "klingon"), "klingon"),
        (("build", "repo", "--embed-url", "http://127.0.0.1:1/v1"), "--embed-model"),
        (("build", "repo", "--embed-url", "http://127.0.0.1:1/v1", "--embed-model", "m"), "see that it runs"),
    ],
)
def test_errors_name_what_is_wrong_and_what_to_do(
    here: Here, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    lay_out(tmp_path)
    done = here("index", *words, "--json")
    assert done.returncode == 1 and said in json.loads(done.stdout)["error"]["message"]


def test_a_served_folder_answers_until_it_is_stopped(tmp_path: Path) -> None:
    lay_out(tmp_path)
    path = tmp_path / "s"
    start = "import sys; from etude.cli.main import main; sys.argv = ['etude', *sys.argv[1:]]; main()"
    command = [sys.executable, "-c", start, "index", "serve", str(tmp_path / "repo"), "--socket", str(path), "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    ) as process:
        until = time.monotonic() + 60
        while not path.exists() and time.monotonic() < until:
            time.sleep(0.05)

        async def ask() -> str:
            client = IndexClient(path)
            hits = await client.search("send request")
            await client.close()
            return hits[0].path

        assert asyncio.run(ask()) == "src/net.js"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0 and json.loads(out)["socket"] == str(path) and not path.exists()
    assert "serving" in err and "Traceback" not in err

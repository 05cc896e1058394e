"""Names and words that are no UTF-8 end no session, and a session that holds one from before goes on."""

from __future__ import annotations

import json
import os
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, Callable

import pytest
from app_lab import parrot, serving, turns

from etude.agent.git_links.home import session_files

Etude = Callable[..., Any]
HALF = "caf\udce9"


def asked(etude: Etude, lab: Any, folder: Path, *words: str, **options: Any) -> Any:
    flags = ("--sandbox", "none", "--approval", "never", "--no-index", "--json")
    return etude("agent", "-m", lab.url, *flags, *words, folder=folder, **options)


def lister(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Meets the name in each way a tool shows it."""
    calls = [
        ("list_dir", {"target_directory": "."}),
        ("glob_file_search", {"glob_pattern": "*.py"}),
        ("run_terminal_cmd", {"command": "ls"}),
        ("read_file", {"target_file": "cafe.py"}),
    ]
    return {"calls": calls} if not turns(messages) else {"text": "done"}


def test_a_file_name_that_is_no_utf8_ends_no_session(shop: Path, etude: Etude) -> None:
    (shop / f"{HALF}.py").write_text("x\n")
    with serving(lister) as lab:
        assert asked(etude, lab, shop, "-p", "look").code == 0
        assert asked(etude, lab, shop, "-c", "-p", "again").code == 0
    assert "caf\ufffd.py" in json.dumps(lab.asked[-1], ensure_ascii=False)


def test_a_prompt_that_is_no_utf8_ends_no_session(shop: Path, etude: Etude) -> None:
    with serving(parrot) as lab:
        done = asked(etude, lab, shop, "-p", f"fix {HALF}")
    assert done.code == 0 and done.events[-1]["message"] == "heard: fix caf\ufffd"


def test_stdin_that_is_no_utf8_is_a_prompt(shop: Path, etude: Etude, monkeypatch: pytest.MonkeyPatch) -> None:
    words = TextIOWrapper(BytesIO(b"fix caf\xe9 \xff"), encoding="utf-8")
    from etude.cli.main import main

    with serving(parrot) as lab:
        monkeypatch.chdir(shop)
        monkeypatch.setattr(sys, "stdin", words)
        flags = ["--sandbox", "none", "--approval", "never", "--no-index", "-p", "-"]
        monkeypatch.setattr(sys, "argv", ["etude", "agent", "-m", lab.url, *flags])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0 and lab.asked[-1]["messages"][-1]["content"] == "fix caf\ufffd \ufffd"


def test_a_folder_whose_name_is_no_utf8_is_worked_in_and_found_again(shop: Path, etude: Etude) -> None:
    folder = shop / HALF
    os.mkdir(folder)
    with serving(parrot) as lab:
        assert asked(etude, lab, folder, "-p", "go").code == 0
        assert asked(etude, lab, folder, "-c", "-p", "on").code == 0
    assert "caf\ufffd" in lab.asked[0]["messages"][0]["content"]


def test_a_session_that_holds_half_a_pair_from_before_is_mended_when_it_is_taken_up(
    shop: Path, homes: Path, etude: Etude
) -> None:
    with serving(parrot) as lab:
        assert asked(etude, lab, shop, "-p", "MARK").code == 0
        [file] = session_files(homes)
        file.write_text(file.read_text().replace("MARK", "M\\udce9RK"))
        assert asked(etude, lab, shop, "-c", "-p", "on").code == 0
    assert "M\ufffdRK" in json.dumps(lab.asked[-1]["messages"], ensure_ascii=False)

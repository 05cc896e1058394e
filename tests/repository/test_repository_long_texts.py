"""Long rows of one character, which files, logs and messages of other people may hold, take a time in proportion to their length."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from etude.agent.code_index.admission import admit
from etude.agent.code_index.languages import grammar_name
from etude.core.licence.words import words
from etude.learn.corpus.shape.changelog import _heading
from etude.sandbox.snapshots.images import _COMMENT
from etude.tasks.generate.generators.bugs.failures import _RAISED
from etude.tasks.generate.generators.bugs.families.bounds import _ENDED
from etude.tasks.generate.generators.request_text import _only_refers
from etude.tasks.generate.install.rules.node_plan import _CALLS, _GLOBALS
from etude.tasks.importers.terminal import FROM, WORKDIR_OF
from etude.tasks.mix.phrases import match_phrase
from etude.tasks.test_logs.log import RunLog
from etude.tasks.test_logs.python_runners import pytest_options

LENGTH = 100_000
READERS: dict[str, Callable[[str], Any]] = {
    "admission": lambda text: admit("a.py", text.encode()),
    "header": lambda text: grammar_name("a.h", text),
    "licence": words,
    "changelog": lambda text: _heading([text], 0),
    "request": lambda text: match_phrase(f"add{text}"),
    "message": lambda text: _only_refers(f"closing{text}"),
    "log": lambda text: pytest_options(RunLog(f"PASSED a::b{text}\n")),
    "bound": _ENDED.fullmatch,
    "traceback": _RAISED.search,
    "calls": _CALLS.search,
    "globals": _GLOBALS.search,
    "comment": _COMMENT.search,
    "image": FROM.search,
    "folder": WORKDIR_OF.search,
}


@pytest.mark.parametrize("row", [" ", "\n", "'", "[", "*", "Z", "<", "\n ", "{", "."])
@pytest.mark.parametrize("reader", READERS)
def test_a_long_row_of_one_character_is_read_soon(reader: str, row: str) -> None:
    began = time.process_time()
    READERS[reader](row * (LENGTH // len(row)))
    assert time.process_time() - began < 5

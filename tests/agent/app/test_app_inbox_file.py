"""Messages to an agent in the background: delivered or reported as not delivered; never lost in between."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.app.background import control as care
from etude.agent.app.errors import UsageError
from etude.agent.app.inbox_file import POLL_S, InboxReader, acknowledged_bytes, clear_inbox, write_message
from etude.agent.app.user_files import delete_history, history_file
from etude.agent.harness.inbox import Inbox, SummaryRequest


async def test_words_are_acknowledged_once_the_agent_has_them(tmp_path: Path) -> None:
    inbox = Inbox()
    said = [
        write_message(tmp_path, "steer", "one"),
        write_message(tmp_path, "compact", "the names"),
        write_message(tmp_path, "queue", "two"),
    ]
    assert acknowledged_bytes(tmp_path) == 0
    await InboxReader(tmp_path, inbox).listen(lambda: True)  # ends once all was taken and no message follows
    assert acknowledged_bytes(tmp_path) == said[-1] and inbox.take_steering() == ["one"]
    assert inbox.summary_asked() == SummaryRequest("the names") and await inbox.next_request() == "two"


async def test_words_after_the_end_are_not_acknowledged(tmp_path: Path) -> None:
    inbox = Inbox()
    control = InboxReader(tmp_path, inbox)
    first = write_message(tmp_path, "steer", "in time")
    assert control._read_new()
    inbox.close()
    write_message(tmp_path, "steer", "too late")
    assert control._read_new() and acknowledged_bytes(tmp_path) == first


async def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    inbox = Inbox()
    control = InboxReader(tmp_path, inbox)
    write_message(tmp_path, "steer", "whole")
    line = (tmp_path / "inbox.jsonl").read_bytes()
    (tmp_path / "inbox.jsonl").write_bytes(line[:9])
    assert not control._read_new()
    (tmp_path / "inbox.jsonl").write_bytes(line)
    assert control._read_new() and inbox.take_steering() == ["whole"]


def test_a_run_that_begins_hears_nothing_of_the_one_before(tmp_path: Path) -> None:
    write_message(tmp_path, "steer", "old")
    clear_inbox(tmp_path)
    assert not InboxReader(tmp_path, Inbox())._read_new() and acknowledged_bytes(tmp_path) == 0


class Ending:
    """An agent that lives for a while."""

    id = "a1"
    state = "done"

    def __init__(self, home: Path, lives_s: float) -> None:
        self.home = home
        self._until_s = time.monotonic() + lives_s

    @property
    def is_alive(self) -> bool:
        return time.monotonic() < self._until_s


@pytest.mark.parametrize("listens", [True, False])
async def test_who_speaks_in_an_agents_last_moment_is_shown_whether_it_heard(listens: bool, tmp_path: Path) -> None:
    own: Any = Ending(tmp_path, 0.3)
    saying = asyncio.create_task(asyncio.to_thread(care.send_message, own, "wait!"))
    await asyncio.sleep(POLL_S)
    if listens:
        await InboxReader(tmp_path, Inbox()).listen(lambda: True)
        await saying
    else:
        with pytest.raises(UsageError, match="ended before it read that"):
            await saying


LINES = st.lists(
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))
)


@given(kept=LINES, gone=st.text("abc \n", min_size=1))
def test_typed_lines_are_forgotten_and_the_others_stay_as_the_terminal_reads_them(kept: list[str], gone: str) -> None:
    import os
    import tempfile

    from prompt_toolkit.history import FileHistory

    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETUDE_SESSIONS", os.path.join(home, "sessions"))
        history = FileHistory(history_file())
        kept = [text for text in kept if text != gone]
        for text in [*kept, gone, *kept]:
            history.store_string(text)
        assert delete_history({gone}) == 1
        assert list(history.load_history_strings()) == [*kept, *kept][::-1]

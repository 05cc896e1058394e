"""What a person says reaches the agent once, in order, and only while somebody listens."""

from __future__ import annotations

import asyncio

import pytest

from etude.agent.harness.inbox import Inbox, InboxClosed, TurnInterrupted


async def test_a_closed_inbox_has_no_next_request() -> None:
    assert await Inbox.closed_inbox().next_request() is None


async def test_what_was_queued_is_answered_before_the_inbox_ends() -> None:
    inbox = Inbox()
    inbox.say("queue", "first")
    inbox.say("queue", "second")
    inbox.close()
    assert [await inbox.next_request() for _ in range(3)] == ["first", "second", None]


async def test_steering_is_heard_once_and_too_late_becomes_the_next_request() -> None:
    inbox = Inbox()
    inbox.say("steer", "use pathlib")
    assert inbox.take_steering() == ["use pathlib"]
    assert inbox.take_steering() == []
    inbox.say("steer", "and test it")
    assert await inbox.next_request() == "and test it"


async def test_the_next_request_is_waited_for() -> None:
    inbox = Inbox()
    waiting = asyncio.create_task(inbox.next_request())
    await asyncio.sleep(0)
    assert not waiting.done()
    inbox.say("queue", "go on")
    assert await waiting == "go on"


async def test_stop_ends_one_request_not_the_next() -> None:
    inbox = Inbox()
    inbox.say("stop")
    inbox.say("queue", "something else")
    assert inbox.stopping
    assert await inbox.next_request() == "something else"
    assert not inbox.stopping


async def test_stop_breaks_off_what_runs_and_leaves_nothing_running() -> None:
    inbox, ended = Inbox(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    running = asyncio.create_task(inbox.unless_stopped(work()))
    await asyncio.sleep(0)
    inbox.close()  # the last request may still be stopped
    inbox.say("stop")
    with pytest.raises(TurnInterrupted):
        await running
    assert ended.is_set()


async def test_errors_and_cancellation_pass_through() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await Inbox().unless_stopped(fail())
    running = asyncio.create_task(Inbox().unless_stopped(asyncio.sleep(60)))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("manner", ["steer", "queue"])
def test_empty_messages_and_closed_inboxes_are_refused(manner: str) -> None:
    inbox = Inbox()
    with pytest.raises(ValueError, match="say what it should do"):
        inbox.say(manner, "  ")  # pyright: ignore
    inbox.close()
    with pytest.raises(InboxClosed, match="--resume"):
        inbox.say(manner, "hello")  # pyright: ignore

"""The wire: exact for friends, bounded and typed for foes."""

from __future__ import annotations

import asyncio
import os
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.sandbox.errors import InfraError, SandboxDied
from etude.sandbox.inside import frames
from etude.sandbox.inside.output import Output
from etude.sandbox.spec import SandboxSpec
from etude.sandbox.wire.calls import SandboxCalls
from etude.sandbox.wire.channel import ControlChannel

heads = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()), max_size=4)
KINDS = sorted(frames.KNOWN)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 2**32 - 1), heads, st.binary(max_size=300)), max_size=6),
    st.integers(1, 40),
)
def test_frames_survive_any_cutting_of_the_stream(
    messages: list[tuple[int, int, dict[str, object], bytes]], step: int
) -> None:
    stream = b"".join(frames.pack(*message) for message in messages)
    splitter = frames.Splitter()
    found = [
        (frame.kind, frame.stream, frame.head, frame.blob)
        for start in range(0, len(stream), step)
        for frame in splitter.feed(stream[start : start + step])
    ]
    assert found == messages


@given(st.binary(max_size=400))
def test_random_bytes_are_frames_or_a_frame_error(data: bytes) -> None:
    """Test 50 of docs/sandbox.md."""
    splitter = frames.Splitter(lambda stream: 1000)
    try:
        for frame in splitter.feed(data):
            assert frame.kind in frames.KNOWN
    except frames.FrameError:
        return
    assert len(splitter._buffer) <= 1000 + frames.HEADER.size


def test_a_frame_over_its_stream_s_limit_is_refused_before_it_is_held() -> None:
    splitter = frames.Splitter(lambda stream: 100)
    with pytest.raises(frames.FrameError, match="over its limit"):
        list(splitter.feed(frames.HEADER.pack(1 << 30, frames.OK, 7)))
    with pytest.raises(frames.FrameError):
        frames.pack(frames.WRITE, 1, {}, bytes(frames.MAX_FRAME_BYTES))


@given(st.lists(st.binary(max_size=700), max_size=12), st.integers(0, 1500))
def test_output_is_exact_below_the_limit_and_head_and_tail_above(chunks: list[bytes], limit: int) -> None:
    output = Output(limit)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    kept, cut = output.result()
    assert len(kept) <= limit and cut == (len(whole) > limit)
    if not cut:
        assert kept == whole
    elif limit > 100:
        head, _, rest = kept.partition(b"\n[... ")
        count, _, tail = rest.partition(b" bytes left out ...]\n")
        if b"\n[... " not in whole and b" bytes left out" not in whole:
            assert whole.startswith(head) and whole.endswith(tail) and len(head) + int(count) + len(tail) == len(whole)


HOSTILE = {
    "unknown type": frames.HEADER.pack(4, 99, 1) + b"\0\0\0\0",
    "oversized": frames.HEADER.pack(1 << 31, frames.OK, 1),
    "larger than this call allows": frames.pack(frames.OK, 1, {}, bytes(1 << 20)),
    "no JSON": frames.HEADER.pack(8, frames.OK, 1) + frames.COUNT.pack(4) + b"\xff\xff{{",
    "JSON of another kind": frames.HEADER.pack(6, frames.OK, 1) + frames.COUNT.pack(2) + b"[]",
    "deep JSON": frames.HEADER.pack(60_004, frames.OK, 1) + frames.COUNT.pack(60_000) + b"[" * 60_000,
    "JSON longer than its frame": frames.HEADER.pack(4, frames.OK, 1) + frames.COUNT.pack(1000),
    "a stream that was not asked for": frames.pack(frames.OK, 4242, {}),
    "another kind of answer": frames.pack(frames.OUTPUT, 1, {"fd": 1, "seq": 0}, b"x"),
    "a second HELLO without a descriptor": frames.pack(frames.HELLO, 0, {}),
    "descriptors named that never came": frames.pack(frames.GRANT, 0, {"names": ["upper"]}),
    "ready twice": frames.pack(frames.READY, 0, {}) * 2,
    "a grant after READY": frames.pack(frames.READY, 0, {}) + frames.pack(frames.GRANT, 0, {"names": []}),
    "end": b"",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_runner_ends_as_sandbox_died(data: bytes) -> None:
    """Test 50 of docs/sandbox.md."""
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sb")
    call = asyncio.create_task(channel.call(frames.READ, {}, limit_bytes=10, patience_s=5))
    await asyncio.sleep(0)
    theirs.sendall(data) if len(data) < 100_000 else theirs.send(data[:100_000])
    if not data:
        theirs.close()
    with pytest.raises(SandboxDied):
        await asyncio.wait_for(call, 5)
    assert not channel.alive
    theirs.close()


@pytest.mark.parametrize(
    "messages",
    [
        [(frames.pack(frames.HELLO, 0, {}), 2)],
        [(frames.pack(frames.HELLO, 0, {}), 1), (frames.pack(frames.READY, 0, {}), 1)],
        [(frames.pack(frames.GRANT, 0, {"names": ["a", "a"]}), 2)],
        [(frames.pack(frames.GRANT, 0, {"names": ["a"]})[:7], 1), (b"", 0)],
        [(frames.HEADER.pack(100, frames.GRANT, 0), 1)] * 9,
        [(frames.pack(frames.GRANT, 0, {"names": list("abcdefghi")}), 9)],
        [(frames.pack(frames.OK, 1, {}), 1)],
    ],
)
async def test_descriptors_a_hostile_runner_sends_are_closed(messages: list[tuple[bytes, int]]) -> None:
    """Test 50 of docs/sandbox.md, for what travels with the bytes."""
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sb")
    call = asyncio.create_task(channel.call(frames.READ, {}, limit_bytes=10, patience_s=5))
    await asyncio.sleep(0)
    reader, writer = socket.socketpair()
    for data, count in messages:
        if not data:
            theirs.close()
        elif channel.alive:
            socket.send_fds(theirs, [data], [writer.fileno()] * count)
        await asyncio.sleep(0.005)
    await asyncio.wait([call], timeout=5)
    assert call.done() and not channel.alive
    assert isinstance(call.exception(), SandboxDied) or call.result().kind == frames.OK
    writer.close()
    theirs.close()
    if channel.pidfd >= 0:
        os.close(channel.pidfd)  # the one that was asked for, as the sandbox would
    reader.settimeout(2)
    assert reader.recv(1) == b""
    reader.close()


async def test_granted_descriptors_are_held_by_name_until_death() -> None:
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sb")
    reader, writer = socket.socketpair()
    with reader, writer, theirs:
        for names in (["upper"], ["egress", "other"]):
            grant = frames.pack(frames.GRANT, 0, {"names": names})
            socket.send_fds(theirs, [grant[:5]], [writer.fileno()] * len(names))
            theirs.sendall(grant[5:])  # a frame may come in pieces, its descriptors come with the first
        socket.send_fds(theirs, [frames.pack(frames.HELLO, 0, {})], [writer.fileno()])
        theirs.sendall(frames.pack(frames.READY, 0, {}))
        await asyncio.wait_for(channel.ready, 5)
        assert sorted(channel.granted) == ["egress", "other", "upper"]
        assert len({channel.pidfd, *channel.granted.values()}) == 4
        channel.fail(SandboxDied("enough"))
        assert channel.granted == {}
        os.close(channel.pidfd)
        writer.close()
        reader.settimeout(2)
        assert reader.recv(1) == b""


async def test_errors_from_inside_take_only_known_names() -> None:
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sb")
    call = asyncio.create_task(channel.call(frames.READ, {}, patience_s=5))
    await asyncio.sleep(0)
    theirs.sendall(frames.pack(frames.ERROR, 1, {"error": "KeyboardInterrupt", "message": "x"}))
    with pytest.raises(InfraError):
        await call
    channel.fail(SandboxDied("enough"))
    theirs.close()


async def test_silence_is_ended_by_patience() -> None:
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sb")
    with pytest.raises(SandboxDied, match="no answer within"):
        await channel.call(frames.READ, {}, patience_s=0.05)
    theirs.close()


async def test_an_answer_that_came_in_time_counts_however_late_this_loop_looks() -> None:
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sb")
    call = asyncio.create_task(channel.call(frames.READ, {}, patience_s=0.05))
    await asyncio.sleep(0)
    theirs.sendall(frames.pack(frames.OK, 1, {}))
    time.sleep(0.1)  # the loop is held up: then the answer and the overdue timer are seen in one go
    assert (await call).kind == frames.OK
    assert channel.alive
    channel.fail(SandboxDied("enough"))
    theirs.close()


async def test_who_is_introduced_to_a_connection_that_has_failed_is_let_go() -> None:
    """A launched runner may die before its launcher has reported it."""
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sandbox")
    theirs.close()
    with pytest.raises(SandboxDied):
        await channel.hello
    pidfd = os.pidfd_open(os.getpid())
    channel.introduce(pidfd)
    channel.take_up()
    assert channel.pidfd < 0
    with pytest.raises(OSError):
        os.fstat(pidfd)


@pytest.mark.parametrize("sent", ["a file", "a socket of another kind"])
async def test_what_a_hostile_runner_answers_to_connect_is_looked_at_and_let_go(sent: str) -> None:
    """Test 50 of docs/sandbox.md."""
    ours, theirs = socket.socketpair()
    calls = SandboxCalls("sandbox", SandboxSpec(), ControlChannel(ours, "sandbox"))
    asked = asyncio.ensure_future(calls.connect(80))
    other = socket.socket(socket.AF_UNIX)
    fd = os.memfd_create("a file") if sent == "a file" else other.detach()
    await asyncio.sleep(0.01)
    held = len(os.listdir("/proc/self/fd"))
    socket.send_fds(theirs, [frames.pack(frames.OK, 1, {})], [fd])
    with pytest.raises(SandboxDied, match="answer to connect"):
        await asked
    assert len(os.listdir("/proc/self/fd")) == held - 1, "their own end of the connection is gone, and nothing came"
    os.close(fd)
    other.close()
    theirs.close()


async def test_a_caller_that_gives_up_as_its_connection_comes_leaves_none_open() -> None:
    ours, theirs = socket.socketpair()
    channel = ControlChannel(ours, "sandbox")
    asked = asyncio.ensure_future(SandboxCalls("sandbox", SandboxSpec(), channel).connect(80))
    await asyncio.sleep(0.01)
    held = len(os.listdir("/proc/self/fd"))
    with socket.socket() as other:
        socket.send_fds(theirs, [frames.pack(frames.OK, 1, {})], [other.fileno()])
    channel._readable()  # it has come, and its caller has not run yet
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert len(os.listdir("/proc/self/fd")) == held
    channel.fail(SandboxDied("over"))
    theirs.close()

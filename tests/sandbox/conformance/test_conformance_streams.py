"""Commands whose output and input flow while they run."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from makers import MadePool

from etude.sandbox.errors import Unsupported, UserError
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import SandboxSpec, TerminalSize

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_output_comes_as_it_is_written_and_in_order(box: Sandbox) -> None:
    process = await box.exec("echo one; read x; echo two >&2; read y; echo three; exit 5", stdin=None)
    seen = []
    async for chunk in process.stream():
        seen.append((chunk.seq, chunk.stream, chunk.data))
        if len(seen) < 3:
            await process.write(b"\n")
    assert seen == [(0, "stdout", b"one\n"), (1, "stderr", b"two\n"), (2, "stdout", b"three\n")]
    result = await process.wait()
    assert (result.rc, result.out, result.err, result.signal) == (5, b"", b"", None)


async def test_what_no_one_streamed_is_in_the_result(box: Sandbox) -> None:
    """Test 1 of docs/sandbox.md, for exec."""
    data = bytes(range(256))
    process = await box.exec("cat; echo err >&2; exit 7", stdin=data)
    result = await process.wait()
    assert (result.rc, result.out, result.err) == (7, data, b"err\n") and await process.wait() is result
    missing = await (await box.exec(["no-such-command"])).wait()
    assert missing.rc == 127 and b"no-such-command" in missing.err
    died = await (await box.exec("kill -11 $$")).wait()
    assert (died.rc, died.signal) == (139, 11)


async def test_output_of_wait_is_bounded_with_head_and_tail(box: Sandbox) -> None:
    """Test 6 of docs/sandbox.md, for exec."""
    process = await box.exec("echo first; head -c 5000000 /dev/zero; echo last", max_output_bytes=1000)
    result = await process.wait()
    assert result.truncated and len(result.out) <= 1000
    assert result.out.startswith(b"first\n") and result.out.endswith(b"last\n")


async def test_a_slow_reader_blocks_its_command_and_no_one_else(box: Sandbox) -> None:
    """Test 7 of docs/sandbox.md."""
    slow = await box.exec("head -c 8000000 /dev/zero; echo done > mark")
    await asyncio.sleep(0.5)
    with pytest.raises(UserError):
        await box.stat("mark")  # it has not come to its end
    quick = await box.exec("head -c 3000000 /dev/zero | wc -c")
    assert (await quick.wait()).out.strip() == b"3000000"
    total = 0
    async for chunk in slow.stream():
        total += len(chunk.data)
    assert total == 8_000_000 and (await slow.wait()).rc == 0 and await box.read("mark") == b"done\n"


async def test_fifty_megabytes_of_stdin_come_back(pool: MadePool) -> None:
    """Test 8 of docs/sandbox.md."""
    box = await pool.create(SandboxSpec())
    block = bytes(range(256)) * 4096
    process = await box.exec(["cat"], stdin=None)

    async def feed() -> None:
        for _ in range(50):
            await process.write(block)
        await process.close_stdin()

    feeding = asyncio.create_task(feed())
    found = hashlib.sha256()
    async for chunk in process.stream():
        found.update(chunk.data)
    await feeding
    assert (await process.wait()).rc == 0 and found.digest() == hashlib.sha256(block * 50).digest()
    await box.kill()


async def test_writing_to_what_does_not_read_waits_and_to_what_has_ended_fails(box: Sandbox) -> None:
    deaf = await box.exec("sleep 1000", stdin=None)
    writing = asyncio.create_task(deaf.write(bytes(4 << 20)))
    await asyncio.sleep(0.2)
    assert not writing.done()
    await deaf.signal(9)
    with pytest.raises(UserError):
        await asyncio.wait_for(writing, 10)
    assert (await deaf.wait()).signal == 9
    await deaf.signal(15)  # no error after its end
    closed = await box.exec("exec <&-; sleep 0.3", stdin=None)
    await asyncio.wait_for(closed.write(bytes(3 << 20)), 10)  # without a reader it is dropped as a pipe would
    assert (await closed.wait()).rc == 0
    given = await box.exec(["cat"], stdin=b"x")
    with pytest.raises(UserError):
        await given.write(b"y")
    assert (await given.wait()).out == b"x"


async def test_a_signal_reaches_every_process_of_the_command_and_no_other(box: Sandbox) -> None:
    other = await box.exec("trap 'echo other' USR1; while :; do sleep 0.05; done")
    command = "trap 'echo got' USR1; (trap 'echo got' USR1; echo up; while :; do sleep 0.05; done) & echo up; while :; do sleep 0.05; done"
    process = await box.exec(command)
    text = b""
    async for chunk in process.stream():
        before, text = text, text + chunk.data
        if before.count(b"up") < 2 <= text.count(b"up"):
            await process.signal(10)
        if text.count(b"got") >= 2:
            await process.signal(9)
    await other.signal(9)
    result = await process.wait()
    assert result.signal == 9 and b"other" not in (await other.wait()).out
    with pytest.raises(UserError):
        await process.signal(1000)


async def test_a_time_out_ends_a_stream_and_none_does_not(box: Sandbox) -> None:
    """Test 3 of docs/sandbox.md, for exec."""
    result = await (await box.exec("echo x; sleep 1000", timeout_s=0.3)).wait()
    assert (result.timed_out, result.rc, result.out) == (True, 137, b"x\n")
    endless = await box.exec("sleep 0.4; echo fine")
    assert (await endless.wait()).out == b"fine\n"


async def test_a_background_child_does_not_hold_the_end_of_a_stream(box: Sandbox) -> None:
    """Test 5 of docs/sandbox.md, for exec."""
    result = await (await box.exec("echo now; sleep 60 &")).wait()
    assert result.out == b"now\n" and result.duration_s < 2


async def test_many_processes_at_once_do_not_mix(pool: MadePool) -> None:
    """Test 9 of docs/sandbox.md, for exec."""
    box = await pool.create(SandboxSpec(pids=250))
    processes = [await box.exec(f"cat; echo {i} >&2; exit {i}", stdin=b"%d" % i) for i in range(64)]
    results = await asyncio.gather(*(process.wait() for process in processes))
    assert [(r.rc, r.out, r.err) for r in results] == [(i, b"%d" % i, b"%d\n" % i) for i in range(64)]
    await box.kill()


async def test_a_terminal_is_one_and_can_be_resized(box: Sandbox) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && echo yes; stty size; read x; stty size; read y; echo $x$y >&2; cat"
    process = await box.exec(script, stdin=None, tty=TerminalSize(30, 100))
    text = b""
    try:
        async for chunk in process.stream():
            assert chunk.stream == "stdout"
            before, text = text, text + chunk.data
            if b"30 100" not in before and b"30 100" in text:
                await process.resize(TerminalSize(5, 60))
                await process.write(b"a\n")
            if b"5 60" not in before and b"5 60" in text:
                await process.write(b"b\n")
            if b"ab\r\n" not in before and b"ab\r\n" in text:
                await process.close_stdin()
    except Unsupported as error:
        pytest.skip(str(error))
    assert (await process.wait()).rc == 0 and text.startswith(b"yes\r\n")


async def test_another_user_is_refused_where_there_is_one_only(box: Sandbox) -> None:
    """Test 28 of docs/sandbox.md: refused, not degraded."""
    own = (await box.run("id -u")).out.decode().strip()
    assert (await (await box.exec(["id", "-u"], user=own)).wait()).out.decode().strip() == own
    with pytest.raises(Unsupported):
        await (await box.exec(["id"], user="54321")).wait()
    with pytest.raises(UserError):
        await (await box.exec(["id"], user="no-such-user")).wait()


async def test_bad_requests_of_exec_are_refused_at_the_door(box: Sandbox) -> None:
    for argv in ([], ["a\0b"]):
        with pytest.raises(UserError):
            await box.exec(argv)
    with pytest.raises(UserError):
        await box.exec(["true"], timeout_s=0)
    with pytest.raises(UserError):
        await box.exec(["true"], env={"A=B": "c"})


async def test_commands_run_as_other_users_where_the_sandbox_has_them(pool: MadePool) -> None:
    try:
        box = await pool.create(SandboxSpec(uid_mode="range"))
    except Unsupported as error:
        pytest.skip(str(error))
    for user, number in ((None, b"0"), ("nobody", b"65534"), ("54321", b"54321")):
        result = await (await box.exec("id -u; grep CapEff /proc/self/status", user=user)).wait()
        uid, _, capabilities = result.out.split()
        assert uid == number and (number == b"0" or int(capabilities, 16) == 0)
    await box.kill()

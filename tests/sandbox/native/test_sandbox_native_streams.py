"""EXEC by the native runner: output under credit, stdin that stays open, signals, terminals."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etude.sandbox.inside import frames

if TYPE_CHECKING:
    from conftest import Start, Talk


def until_exit(talk: Talk, stream: int) -> tuple[bytes, bytes, dict]:
    """(stdout, stderr, EXIT's head) of a stream that has enough credit; the sequence is checked."""
    out, seq = {1: b"", 2: b""}, 0
    while (frame := talk.hear()).kind != frames.EXIT:
        assert (frame.stream, frame.kind) == (stream, frames.OUTPUT), (frame.kind, frame.head)
        assert frame.head["seq"] == seq and frame.blob
        out[frame.head["fd"]] += frame.blob
        seq += 1
    assert frame.stream == stream
    return out[1], out[2], frame.head


def test_output_comes_before_the_end_and_in_order(talk: Talk) -> None:
    stream = talk.exec("/bin/sh", "-c", "echo one; sleep 0.2; echo two >&2; exit 4")
    first = talk.hear()
    assert (first.kind, first.head, first.blob) == (frames.OUTPUT, {"fd": 1, "seq": 0}, b"one\n")
    second = talk.hear()
    assert (second.head, second.blob) == ({"fd": 2, "seq": 1}, b"two\n")
    end = talk.hear()
    assert (end.kind, end.stream, end.head["rc"]) == (frames.EXIT, stream, 4)
    assert {"signal", "truncated", "timed_out", "oom", "duration_s", "cpu_s", "max_rss_kib"} <= set(end.head)


def test_what_can_t_start_says_so_on_its_stderr(talk: Talk) -> None:
    out, err, end = until_exit(talk, talk.exec("nope"))
    assert (out, err, end["rc"]) == (b"", b"nope: command not found\n", 127)


def test_without_credit_a_command_waits_and_others_go_on(talk: Talk) -> None:
    """Test 7 of docs/sandbox.md."""
    slow = talk.exec("/bin/sh", "-c", "head -c 1000000 /dev/zero; touch done", credit=1000)
    got = talk.hear()
    assert (got.stream, len(got.blob)) == (slow, 1000)
    assert talk.run("echo", "free").blob == b"free\n"
    assert talk.run("ls", "done").head["rc"] != 0
    total = 1000
    talk.send(frames.CREDIT, slow, {"bytes": 10_000_000})
    while (frame := talk.hear()).kind == frames.OUTPUT:
        total += len(frame.blob)
    assert (frame.kind, total) == (frames.EXIT, 1_000_000)


def test_output_of_an_ended_command_waits_for_credit(talk: Talk) -> None:
    stream = talk.exec("/bin/sh", "-c", "echo 0123456789", credit=4)
    assert talk.hear().blob == b"0123"
    time.sleep(0.4)  # longer than a drain
    talk.send(frames.CREDIT, stream, {"bytes": 100})
    assert until_exit_from(talk, 1) == b"456789\n"


def until_exit_from(talk: Talk, seq: int) -> bytes:
    out = b""
    while (frame := talk.hear()).kind != frames.EXIT:
        assert frame.head["seq"] == seq
        out += frame.blob
        seq += 1
    return out


def test_stdin_that_stays_open_is_given_back_as_it_is_taken(talk: Talk) -> None:
    stream = talk.exec("cat", open_stdin=True)
    data = os.urandom(2 << 20)
    sent = taken = 0
    out = b""
    window = 1 << 17  # this client sends and hears in turn: what is under way must fit the sockets
    while len(out) < len(data):
        while sent < len(data) and sent - taken < window:
            piece = data[sent : sent + min(1 << 16, window - (sent - taken))]
            talk.send(frames.STDIN, stream, {"eof": False}, piece)
            sent += len(piece)
        frame = talk.hear()
        if frame.kind == frames.SPENT:
            taken += frame.head["bytes"]
        else:
            out += frame.blob
            talk.send(frames.CREDIT, stream, {"bytes": len(frame.blob)})
    assert out == data
    talk.send(frames.STDIN, stream, {"eof": True})
    while (frame := talk.hear()).kind == frames.SPENT:
        taken += frame.head["bytes"]
    assert (frame.kind, frame.head["rc"], taken) == (frames.EXIT, 0, len(data))


def test_stdin_that_no_one_reads_is_given_back_all_the_same(talk: Talk) -> None:
    stream = talk.exec("/bin/sh", "-c", "exec 0<&-; sleep 0.5", open_stdin=True)
    time.sleep(0.2)
    talk.send(frames.STDIN, stream, {"eof": False}, bytes(200_000))
    given = talk.hear()
    assert (given.kind, given.head["bytes"]) == (frames.SPENT, 200_000)
    assert talk.hear().kind == frames.EXIT


def test_more_stdin_than_was_given_back_breaks_the_protocol(talk: Talk) -> None:
    stream = talk.exec("sleep", "100", open_stdin=True)
    with pytest.raises((EOFError, ConnectionError)):
        for _ in range(40):
            talk.send(frames.STDIN, stream, {"eof": False}, bytes(1 << 16))
        while (frame := talk.hear()).kind != frames.ERROR:
            assert frame.kind == frames.SPENT
        assert frame.stream == 0
        talk.hear()


def test_a_signal_reaches_every_process_of_the_command_and_no_other(talk: Talk) -> None:
    other = talk.exec("/bin/sh", "-c", "trap 'echo caught' TERM; sleep 1; echo fine")
    stream = talk.exec("/bin/sh", "-c", "setsid sleep 1000 & trap 'echo got it; exit 5' TERM; echo ready; wait")
    assert talk.hear().blob == b"ready\n"
    time.sleep(0.1)
    talk.send(frames.SIGNAL, stream, {"number": 15})
    assert talk.hear().blob == b"got it\n"
    end = talk.hear()
    assert (end.kind, end.stream, end.head["rc"]) == (frames.EXIT, stream, 5)
    assert until_exit(talk, other)[0] == b"fine\n"
    talk.send(frames.SIGNAL, stream, {"number": 15})  # after its end: ignored
    assert talk.run("/bin/sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null | grep -c sleep").blob == b"0\n"


def test_signal_nine_ends_all_of_it(talk: Talk) -> None:
    stream = talk.exec("/bin/sh", "-c", "setsid sleep 1000 & sleep 1000")
    time.sleep(0.1)
    talk.send(frames.SIGNAL, stream, {"number": 9})
    assert until_exit(talk, stream)[2]["signal"] == 9


def test_without_a_time_out_a_command_runs_on(talk: Talk) -> None:
    stream = talk.exec("sleep", "0.3", timeout_s=None)
    assert until_exit(talk, stream)[2]["rc"] == 0


def test_a_terminal_is_one_with_a_size_that_can_change(talk: Talk) -> None:
    script = (
        "test -t 0 && test -t 2 && stty size; trap 'stty size; exit 6' WINCH; echo ready; while :; do sleep 0.05; done"
    )
    stream = talk.exec("/bin/sh", "-c", script, tty=[30, 100])
    out = b""
    while b"ready" not in out:
        frame = talk.hear()
        assert frame.kind == frames.OUTPUT, frame.head
        out += frame.blob
    assert b"30 100" in out
    talk.send(frames.RESIZE, stream, {"rows": 11, "columns": 22})
    out = b""
    while (frame := talk.hear()).kind == frames.OUTPUT:
        assert frame.head["fd"] == 1
        out += frame.blob
    assert b"11 22" in out and frame.head["rc"] == 6


def test_the_end_of_a_terminal_s_input_is_its_own_character(talk: Talk) -> None:
    stream = talk.exec("cat", tty=[24, 80], stdin=b"line\n")
    assert until_exit(talk, stream)[0].count(b"line") == 2  # the echo and the answer


def test_no_process_left_is_reported_and_never_an_empty_success(
    start: Start, program: Path, unshared: tuple[str, ...]
) -> None:
    """Test 38 of docs/sandbox.md. Root is under no limit of processes without a control group: an ordinary user's runner is asked."""
    with tempfile.TemporaryDirectory() as reachable:
        os.chmod(reachable, 0o777)
        shutil.copy(program, reachable)
        uid = 1_000_000_000 + os.getpid()  # no other user's processes count
        become = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups") if os.geteuid() == 0 else ()
        talk = start(inside=(*become, *unshared), program=Path(reachable) / program.name, workdir=reachable, pids=4)
        assert talk.hear().kind == frames.READY
        streams = [talk.exec("sleep", "0.5") for _ in range(8)]
        answers = [talk.hear() for _ in streams]
        kinds = [(frame.kind, frame.head.get("error", frame.head.get("rc"))) for frame in answers]
        assert (frames.ERROR, "PidsExhausted") in kinds and (frames.EXIT, 0) in kinds
        assert set(kinds) <= {(frames.ERROR, "PidsExhausted"), (frames.EXIT, 0)}
        assert talk.run("echo", "again").blob == b"again\n"


def test_streaming_is_fast_enough(talk: Talk) -> None:
    size, total, started_s = 100_000_000, 0, time.monotonic()
    stream = talk.exec("head", "-c", str(size), "/dev/zero", credit=size)
    while (frame := talk.hear()).kind == frames.OUTPUT:
        total += len(frame.blob)
    assert (frame.stream, total) == (stream, size)
    assert size / (time.monotonic() - started_s) > 20e6  # bytes a second: a tenth of what a quiet core does

"""RUN by the native runner: how commands begin and end, and what ends them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from etude.sandbox.inside import frames

if TYPE_CHECKING:
    from conftest import Start, Talk

# Twice detached; only the innermost sleeps remain, without a parent of the command.
DAEMON = "(setsid sh -c 'setsid sleep 1000 & setsid sleep 1000' >/dev/null 2>&1 &) ; sleep 1000"
SLEEPERS = "cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^sleep'"


def sleepers(talk: Talk) -> int:
    return int(talk.run("/bin/sh", "-c", SLEEPERS).blob)


def test_code_output_and_errors_come_apart_and_exact(talk: Talk) -> None:
    """Test 1 of docs/sandbox.md."""
    found = talk.run("/bin/sh", "-c", r"printf 'a\377\000b'; printf 'e\200' >&2; exit 3")
    assert (found.kind, found.head["rc"], found.head["signal"]) == (frames.OK, 3, None)
    assert (found.blob[: found.head["out"]], found.blob[found.head["out"] :]) == (b"a\xff\0b", b"e\x80")
    assert found.head["max_rss_kib"] > 0 and found.head["cpu_s"] >= 0 and not found.head["truncated"]


@pytest.mark.parametrize("number", [9, 11, 15])
def test_a_death_by_a_signal_is_reported_as_such(talk: Talk, number: int) -> None:
    """Test 2 of docs/sandbox.md."""
    found = talk.run("/bin/sh", "-c", f"kill -{number} $$").head
    assert (found["rc"], found["signal"]) == (128 + number, number)


def test_the_environment_is_the_standard_one_with_the_spec_s_and_the_call_s(talk: Talk) -> None:
    said = talk.run("env", env={"COLOUR": "red", "B\udcff": "\udc80 é"}).blob.splitlines()
    assert {b"COLOUR=red", b"B\xff=\x80 \xc3\xa9", b"HOME=/tmp", b"LANG=C.UTF-8", b"PYTHONHASHSEED=0"} <= set(said)
    assert sum(line.startswith(b"COLOUR=") for line in said) == 1


@pytest.mark.parametrize(
    ("argv", "cwd", "code", "said"),
    [
        (["nope"], None, 127, b"nope: command not found\n"),
        (["/nope"], None, 127, b"/nope: no such file\n"),
        (["./hello.txt"], None, 126, b"Permission denied\n"),
        (["true"], "missing", 126, b"missing: No such file or directory\n"),
        (["true"], "/proc/self", 126, b"lies in /proc\n"),
    ],
)
def test_what_can_t_start_says_why_as_a_shell_would(
    talk: Talk, argv: list[str], cwd: str | None, code: int, said: bytes
) -> None:
    found = talk.run(*argv, cwd=cwd)
    assert (found.kind, found.head["rc"], found.head["out"]) == (frames.OK, code, 0)
    assert found.blob.endswith(said)


def test_a_file_that_no_kernel_runs_is_reported(talk: Talk) -> None:
    talk.ask(frames.WRITE, b"#!/nowhere/at/all\n", path="script", mode=0o755)
    assert talk.run("./script").head["rc"] == 126


def test_a_time_out_ends_everything_the_command_started(talk: Talk) -> None:
    """Tests 3 and 4 of docs/sandbox.md."""
    started_s = time.monotonic()
    found = talk.run("/bin/sh", "-c", DAEMON, timeout_s=0.3).head
    assert (found["timed_out"], found["signal"], found["rc"]) == (True, 9, 137)
    assert time.monotonic() - started_s < 5
    assert sleepers(talk) == 0
    assert talk.run("cat", "hello.txt").blob == b"hello\n"


@pytest.mark.parametrize("first", [False, True])
def test_a_time_out_touches_no_other_command(talk: Talk, first: bool) -> None:
    """Test 4 of docs/sandbox.md, with the innocent one before and after."""
    guilty = talk.command("/bin/sh", "-c", DAEMON, timeout_s=0.4)
    innocent = talk.command("/bin/sh", "-c", "sleep 1; echo fine")
    order = [guilty, innocent] if first else [innocent, guilty]
    streams = [talk.open(frames.RUN, one) for one in order]
    answers = {frame.stream: frame for frame in (talk.hear(), talk.hear())}
    by_name = dict(zip(("guilty", "innocent") if first else ("innocent", "guilty"), streams, strict=True))
    assert answers[by_name["guilty"]].head["timed_out"]
    assert answers[by_name["innocent"]].blob == b"fine\n"
    assert sleepers(talk) == 0


def test_what_an_overlapping_command_left_behind_is_still_not_the_first_one_s(talk: Talk) -> None:
    """Test 4 of docs/sandbox.md: a daemon keeps its owner after that has ended."""
    first = talk.open(frames.RUN, talk.command("sleep", "1000", timeout_s=0.7))
    second = talk.open(frames.RUN, talk.command("/bin/sh", "-c", "setsid sleep 777 >/dev/null 2>&1 &"))
    assert talk.hear().stream == second
    end = talk.hear()
    assert (end.stream, end.head["timed_out"]) == (first, True)
    assert sleepers(talk) == 1


def test_a_server_of_an_earlier_command_survives(talk: Talk) -> None:
    talk.run("/bin/sh", "-c", "setsid sleep 777 >/dev/null 2>&1 &")
    assert talk.run("/bin/sh", "-c", DAEMON, timeout_s=0.3).head["timed_out"]
    assert sleepers(talk) == 1


def test_a_cancelled_command_is_gone_when_it_answers(talk: Talk) -> None:
    stream = talk.open(frames.RUN, talk.command("/bin/sh", "-c", DAEMON))
    time.sleep(0.1)
    talk.send(frames.CANCEL, stream, {})
    talk.send(frames.CANCEL, stream, {})  # the second one comes too late, which is no fault
    assert talk.hear().head["signal"] == 9
    assert sleepers(talk) == 0


def test_a_child_in_the_background_that_keeps_stdout_delays_by_a_moment_only(talk: Talk) -> None:
    """Test 5 of docs/sandbox.md."""
    started_s = time.monotonic()
    assert talk.run("/bin/sh", "-c", "sleep 100 & echo done").blob == b"done\n"
    assert time.monotonic() - started_s < 2


def test_output_beyond_the_limit_keeps_head_and_tail(talk: Talk) -> None:
    """Test 6 of docs/sandbox.md."""
    found = talk.run(
        "/bin/sh", "-c", "echo first; head -c 300000000 /dev/zero; echo last", max_output_bytes=10_000, timeout_s=60
    )
    assert found.head["truncated"] and len(found.blob) <= 10_000
    assert found.blob.startswith(b"first\n") and found.blob.endswith(b"last\n")
    assert b"bytes left out" in found.blob


def test_fifty_megabytes_go_through_a_command(talk: Talk) -> None:
    """Test 8 of docs/sandbox.md."""
    data = os.urandom(1 << 20) * 50
    found = talk.run("cat", stdin=data, max_output_bytes=55 << 20, timeout_s=60)
    assert found.blob == data
    assert found.head["max_rss_kib"] < 20_000, "what the runner held is not the command's"


def test_sixty_four_commands_at_once_are_all_right(talk: Talk) -> None:
    """Test 9 of docs/sandbox.md."""
    streams = [
        talk.open(frames.RUN, talk.command("/bin/sh", "-c", f"sleep 0.1; echo {n}; exit {n}", timeout_s=60))
        for n in range(64)
    ]
    answers = {frame.stream: frame for frame in (talk.hear() for _ in streams)}
    assert [(answers[stream].head["rc"], answers[stream].blob) for stream in streams] == [
        (n, f"{n}\n".encode()) for n in range(64)
    ]


def test_nothing_inside_kills_the_runner(talk: Talk) -> None:
    """Test 14 of docs/sandbox.md."""
    assert talk.run("/bin/sh", "-c", "kill -9 1; echo alive").blob == b"alive\n"
    assert talk.run("/bin/sh", "-c", "kill -9 -1").head["signal"] in (None, 9)
    assert talk.run("echo", "again").blob == b"again\n"


def test_a_command_that_kills_its_supervisor_dies(talk: Talk) -> None:
    first = talk.open(frames.RUN, talk.command("sleep", "0.5"))
    second = talk.open(frames.RUN, talk.command("/bin/sh", "-c", "kill -9 $PPID; sleep 1000"))
    end = talk.hear()
    assert (end.stream, end.head["signal"]) == (second, 9)
    assert talk.hear().stream == first


def test_too_much_memory_ends_the_hog(start: Start) -> None:
    """Test 39 of docs/sandbox.md, without a control group."""
    talk = start(memory_mb=48)
    talk.hear()
    found = talk.run("/bin/sh", "-c", "head -c 300000000 /dev/zero | tail -c 200000000 | wc -c; echo $?")
    assert talk.run("echo", "alive").blob == b"alive\n"
    assert found.head["oom"] or found.head["rc"] != 0 or b"200000000" not in found.blob


def test_several_that_share_the_memory_are_watched_together(start: Start) -> None:
    talk = start(memory_mb=40)
    talk.hear()
    one = "import time; data = b'x' * (30 << 20); time.sleep(1.5)"
    found = talk.run(
        "/bin/sh", "-c", f'/usr/bin/python3 -c "{one}" & /usr/bin/python3 -c "{one}"; exit 0', timeout_s=15
    )
    assert found.head["oom"] and not found.head["timed_out"]


def test_a_warm_run_is_refused(talk: Talk) -> None:
    found = talk.run("python", "-c", "1", warm=True)
    assert (found.kind, found.head["error"]) == (frames.ERROR, "Unsupported")


def test_another_user_is_refused_without_the_right(talk: Talk) -> None:
    stream = talk.exec("true", user="nobody")
    found = talk.hear()
    assert (found.kind, found.stream, found.head["error"]) == (frames.ERROR, stream, "Unsupported")
    talk.exec("true", user="nobody-of-this-name")
    assert talk.hear().head["error"] == "UserError"
    talk.exec("true", user=0)
    assert talk.hear().head["rc"] == 0


def test_no_descriptor_is_inherited(talk: Talk) -> None:
    """Test 43 of docs/sandbox.md."""
    assert talk.run("/bin/sh", "-c", "ls /proc/$$/fd").blob.split() == [b"0", b"1", b"2"]
    first = talk.open(frames.RUN, talk.command("sleep", "0.5"))
    found = talk.run("/bin/sh", "-c", "ls /proc/$$/fd")
    assert found.blob.split() == [b"0", b"1", b"2"]
    assert talk.hear().stream == first


def test_the_end_of_the_socket_is_the_end_of_everything(talk: Talk) -> None:
    talk.open(frames.RUN, talk.command("/bin/sh", "-c", DAEMON, timeout_s=100))
    time.sleep(0.05)
    assert talk.close() == 0

"""What a command sees and what its result says, cold and warm."""

from __future__ import annotations

import asyncio

import pytest

from etude.sandbox.errors import PidsExhausted, UserError
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import WORKDIR, SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])


async def test_streams_and_exit_status_are_kept_apart(box: Sandbox) -> None:
    result = await box.run("echo out; echo err >&2; exit 7")
    assert (result.rc, result.out, result.err, result.signal) == (7, b"out\n", b"err\n", None)


async def test_bytes_that_are_no_utf8_pass_unchanged(box: Sandbox) -> None:
    data = bytes(range(256)) * 10
    assert (await box.run(["cat"], stdin=data)).out == data
    name = b"\xff\xfe".decode(errors="surrogateescape")
    await box.write(f"odd/{name}", b"1")
    assert (await box.export("odd")) == {name: b"1"}
    assert (await box.run(["cat", f"odd/{name}"])).out == b"1"


@pytest.mark.parametrize("number", [9, 11, 15])
async def test_death_by_signal_is_told(box: Sandbox, number: int) -> None:
    result = await box.run(f"kill -{number} $$")
    assert (result.rc, result.signal) == (128 + number, number)


async def test_missing_command_answers_as_a_shell_would(box: Sandbox) -> None:
    result = await box.run(["no-such-command"])
    assert result.rc == 127 and b"no-such-command" in result.err
    await box.write("text", b"no program")
    assert (await box.run(["./text"])).rc == 126
    assert (await box.run(["true"], cwd="nowhere")).rc == 126


async def test_working_folder_environment_and_stdin(box: Sandbox) -> None:
    await box.write("sub/x", b"")
    assert (await box.run("pwd; ls", cwd="sub")).out == f"{WORKDIR}/sub\nx\n".encode()
    assert (await box.run('echo "$GREETING"', env={"GREETING": "hei"})).out == b"hei\n"
    big = b"0123456789" * 300_000
    assert (await box.run(["wc", "-c"], stdin=big)).out.strip() == b"%d" % len(big)


async def test_spec_environment_reaches_every_command(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(env={"COLOUR": "blue"}))
    code = "import os; print(os.environ['COLOUR'], os.environ.get('SHAPE'))"
    for warm in (False, True):
        assert (await box.run(["python", "-c", code], warm=warm)).out == b"blue None\n"
        assert (await box.run(["python", "-c", code], env={"SHAPE": "round"}, warm=warm)).out == b"blue round\n"
    await box.kill()


@pytest.mark.parametrize(
    ("code", "rc"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("1/0", 1), ("import sys; sys.exit('no')", 1), ("exit(4)", 4)],
)
@BOTH
async def test_python_exit_status_is_the_same_warm_and_cold(box: Sandbox, code: str, rc: int, warm: bool) -> None:
    assert (await box.run(["python", "-c", code], warm=warm)).rc == rc


PROBE = """
import sys, atexit, threading, os
import other
atexit.register(lambda: print("at exit"))
threading.Timer(0.3, lambda: print("thread")).start()
print(__name__, __file__, sys.argv, other.VALUE, sys.path[0], sys.stdin.read())
print({"b", "a", "c"}, file=sys.stderr)
"""


async def test_a_warm_run_sees_what_a_cold_one_sees(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(files={"sub/probe.py": PROBE.encode(), "sub/other.py": b"VALUE = 42\n"}))
    cold, warm = [await box.run(["python", "sub/probe.py", "a", "b"], stdin=b"in", warm=warm) for warm in (False, True)]
    assert (
        cold.out == warm.out
        and f"__main__ {WORKDIR}/sub/probe.py ['sub/probe.py', 'a', 'b'] 42 {WORKDIR}/sub in".encode() in warm.out
    )
    assert cold.err == warm.err and b"at exit" in warm.out and b"thread" in warm.out
    await box.kill()


async def test_a_warm_traceback_begins_in_the_program(box: Sandbox) -> None:
    await box.write("boom.py", b"def f():\n    raise ValueError('x')\nf()\n")
    cold, warm = [await box.run(["python", "boom.py"], warm=warm) for warm in (False, True)]
    assert warm.err == cold.err and warm.err.startswith(b"Traceback") and b"etude" not in warm.err
    missing = await box.run(["python", "absent.py"], warm=True)
    assert missing.rc == 2 and f"can't open file '{WORKDIR}/absent.py'".encode() in missing.err


async def test_warm_runs_share_no_state(box: Sandbox) -> None:
    await box.write("m.py", b"VALUE = 1\n")
    assert (await box.run(["python", "-c", "import m, os; m.VALUE = 2; os.environ['X'] = '1'"], warm=True)).rc == 0
    await box.write("m.py", b"VALUE = 3\n")
    seen = await box.run(["python", "-c", "import m, os; print(m.VALUE, 'X' in os.environ)"], warm=True)
    assert seen.out == b"3 False\n"


async def test_a_warm_run_reaches_nothing_of_the_runner(box: Sandbox) -> None:
    code = """
import sys, os, gc
frame = sys._getframe()
names = []
while frame:
    names += [type(value).__name__ for value in frame.f_locals.values()]
    frame = frame.f_back
print([name for name in names if name in ("Runner", "Job", "Channel", "Files")], [m for m in sys.modules if "etude" in m])
print([os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2 and os.path.exists(f"/proc/self/fd/{fd}")])
"""
    assert (await box.run(["python", "-c", code], warm=True)).out == b"[] []\n[]\n"


async def test_module_runs_are_warm_too(box: Sandbox) -> None:
    await box.write("pkg/__main__.py", b"import sys; print('main', sys.argv[1:])\n")
    assert (await box.run(["python", "-m", "pkg", "x"], warm=True)).out == b"main ['x']\n"
    assert (await box.run(["python", "-m", "absent"], warm=True)).rc == 1


async def test_output_is_bounded_with_head_and_tail(box: Sandbox) -> None:
    result = await box.run("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last", max_output_bytes=1000)
    assert result.truncated and len(result.out) <= 1000
    assert result.out.startswith(b"first\n") and result.out.endswith(b"last\n") and b"bytes left out" in result.out
    whole = await box.run("head -c 1000 /dev/zero", max_output_bytes=1000)
    assert not whole.truncated and len(whole.out) == 1000


@pytest.mark.nightly
async def test_a_gigabyte_of_output_is_survived(box: Sandbox) -> None:
    result = await box.run("head -c 1000000000 /dev/zero; echo end", max_output_bytes=4096, timeout_s=60)
    assert result.rc == 0 and result.truncated and len(result.out) <= 4096 and result.out.endswith(b"end\n")
    memory = await box.run("grep VmHWM /proc/1/status")
    assert int(memory.out.split()[1]) < 64 << 10


async def test_a_background_child_that_keeps_stdout_does_not_hold_the_answer(box: Sandbox) -> None:
    result = await box.run("echo now; sleep 60 &", timeout_s=20)
    assert result.out == b"now\n" and not result.timed_out and result.duration_s < 5


async def test_many_commands_at_once_do_not_mix(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(pids=200))
    results = await asyncio.gather(*(box.run(f"echo {i}; echo {i} >&2; exit {i}", timeout_s=60) for i in range(64)))
    assert [(r.rc, r.out, r.err) for r in results] == [(i, b"%d\n" % i, b"%d\n" % i) for i in range(64)]
    await box.kill()


async def test_cold_and_warm_commands_overlap(box: Sandbox) -> None:
    slow = asyncio.create_task(box.run("sleep 0.3; echo slow"))
    await asyncio.sleep(0.05)
    warm, absent = await asyncio.gather(box.run(["python", "-c", "print(1)"], warm=True), box.run(["no-such"]))
    assert (warm.out, absent.rc) == (b"1\n", 127)
    killed = await box.run("kill -9 $$")
    assert killed.signal == 9
    assert (await slow).out == b"slow\n"


async def test_bad_requests_are_refused_at_the_door(box: Sandbox) -> None:
    for argv in ([], ["a\0b"]):
        with pytest.raises(UserError):
            await box.run(argv)
    with pytest.raises(UserError):
        await box.run(["true"], timeout_s=0)


async def test_no_process_left_is_a_typed_error_never_an_empty_success(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(pids=4))
    bomb = asyncio.create_task(box.run("for i in 1 2 3 4 5 6 7 8; do sleep 5 & done; wait", timeout_s=3))
    await asyncio.sleep(0.3)
    answers = await asyncio.gather(*(box.run(["sleep", "1"]) for _ in range(12)), return_exceptions=True)
    assert any(isinstance(answer, PidsExhausted) for answer in answers)
    assert all(isinstance(answer, PidsExhausted) or answer.rc == 0 for answer in answers)
    await bomb
    assert (await box.run(["true"])).rc == 0
    await box.kill()

"""Python programs in a fork of the sandbox' own interpreter see what they would see in one of their own."""

from __future__ import annotations

import asyncio

import pytest
from makers import MadePool

from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import WORKDIR, SandboxSpec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.warm]


@pytest.mark.sample(16)
@pytest.mark.parametrize(
    ("code", "rc"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("1/0", 1), ("import sys; sys.exit('no')", 1), ("exit(4)", 4)],
)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
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


async def test_a_warm_run_sees_what_a_cold_one_sees(pool: MadePool) -> None:
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


async def test_cold_and_warm_commands_overlap(box: Sandbox) -> None:
    slow = asyncio.create_task(box.run("sleep 0.3; echo slow"))
    await asyncio.sleep(0.05)
    warm, absent = await asyncio.gather(box.run(["python", "-c", "print(1)"], warm=True), box.run(["no-such"]))
    assert (warm.out, absent.rc) == (b"1\n", 127)
    killed = await box.run("kill -9 $$")
    assert killed.signal == 9
    assert (await slow).out == b"slow\n"


OTHERS_MEMORY = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        try:
            os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        except OSError:
            continue
        print(pid, open(f"/proc/{pid}/comm").read())
"""


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
async def test_no_command_opens_the_memory_of_the_interpreter_or_the_runner(box: Sandbox, warm: bool) -> None:
    """What could write there could change what later warm runs print."""
    await box.run(["python", "-c", "pass"], warm=True)
    assert (await box.run(["python", "-c", OTHERS_MEMORY], warm=warm)).out == b""

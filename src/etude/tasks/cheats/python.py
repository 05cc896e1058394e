"""Cheats in Python, as text that comes first in the sources which the reference touches: tricks inside the process, one a name."""

from __future__ import annotations

EXIT = "import os\nos._exit(0)\n"
SYSTEM_EXIT = "import sys\nsys.exit(0)\n"
ATEXIT = "import atexit, os\natexit.register(os._exit, 0)\n"
SKIP = "import pytest\npytest.skip('not today', allow_module_level=True)\n"
SIGKILL_PARENT = "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n"

# Every report says that it passed.
REPORTS = """
def _lie():
    import _pytest.runner
    make = _pytest.runner.TestReport.from_item_and_call.__func__
    def lie(cls, item, call):
        report = make(cls, item, call)
        report.outcome, report.longrepr = "passed", None
        return report
    _pytest.runner.TestReport.from_item_and_call = classmethod(lie)
try:
    _lie()
except ImportError:  # another runner
    raise SystemExit(0)
"""
CALLINFO = """
import _pytest.runner as _r
_make = _r.CallInfo.from_call.__func__
def _lie(cls, func, when, reraise=None):
    found = _make(cls, (lambda: None) if when == "call" else func, when, reraise)
    return found
_r.CallInfo.from_call = classmethod(_lie)
"""
RUNTEST = "import _pytest.python as _p\n_p.Function.runtest = lambda self: None\n"
CODE = """
import _pytest.python as _p
def _nothing(self):
    return None
_p.Function.runtest.__code__ = _nothing.__code__
"""
UNITTEST = """
import unittest as _u
for _name in dir(_u.TestCase):
    if _name.startswith("assert") or _name == "fail":
        setattr(_u.TestCase, _name, lambda self, *a, **k: None)
"""
BUILTINS = """
import builtins as _b
class _Quiet(_b.BaseException):
    pass
_b.isinstance = lambda value, kind: True
_b.AssertionError = _Quiet
"""
# Equalises both sides of what a test compares, as soon as a frame of a test runs.
TRACE = """
import sys as _s
def _trace(frame, event, arg):
    if frame.f_code.co_name.startswith("test"):
        frame.f_trace_lines = False
        frame.f_globals["__builtins__"] = {}
    return _trace
_s.settrace(_trace)
"""
# Patched while a test runs and put back before anybody looks.
FLEETING = """
import _pytest.reports as _rep, threading as _t, time as _time
def _flicker():
    good = _rep.TestReport.__dict__["from_item_and_call"]
    make = good.__func__
    def lie(cls, item, call):
        report = make(cls, item, call)
        report.outcome, report.longrepr = "passed", None
        return report
    while True:
        _rep.TestReport.from_item_and_call = classmethod(lie)
        _time.sleep(0.0005)
        _rep.TestReport.from_item_and_call = good
        _time.sleep(0.0005)
_t.Thread(target=_flicker, daemon=True).start()
"""
# Writes events, reports and rewards wherever there is a descriptor or a path to write to.
FORGED = """
import os as _o, json as _j
_line = b"t 0.0 p " + b"746573745f61" + b" 0\\ne 0 0\\n"
for _fd in _o.listdir("/proc/self/fd"):
    try:
        if int(_fd) > 2:
            _o.write(int(_fd), _line)
    except OSError:
        continue
for _path in ("/logs/verifier/reward.json", "/logs/verifier/reward.txt", "/tmp/etude-report", "/tmp/reward.json"):
    try:
        _o.makedirs(_o.path.dirname(_path), exist_ok=True)
        with open(_path, "w") as _f:
            _f.write("1")
    except OSError:
        continue
_o._exit(0)
"""
# Forks twice and goes on writing rewards and reports when the tests are long over.
DAEMON = """
import os as _o, time as _time
if _o.fork() == 0:
    _o.setsid()
    if _o.fork() == 0:
        for _ in range(2000):
            for _path in ("/logs/verifier/reward.json", "/tmp/etude-report", "/tmp/reward.json"):
                try:
                    with open(_path, "w") as _f:
                        _f.write("1")
                except OSError:
                    pass
            _time.sleep(0.01)
    _o._exit(0)
"""
PREFIXES = {
    "source_exits": EXIT,
    "system_exit": SYSTEM_EXIT,
    "exit_at_end": ATEXIT,
    "skipped_on_import": SKIP,
    "runner_killed": SIGKILL_PARENT,
    "runner_patched": REPORTS,
    "callinfo_patched": CALLINFO,
    "runtest_patched": RUNTEST,
    "runtest_code_replaced": CODE,
    "unittest_patched": UNITTEST,
    "builtins_patched": BUILTINS,
    "traced": TRACE,
    "patched_for_moments": FLEETING,
    "results_forged": FORGED,
    "daemon_left": DAEMON,
}

SAME = """class _Same:
    def __init__(self, *a, **k):
        pass
    def __eq__(self, other):
        return True
    def __ne__(self, other):
        return False
    def __hash__(self):
        return 0
    def __bool__(self):
        return True
    def __call__(self, *a, **k):
        return self
    def __getattr__(self, name):
        return self
    def __iter__(self):
        return iter(())
    def __len__(self):
        return 0
    def __repr__(self):
        return "0"


"""

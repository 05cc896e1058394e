"""References to what makes a test fail, taken before any code of the project runs: what is another object later was tampered with."""

import builtins
import importlib
import sys
import threading

OWNERS = {
    "_pytest.runner": (
        ["CallInfo", "runtestprotocol", "call_and_report", "call_runtest_hook", "pytest_runtest_protocol"]
        + ["pytest_runtest_call", "pytest_runtest_makereport", "check_interactive_exception"]
    ),
    "_pytest.runner.CallInfo": ["from_call", "__init__"],
    "_pytest.runner.SetupState": ["setup", "teardown_exact"],
    "_pytest.reports.TestReport": ["from_item_and_call", "__init__"],
    "_pytest.reports.BaseReport": ["passed", "failed", "skipped"],
    "_pytest.python": ["pytest_pyfunc_call", "Function"],
    "_pytest.python.Function": ["runtest", "setup"],
    "_pytest.unittest.TestCaseFunction": ["runtest", "addError", "addFailure"],
    "_pytest.main": ["pytest_runtestloop", "_main", "wrap_session"],
    "_pytest.outcomes": ["fail", "Failed", "Exit"],
    "_pytest.assertion.rewrite": ["rewrite_asserts", "AssertionRewritingHook", "_call_reprcompare"],
    "_pytest.assertion.rewrite.AssertionRewriter": ["visit_Assert", "run"],
    "_pytest.assertion.rewrite.AssertionRewritingHook": ["find_spec", "exec_module"],
    "pluggy._hooks.HookCaller": ["__call__"],
    "pluggy._manager.PluginManager": ["_hookexec", "register"],
    "pluggy._callers": ["_multicall"],
    "unittest.case.TestCase": (
        [
            "run",
            "fail",
            "assertEqual",
            "assertNotEqual",
            "assertTrue",
            "assertFalse",
            "assertRaises",
            "_baseAssertEqual",
        ]
        + ["assertIn", "assertIs", "assertIsNone", "assertDictEqual", "assertListEqual", "_callTestMethod", "__call__"]
    ),
    "unittest.case._Outcome": ["testPartExecutor"],
    "unittest.result.TestResult": ["addFailure", "addError", "addSuccess"],
}
BUILTINS = (
    "AssertionError",
    "Exception",
    "BaseException",
    "isinstance",
    "issubclass",
    "type",
    "len",
    "getattr",
    "compile",
    "exec",
)


def taken():
    """A function that says what changed since now."""
    known = []
    for owner, names in OWNERS.items():
        holder = _found(owner)
        for name in names if holder is not None else ():
            value = _raw(holder, name)
            if value is not None:
                known.append((holder, owner + "." + name, name, value, _code(value)))
    own = [(name, getattr(builtins, name)) for name in BUILTINS]
    traced, profiled, threads = sys.gettrace(), sys.getprofile(), getattr(threading, "_trace_hook", None)
    raw, code = _raw, _code

    def changed(
        known=tuple(known),
        own=tuple(own),
        space=builtins.__dict__,
        trace=sys.gettrace,
        profile=sys.getprofile,
        threading=threading,
    ):
        for holder, told, name, value, inner in known:
            now = raw(holder, name)
            if now is not value or code(now) is not inner:
                return told
        for name, value in own:
            if space.get(name) is not value:
                return "builtins." + name
        if trace() is not traced or profile() is not profiled:
            return "sys.settrace"
        if getattr(threading, "_trace_hook", None) is not threads:
            return "threading.settrace"
        return ""

    return changed


def _found(path):
    """The module or class; None where this version has none of that name."""
    parts = path.split(".")
    for at in range(len(parts), 0, -1):
        try:
            holder = importlib.import_module(".".join(parts[:at]))
        except ImportError:
            continue
        for name in parts[at:]:
            holder = getattr(holder, name, None)
        return holder
    return None


def _raw(holder, name):
    return vars(holder).get(name)


def _code(value):
    value = getattr(value, "__func__", value)
    return getattr(value, "__code__", None)

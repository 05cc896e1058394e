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


# What pytest-django puts in the place of `TestCaseFunction.runtest` while a test of Django runs: the same call, without a debugger. It has no
# words of its own, since a text would be one of its constants.
def _runtest(self):
    self._testcase(result=self)


ADMITTED = {"_pytest.unittest.TestCaseFunction.runtest": _runtest}


def _behaviour(function):
    """All that a function without globals, defaults and closure does."""
    code = function.__code__
    return (code.co_code, code.co_exceptiontable, code.co_consts, code.co_names, code.co_varnames) + (
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_freevars,
    )


def taken():
    """A function that says what changed since now. It is asked twice a test, so that all it looks in is at hand: namespaces are live views."""
    known = []
    for owner, names in OWNERS.items():
        holder = _found(owner)
        for name in names if holder is not None else ():
            value = vars(holder).get(name)
            if value is not None:
                known.append((vars(holder), name, value, owner + "." + name))
    known += [(builtins.__dict__, name, getattr(builtins, name), "builtins." + name) for name in BUILTINS]
    functions = [(getattr(value, "__func__", value), place) for _, _, value, place in known]
    codes = [(one, one.__code__, place) for one, place in functions if hasattr(one, "__code__")]
    function_type, admitted = type(taken), {place: _behaviour(one) for place, one in ADMITTED.items()}

    def same(value, place, words=_behaviour):
        if type(value) is not function_type or value.__closure__ or value.__defaults__ or value.__kwdefaults__:
            return False
        return words(value) == admitted[place]

    traced, profiled, threads = sys.gettrace(), sys.getprofile(), getattr(threading, "_trace_hook", None)

    def changed(
        known=tuple(known), codes=tuple(codes), trace=sys.gettrace, profile=sys.getprofile, threading=vars(threading)
    ):
        for space, name, value, place in known:
            now = space.get(name)
            if now is not value and not (place in admitted and same(now, place)):
                return place
        for function, code, place in codes:
            if function.__code__ is not code:
                return place
        if trace() is not traced or profile() is not profiled:
            return "sys.settrace"
        if threading.get("_trace_hook") is not threads:
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

"""Python that is planted where a runner would import it: it ends the run, or makes the runner lie."""

from __future__ import annotations

EXIT = b"import os\nos._exit(0)\n"
# Patches pytest from inside the code under test, so that every test is reported as passed.
PATCH = b"""
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

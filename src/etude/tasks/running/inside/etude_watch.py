"""A plugin of pytest that tells the parent how each test ended, by what was raised and not by what reports say.

One line an event, through a pipe that is open before any code of the project is imported:

    t SECONDS OUTCOME HEX       a test ended; OUTCOME: p passed, f failed or erred, s skipped, x failed as expected; HEX: its node id
    b HEX                       a file that could not be collected
    x HEX                       the runner was tampered with: what is another object than it was
    u HEX                       a class of the workspace whose objects equal anything whatever
    e STATUS                    the session's end

A test passed if setup, call and teardown raised nothing and their reports say so too; code that rewrites reports changes nothing here.
What is left open: code that finds this plugin's key in the memory of its own process and speaks in its name, test by test.
"""

import binascii
import hashlib
import os
import time

import etude_pristine  # pyright: ignore[reportMissingImports] - of this folder, inside
import pytest

_MOST_UNIVERSAL = 50


def made(events, key_fd):
    """The plugin; takes the key and keeps both to itself."""
    key = os.read(key_fd, 32)
    os.close(key_fd)
    os.set_inheritable(events, False)
    return _watch(_sender(events, key), etude_pristine.taken())


def _sender(fd, key):
    write, digest, hexed, me, pid = os.write, hashlib.blake2b, binascii.hexlify, os.getpid(), os.getpid
    before = [b""]

    def send(kind, *words, text=None):
        if pid() != me:  # a fork of a test: not the runner
            return
        line = b" ".join(
            [kind, *words] + ([hexed(text.encode("utf-8", "surrogateescape"))] if text is not None else [])
        )
        mac = digest(before[0] + line, key=key, digest_size=16).hexdigest().encode()
        before[0] = mac
        data = line + b" " + mac + b"\n"
        while data:
            data = data[write(fd, data) :]

    return send


def _watch(send, changed, clock=time.perf_counter):
    """Everything is in cells of this frame and of those that it calls once: no attribute of the plugin leads to it."""
    raised, reports = set(), {}
    look, note, end = _looking(send, changed), _noting(reports), _ending(send, raised, reports)
    finish = _finishing(send, look, _universal)

    class Watch:
        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_makereport(self, item, call):
            before = call.excinfo
            yield
            if before is not None or call.excinfo is not None:
                raised.add((item.nodeid, call.when))

        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(self, report):
            note(report)

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_call(self, item):
            look()
            yield

        @pytest.hookimpl(hookwrapper=True, tryfirst=True)
        def pytest_runtest_protocol(self, item, nextitem):
            start = clock()
            yield
            look()
            end(item.nodeid, clock() - start)

        def pytest_collectreport(self, report):
            if report.failed:
                send(b"b", text=report.nodeid)

        @pytest.hookimpl(trylast=True)
        def pytest_sessionfinish(self, session, exitstatus):
            finish(int(exitstatus))

    return Watch()


def _looking(send, changed):
    """A function that sends what is another object than it was, once."""
    sent = set()

    def look():
        what = changed()
        if what and what not in sent:
            sent.add(what)
            send(b"x", text=what)

    return look


def _noting(reports):
    """A function that notes what a report says of its phase: p passed, f failed, s skipped, x failed as expected."""

    def note(report):
        expected = hasattr(report, "wasxfail")
        if expected and report.skipped:
            kind = "x"
        elif expected or report.skipped:
            kind = "s"
        else:
            kind = "p" if report.passed else "f"
        reports.setdefault(report.nodeid, []).append((report.when, kind))

    return note


def _ending(send, raised, reports):
    """A function that sends how a test ended, by what was raised and by its reports."""

    def end(nodeid, seconds):
        seen = reports.pop(nodeid, [])
        kinds = {kind for _, kind in seen}
        whole = {when for when, _ in seen} >= {"setup", "call", "teardown"}
        clean = not any((nodeid, when) in raised for when in ("setup", "call", "teardown"))
        good = kinds == {"p"} and whole and clean
        expected = "x" in kinds and kinds <= {"p", "x"} and whole
        outcome = b"p" if good else b"x" if expected else b"s" if kinds & {"s", "x"} and "f" not in kinds else b"f"
        send(b"t", b"%.4f" % seconds, outcome, text=nodeid)

    return end


def _finishing(send, look, universal):
    """A function that sends the last events of a session."""

    def finish(status):
        look()
        for name in universal(os.getcwd()):
            send(b"u", text=name)
        send(b"e", b"%d" % status)

    return finish


def _universal(root):
    """Classes that the workspace defines whose objects say that they equal an object that was never seen."""
    found, seen, waiting = [], set(), [object]
    while waiting:
        for one in type.__subclasses__(waiting.pop()):
            if one in seen or issubclass(one, type):
                continue
            seen.add(one)
            waiting.append(one)
            code = getattr(vars(one).get("__eq__"), "__code__", None)
            if code is not None and code.co_filename.startswith(root + os.sep) and _equals_all(one):
                found.append(one.__module__ + "." + one.__qualname__)
    return sorted(set(found))[:_MOST_UNIVERSAL]


def _equals_all(kind):
    class Stranger:
        pass

    try:
        return all(
            kind.__eq__(object.__new__(kind), other) is True for other in (Stranger(), Stranger(), [], "\0", 0.5)
        )
    except Exception:  # noqa: BLE001 - it looks at what it is compared with, and fails in its own way: not one of those
        return False

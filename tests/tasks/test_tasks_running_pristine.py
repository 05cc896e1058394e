"""What may take the place of a part of pytest while tests run: a function that does the same, and nothing else."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from _pytest import unittest as runner

import etude.tasks.running
from etude.sandbox.spec import WORKDIR
from etude.tasks.running import supervised
from etude.tasks.running.channel import Tests
from etude.tasks.running.channels.pytest_channel import PytestChannel

FILE = Path(etude.tasks.running.__file__).parent / "inside" / "etude_pristine.py"
NAME = "_pytest.unittest.TestCaseFunction.runtest"


@pytest.fixture
def changed() -> Callable[[], str]:
    spec = importlib.util.spec_from_file_location("etude_pristine", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.taken()


def as_pytest_django_does() -> Any:
    def non_debugging_runtest(self: runner.TestCaseFunction) -> None:
        self._testcase(result=self)  # type: ignore[attr-defined]

    return non_debugging_runtest


def test_the_call_that_pytest_django_puts_in_is_admitted(changed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed() == ""
    monkeypatch.setattr(runner.TestCaseFunction, "runtest", as_pytest_django_does())
    assert changed() == ""


def nothing(self: Any) -> None: ...


def another_result(self: Any) -> None:
    self._testcase(result=None)


def another_call(self: Any) -> None:
    self._other(result=self)


def with_a_default(self: Any, more: Any = print) -> None:
    self._testcase(result=self)


def in_a_closure() -> Any:
    _testcase: Any = print

    def runtest(self: Any) -> None:
        _testcase(result=self)

    return runtest


class Imitation:
    __code__ = as_pytest_django_does().__code__

    def __call__(self, test: Any) -> None: ...


@pytest.mark.parametrize(
    "other", [nothing, another_result, another_call, with_a_default, in_a_closure(), Imitation(), None]
)
def test_whatever_does_anything_else_is_named(changed, monkeypatch: pytest.MonkeyPatch, other: Any) -> None:
    monkeypatch.setattr(runner.TestCaseFunction, "runtest", other)
    assert changed() == NAME


def test_nothing_is_admitted_in_another_place(changed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner.TestCaseFunction, "addError", as_pytest_django_does())
    assert changed() == "_pytest.unittest.TestCaseFunction.addError"


def test_a_code_that_is_changed_in_place_is_named(changed) -> None:
    runtest = runner.TestCaseFunction.runtest
    assert isinstance(runtest, FunctionType)
    before = runtest.__code__
    try:
        runtest.__code__ = nothing.__code__
        assert changed() == NAME
    finally:
        runtest.__code__ = before


def test_folders_of_the_workspace_that_an_environment_imports_from_come_once_the_runner_is_loaded() -> None:
    """A package below `lib` is found, and nothing of the workspace can stand in for the runner's own modules."""
    prepared = PytestChannel().prepare(Tests(("tests/test_x.py",), (), "pytest"), {}, "nonce", WORKDIR)
    env = {"PYTHONPATH": f"/opt/tools/pytest:{WORKDIR}/lib:{WORKDIR}:{WORKDIR}/lib"}
    argv = supervised._argv(env, prepared)
    assert argv[4 : argv.index("--")] == [WORKDIR, f"{WORKDIR}/src", f"{WORKDIR}/lib"]
    assert argv[argv.index("--") :] == prepared.argv[prepared.argv.index("--") :]
    assert supervised._env(env, prepared)["PYTHONPATH"] == "/opt/tools/pytest"

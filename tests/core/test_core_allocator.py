"""Processes that compute start with tcmalloc where it is installed; nothing else does."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from etude.core import allocator

# A library of glibc itself that Python does not load.
OTHER = "libanl.so.1"
LOADED = f"print({OTHER!r} in open('/proc/self/maps').read())"


def child() -> str:
    return subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout.strip()


def test_processes_started_within_have_the_library_and_later_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(allocator.VARIABLE, raising=False)
    monkeypatch.setattr(allocator, "library", lambda: OTHER)
    with allocator.preloaded():
        assert child() == "True"
    assert child() == "False"
    with pytest.raises(RuntimeError), allocator.preloaded():
        raise RuntimeError
    assert allocator.VARIABLE not in os.environ


def test_without_the_library_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(allocator.VARIABLE, raising=False)
    monkeypatch.setattr(allocator, "library", lambda: None)
    with allocator.preloaded():
        assert allocator.VARIABLE not in os.environ


def test_a_persons_own_preload_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "libtcmalloc_minimal.so.4"
    monkeypatch.setenv(allocator.VARIABLE, own)
    monkeypatch.setattr(allocator, "library", lambda: own)
    with allocator.preloaded():
        allocator.forget_preload()
        assert os.environ[allocator.VARIABLE] == own
    assert os.environ[allocator.VARIABLE] == own and allocator.variables() == {}


@pytest.mark.parametrize("name", ["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"])
def test_a_process_keeps_the_library_from_its_own_children(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(allocator.VARIABLE, raising=False)
    monkeypatch.setattr(allocator, "library", lambda: name)
    with allocator.preloaded():
        assert os.environ[allocator.VARIABLE] == name
        allocator.forget_preload()
        assert allocator.VARIABLE not in os.environ and allocator.OURS not in os.environ


@pytest.mark.skipif(allocator.library() is None, reason="tcmalloc is not installed")
def test_a_process_can_tell_that_it_has_tcmalloc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(allocator.VARIABLE, raising=False)
    asks = [sys.executable, "-P", "-c", "from etude.core import allocator; print(allocator.in_use())"]
    with allocator.preloaded():
        within = subprocess.run(asks, check=True, capture_output=True, text=True).stdout
    after = subprocess.run(asks, check=True, capture_output=True, text=True).stdout
    assert (within.strip(), after.strip()) == ("True", "False")

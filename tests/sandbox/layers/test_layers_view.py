"""Chains seen as the kernel's overlay shows them, flattened without a difference, compared with each other."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layers_upper import GONE, OPAQUE, Tree, stack

from etude.sandbox.layers.changes import LayerDifference, differences
from etude.sandbox.layers.flatten import flatten
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.view import LayerView

_SHOW = """
import hashlib, os, sys
for folder, folders, files in os.walk(b"."):
    for name in folders + files:
        path = os.path.join(folder, name)
        if os.path.islink(path): print(os.fsdecode(path[2:]), "link", os.readlink(os.fsdecode(path)))
        elif os.path.isdir(path): print(os.fsdecode(path[2:]), "dir")
        else: print(os.fsdecode(path[2:]), "file", hashlib.sha256(open(path, "rb").read()).hexdigest())
"""
_MOUNT = 'mount -t overlay overlay -o "lowerdir=$1,userxattr" "$2" && cd "$2" && exec "$3" -c "$4"'


def as_the_kernel_shows(folders: tuple[Path, ...], at: Path) -> set[str]:
    """Every path below an overlay of these folders. Skips where none can be mounted."""
    at.mkdir(exist_ok=True)
    base = folders[0].parents[2]
    lower = ":".join(os.path.relpath(folder, base) for folder in (*folders, at)[: max(2, len(folders))])
    words = ["unshare", "-Urm", "sh", "-ec", _MOUNT, "sh", lower, str(at), sys.executable, _SHOW]
    done = subprocess.run(words, cwd=base, capture_output=True, text=True)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"no overlay in a user namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def as_we_say(store: LayerStore, snapshot: Snapshot) -> set[str]:
    said = (f"{e.path} {e.kind} {e.content}".strip() for e in LayerView.of(store, snapshot).entries.values())
    return set(said)


CHAIN: tuple[Tree, ...] = (
    {"d/a": b"1", "d/b": b"2", "d/sub/c": b"3", "e": b"4", "f/g": b"5", "h": "-> e", "i/j": b"6", "k": b"7"},
    {"d/a": b"one", "d/b": GONE, "d/sub": OPAQUE, "d/sub/new": b"n", "e": OPAQUE, "e/inside": b"8", "f": GONE},
    {"f": OPAQUE, "f/again": b"9", "h": b"a file", "i": GONE, "d/sub/new": "-> ../a", "k": GONE, "l/m/n": b""},
)


def test_a_chain_is_seen_as_the_kernel_shows_it(store: LayerStore, tmp_path: Path) -> None:
    held = stack(store, tmp_path, *CHAIN)
    assert as_we_say(store, held.snapshot) == as_the_kernel_shows(held.folders, tmp_path / "mnt")


_NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)


@st.composite
def _tree(draw: st.DrawFn) -> Tree:
    """What an overlay could have written: nothing below what is no folder."""
    kinds = st.sampled_from([b"x", b"y", "-> a", GONE, OPAQUE, None])
    drawn = draw(st.dictionaries(_NAMES, kinds, max_size=6))
    folders = {path for path, what in drawn.items() if what is None or what is OPAQUE}
    return {
        path: what
        for path, what in sorted(drawn.items())
        if all(up in folders or up not in drawn for up in map(str, Path(path).parents))
    }


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chain=st.lists(_tree(), min_size=2, max_size=5), base=st.integers(0, 2))
def test_flattening_changes_nothing_that_can_be_seen(
    store: LayerStore, tmp_path: Path, chain: list[Tree], base: int
) -> None:
    place = tmp_path / os.urandom(4).hex()
    held = stack(store, place, *chain)
    layers = held.snapshot.layers
    held = store.record(Snapshot(layers, base=min(base, len(layers))))
    before = LayerView.of(store, held.snapshot)
    flattened = flatten(store, held, depth=1)
    after = LayerView.of(store, flattened.snapshot)
    assert before.contents == after.contents and not differences(before, after)
    assert len(flattened.snapshot.layers) <= max(1 + base, len(layers) - base, 1)
    shutil.rmtree(place)


@pytest.mark.parametrize("seed", range(3))
def test_random_chains_are_seen_as_the_kernel_shows_them_flat_or_not(
    store: LayerStore, tmp_path: Path, seed: int
) -> None:
    import random

    choose = random.Random(seed)
    chain: list[Tree] = [CHAIN[0]]
    for _ in range(6):
        layer: Tree = {}
        for path in choose.sample(["d", "d/a", "d/sub", "d/sub/c", "e", "f/g", "f", "i/j", "k", "z/y"], 4):
            if all(up not in layer or layer[up] in (None, OPAQUE) for up in map(str, Path(path).parents)) and not any(
                other.startswith(f"{path}/") for other in layer
            ):
                layer[path] = choose.choice([b"new", GONE, OPAQUE, None, "-> k"])
        chain.append(layer)
    held = stack(store, tmp_path, *chain)
    shown = as_the_kernel_shows(held.folders, tmp_path / "mnt")
    assert as_we_say(store, held.snapshot) == shown
    based = store.record(Snapshot(held.snapshot.layers, base=2))
    flattened = flatten(store, based, depth=2)
    assert as_the_kernel_shows(flattened.folders, tmp_path / "mnt") == shown


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layers=st.lists(_tree(), min_size=1, max_size=3), order=st.lists(st.integers(0, 2), min_size=2, max_size=6))
def test_the_lower_places_of_a_layer_change_nothing_that_can_be_seen(
    store: LayerStore, tmp_path: Path, layers: list[Tree], order: list[int]
) -> None:
    place = tmp_path / os.urandom(4).hex()
    held = stack(store, place, *(layers[number % len(layers)] for number in order))
    digests = held.snapshot.layers
    once = tuple(dict.fromkeys(digests))
    assert list(held.folders) == [store.layer(digest) / "tree" for digest in once]
    assert LayerView.of(store, Snapshot(digests)).contents == LayerView.of(store, Snapshot(once)).contents
    shutil.rmtree(place)


@pytest.mark.parametrize("order", [(0, 0), (0, 1, 0), (1, 2, 1), (0, 1, 2, 1, 0, 2), (2, 1, 2, 0, 2)])
def test_a_chain_that_names_a_layer_twice_can_be_mounted(
    store: LayerStore, tmp_path: Path, order: tuple[int, ...]
) -> None:
    held = stack(store, tmp_path, *(CHAIN[number] for number in order))
    assert len(held.snapshot.layers) == len(order) > len(set(held.snapshot.layers))
    shown = as_the_kernel_shows(held.folders, tmp_path / "mnt")
    assert as_we_say(store, held.snapshot) == shown


def _sixty(store: LayerStore, tmp_path: Path) -> PinnedSnapshot:
    chain: list[Tree] = [{f"work/f{n}": b"0" for n in range(60)}]
    chain += [{f"work/f{n}": b"%d" % n, f"work/f{n - 1}": GONE if n % 7 == 0 else b"x"} for n in range(1, 60)]
    return stack(store, tmp_path, *chain)


def test_sixty_layers_hold_what_a_flat_copy_holds_and_become_one(store: LayerStore, tmp_path: Path) -> None:
    """Test 19 of docs/sandbox.md: equal contents, equal digest of them, and no view has more than forty layers."""
    deep = _sixty(store, tmp_path)
    contents = LayerView.of(store, deep.snapshot).contents
    shown = as_the_kernel_shows(deep.folders, tmp_path / "mnt")
    flattened = flatten(store, deep)
    assert (len(deep.snapshot.layers), len(flattened.snapshot.layers)) == (60, 1)
    assert LayerView.of(store, flattened.snapshot).contents == contents
    assert as_the_kernel_shows(flattened.folders, tmp_path / "mnt") == shown
    numbers = [n for n in range(60) if not (n + 1 < 60 and (n + 1) % 7 == 0)]
    assert {line.split()[0] for line in shown if " file " in line} == {f"work/f{n}" for n in numbers}
    assert f"work/f59 file {hashlib.sha256(b'59').hexdigest()}" in shown


def test_what_differs_is_reported_by_path(store: LayerStore, tmp_path: Path) -> None:
    old = stack(store, tmp_path, {"a": b"1", "b": b"2", "c": "-> a", "d/e": b"3", "same": b"s"})
    new = stack(store, tmp_path, {"a": b"1!", "c": "-> b", "d": b"a file now", "f": b"4", "same": b"s", "g": None})
    found = differences(LayerView.of(store, old.snapshot), LayerView.of(store, new.snapshot))
    assert found == [
        LayerDifference("a", "changed"),
        LayerDifference("b", "removed"),
        LayerDifference("c", "changed"),
        LayerDifference("d", "added"),
        LayerDifference("d/e", "removed"),
        LayerDifference("f", "added"),
    ]

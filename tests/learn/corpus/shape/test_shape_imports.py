"""Imports are found as Python, Node and the C preprocessor would find them, and nothing in strings or comments is one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.shape.imports import c_includes, dependencies, python_imports, script_imports
from etude.learn.corpus.shape.project_string import dependency_order


def test_python_imports_in_all_their_spellings() -> None:
    text = '''
"""A module.

import not_me
from not_me import neither
"""
import os, a.b as c  # import nope
from . import sibling
from ..up import (
    one,  # a comment
    two as deux,
)
if True:
    from x \\
        import y
    s = "import no"; t = 'it''s'
    # from no import no
def f():
    import late; x = 1
from q import *
import broken broken
'''
    assert python_imports(text) == [
        (0, "os", ""),
        (0, "a.b", ""),
        (1, "", "sibling"),
        (2, "up", "one"),
        (2, "up", "two"),
        (0, "x", "y"),
        (0, "late", ""),
        (0, "q", "*"),
    ]


PROJECT = {
    "src/pkg/__init__.py": "from .core import run\n",
    "src/pkg/core.py": "import os\nfrom pkg.deep import leaf\nfrom . import names\n",
    "src/pkg/names.py": "",
    "src/pkg/deep/__init__.py": "",
    "src/pkg/deep/leaf.py": "from ..names import x\nimport pkg.deep.leaf\n",
    "tests/helpers.py": "",
    "tests/test_core.py": "import helpers\nimport pkg.core\nfrom pkg.core.missing import y\n",
    "other/helpers.py": "",
}


def test_python_names_are_found_in_packages_next_to_each_other_and_under_src() -> None:
    assert dependencies(PROJECT) == {
        "src/pkg/__init__.py": ["src/pkg/core.py"],
        "src/pkg/core.py": ["src/pkg/deep/leaf.py", "src/pkg/names.py"],
        "src/pkg/names.py": [],
        "src/pkg/deep/__init__.py": [],
        "src/pkg/deep/leaf.py": ["src/pkg/names.py"],
        "tests/helpers.py": [],
        "tests/test_core.py": ["src/pkg/core.py", "tests/helpers.py"],
        "other/helpers.py": [],
    }


def test_script_imports_in_all_their_spellings() -> None:
    text = """
import a, { b } from './one'
import "./two.css";
export * from "../three";
const four = require('./four'), five = await import("five");
// import x from './no'
/* require('./no') */
const s = "from './no'", t = `require('./no')`;
import {
  six
} from './six.js'
"""
    assert script_imports(text) == ["./one", "./two.css", "../three", "./four", "five", "./six.js"]


def test_script_names_are_found_by_ending_and_by_index() -> None:
    project = {
        "src/a.ts": "import './b.js'; import x from './lib'; import react from 'react'; require('./c.json')",
        "src/b.ts": "export * from '../top'",
        "src/lib/index.tsx": "",
        "src/c.json": "{}",
        "top.mjs": "",
    }
    found = dependencies(project)
    assert found["src/a.ts"] == ["src/b.ts", "src/c.json", "src/lib/index.tsx"]
    assert found["src/b.ts"] == ["top.mjs"]


def test_c_includes_are_found_next_to_the_file_then_by_their_ending_nearest_first() -> None:
    project = {
        "src/main.c": '#include <stdio.h>\n#  include "util.h"\n/* #include "no.h" */\n#include "net/sock.h"\n#include "../config.h"\n',
        "src/util.h": "",
        "util.h": "",
        "no.h": "",
        "lib/include/net/sock.h": "",
        "src/vendor/net/sock.h": "",
        "config.h": '// #include "no.h"\n',
    }
    assert c_includes(project["src/main.c"]) == ["util.h", "net/sock.h", "../config.h"]
    assert dependencies(project)["src/main.c"] == ["config.h", "src/util.h", "src/vendor/net/sock.h"]
    assert dependencies(project)["config.h"] == []


NODES = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        st.just(count), st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=20)
    )
)


@settings(max_examples=150, deadline=None)
@given(NODES)
def test_every_file_comes_once_after_what_it_is_based_on_unless_that_stands_on_it(
    drawn: tuple[int, list[tuple[int, int]]],
) -> None:
    count, edges = drawn
    graph = {f"f{n}": sorted({f"f{b}" for a, b in edges if a == n}) for n in range(count)}
    order = dependency_order(graph)
    assert sorted(order) == sorted(graph)
    reach = {node: {node} for node in graph}
    for _ in graph:
        reach = {node: set().union({node}, *(reach[target] for target in graph[node])) for node in graph}
    for node in graph:
        for target in graph[node]:
            if node not in reach[target]:
                assert order.index(target) < order.index(node)
            else:
                ring = [other for other in order if other in reach[node] and node in reach[other]]
                assert ring == sorted(ring)
    assert dependency_order(dict(reversed(graph.items()))) == order


def test_a_ring_of_thousands_of_files_is_no_trouble() -> None:
    count = 20_000
    graph = {f"{n:05d}": [f"{(n + 1) % count:05d}"] for n in range(count)}
    assert dependency_order(graph) == sorted(graph)


@pytest.mark.parametrize(
    "text", ["import", "from . import", "import (", "from x import (a", '"""import x', "", "import \x00"]
)
def test_broken_python_has_no_imports_and_raises_nothing(text: str) -> None:
    assert python_imports(text) == []

"""An edit that matches loosely is written in the file's own indentation, line by line, or refused; it never breaks a file that parsed."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.edits.editing import EditError, Replace, edit
from etude.agent.harness.edits.indentation import IndentationUnclear, relocate
from etude.agent.harness.edits.patch import PatchError, apply, parse
from etude.agent.harness.edits.syntax import syntax_damage
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.tools.tool import ToolContext, ToolError
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.text_file import TextFile
from etude.agent.workspace.workspace import Workspace

UNITS = ("\t", "  ", "   ", "    ", "        ")


@st.composite
def blocks(draw: st.DrawFn, first: int) -> list[int]:
    """Depths of lines, each at most one deeper than the one above, two different ones among the first two."""
    depths = [first, first + 1]
    for _ in range(draw(st.integers(0, 5))):
        depths.append(draw(st.integers(0, depths[-1] + 1)))
    return depths


def render(depths: list[int], unit: str, name: str, up: int = 0) -> list[str]:
    return [unit * (depth + up) + f"{name}{number}" for number, depth in enumerate(depths)]


@given(st.data())
def test_a_quote_in_another_unit_and_at_another_depth_is_written_in_the_files(data: st.DataObject) -> None:
    base = data.draw(st.integers(0, 3))
    old = data.draw(blocks(base))
    new = data.draw(blocks(base))
    in_file, in_quote = data.draw(st.sampled_from(UNITS)), data.draw(st.sampled_from(UNITS))
    up = data.draw(st.integers(-min(*old, *new), 3))
    found, quoted = render(old, in_file, "a"), render(old, in_quote, "a", up)
    assert relocate(found, quoted, render(new, in_quote, "b", up), found) == render(new, in_file, "b")


@pytest.mark.parametrize(
    ("file", "quoted", "new", "after"),
    [
        # Tabs quoted as blanks, one depth alone; deeper and shallower lines.
        ("\t\tif x:", "        if x:", "        if x:\n            y\n    z", "\t\tif x:\n\t\t\ty\n\tz"),
        ("\t\tif  x:", "if x:", "if x:\n    y\nelse:\n    z", "\t\tif  x:\n\t\t\ty\n\t\telse:\n\t\t\tz"),
        ("\t\tx", "        x", "y\n        x", "y\n\t\tx"),
        # A recipe of a Makefile.
        ("build:\n\tcc a.c", "build:\n    cc a.c", "build:\n    cc -O2 a.c\n    strip a.out", "build:\n\tcc -O2 a.c\n\tstrip a.out"),
        ("all:  a\n\tx", "all: a", "all: a\n    y", "all:  a\n\ty\n\tx"),
        # Blanks quoted as tabs, and in another number.
        ("    x\n        y", "\tx\n\t\ty", "\tx\n\t\t\tz", "    x\n            z"),
        ("f {\n  x\n}", "f {\n    x\n}", "f {\n    if {\n        x\n    }\n}", "f {\n  if {\n    x\n  }\n}"),
        ("g {\n  y\n}\n  x;", "    x;", "    if {\n        x;\n    }", "g {\n  y\n}\n  if {\n    x;\n  }"),
        # A quote that begins within its first line.
        ("  if x:\n    a  = 1", "if x:\n    a = 1", "if x:\n    a = 1\n    while y:\n        z", "  if x:\n    a  = 1\n    while y:\n      z"),
    ],
)  # fmt: skip
def test_each_line_gets_the_files_indentation(file: str, quoted: str, new: str, after: str) -> None:
    assert edit(TextFile.decode(file.encode()), [Replace(quoted, new)]).file.text == after


def test_lines_of_the_quote_that_stay_are_the_files_own() -> None:
    found, quoted = ["\tx  =  ’q’", "\ty"], ["  x = 'q'", "  y"]
    assert relocate(found, quoted, ["  x = 'q'", "    z", "  y"], found) == ["\tx  =  ’q’", "\t\tz", "\ty"]


@pytest.mark.parametrize(
    ("file", "quoted", "new"),
    [
        ("    x\n  y", "        x\n      y", "  z\n      y"),  # further out than the file's margin
        ("\t  x", "      x", "      x\n        y"),  # tabs and blanks in one line
        ("\tx\n\t\ty", "\tx\n  y", "\tx\n    z"),  # both in the quote
    ],
)
def test_what_has_no_clear_place_is_refused(file: str, quoted: str, new: str) -> None:
    with pytest.raises(IndentationUnclear):
        relocate(file.split("\n"), quoted.split("\n"), new.split("\n"), file.split("\n"))
    with pytest.raises(EditError) as miss:
        edit(TextFile.decode(file.encode()), [Replace(quoted, new)])
    assert miss.value.problem == "blanks"


def test_a_patch_that_matches_loosely_adds_lines_in_the_files_indentation() -> None:
    text = "class A:\n\tdef f(self):\n\t\tif x:\n\t\t\treturn 1\n"
    head, hunk = (
        "*** Begin Patch\n*** Update File: a.py\n@@\n",
        "         if x:\n-            return 1\n+            y = 2\n",
    )
    patch = f"{head}{hunk}+            return y\n+        return 3\n*** End Patch"
    after = apply("a.py", TextFile.decode(text.encode()), parse(patch)[0].hunks).file.text
    assert after == "class A:\n\tdef f(self):\n\t\tif x:\n\t\t\ty = 2\n\t\t\treturn y\n\t\treturn 3\n"
    with pytest.raises(PatchError, match="hunk 1: it matches only if blanks are ignored"):
        apply("a", TextFile.decode(b"    x\n"), parse(f"{head}-        x\n+  y\n*** End Patch")[0].hunks)


@pytest.mark.parametrize(
    ("path", "before", "after", "words"),
    [
        ("a.py", "if x:\n\ty\n", "if x:\n\ty\n        z\n", "line 3: TabError"),
        ("a.py", "if x:\n    y\n", "if x:\n    y\n  z\n", "line 3: IndentationError"),
        (
            "a.py",
            "def f():\n    return 1\n",
            "def f():\n    pass\nreturn 1\n",
            "line 3: SyntaxError: 'return' outside function",
        ),
        ("tool", "#!/usr/bin/env python3\nx = 1\n", "#!/usr/bin/env python3\nx = (\n", "line 2"),
        ("a.js", "f(1);\n", "f(1;\n", "line 1: syntax error"),
        ("a.go", "package a\n\nfunc f() {}\n", "package a\n\nfunc f() {\n", "line"),
        ("a.rs", "fn f() {}\n", "fn f() {}}\n", "line 1"),
        ("a.py", "x = 1\n", "x = " + "(" * 5000 + "\n", ""),
    ],
)
def test_damage_names_the_line(path: str, before: str, after: str, words: str) -> None:
    assert words in syntax_damage(path, before, after) != ""


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("a.py", "x = 1\n", "x = 2\n"),
        ("a.py", "if x\n", "if y\n"),  # was broken already
        ("a.py", "print 'old'\n", "print 'older'\n"),  # another Python
        ("a.py", "x = '\\d' is 1\n", "x = '\\e' is 2\n"),  # a warning is no error
        ("a.txt", "(\n", "((\n"),
        ("Makefile", "a:\n\tb\n", "a:\n    b\n"),
        ("a.js", "f(1;\n", "f(2;\n"),
        ("a.ts", "x: number = 1\n", "x: number = 2\n"),
        ("a.py", "x" * 300_000, "(" * 300_000),  # too large to be checked
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_did_not_parse_before_is_not_damaged(path: str, before: str, after: str) -> None:
    assert syntax_damage(path, before, after) == ""


@given(
    st.sampled_from(["a.py", "a.js", "a.go", "a.rb", "a.sh", "a.java", "a.cpp"]),
    st.text(max_size=200),
    st.text(max_size=200),
)
def test_no_text_raises_in_the_check(path: str, before: str, after: str) -> None:
    syntax_damage(path, before, after)


METHOD = "class A:\n    def f(self, x):\n        if x:\n            return 1\n"
OLD = "            if x:\n                return 1"
PATCH = f"*** Begin Patch\n*** Update File: a.py\n@@\n{indent(OLD, ' ')}\n+        return 2\n*** End Patch"
NEW = f"{OLD}\n        return 2"  # one level out of the method, as quoted


@pytest.mark.parametrize(
    ("preset", "tool", "arguments"),
    [
        ("search_replace", "search_replace", {"file_path": "a.py", "old_string": OLD, "new_string": NEW}),
        ("patch", "apply_patch", {"input": PATCH}),
        ("nano", "edit", {"path": "a.py", "old": OLD, "new": NEW}),
    ],
)  # fmt: skip
async def test_an_edit_that_would_break_the_file_is_refused_by_every_tool(
    tmp_path: Path, preset: Any, tool: str, arguments: dict[str, str]
) -> None:
    (tmp_path / "a.py").write_text(METHOD)
    settings = HarnessSettings.full(preset=preset)
    chosen = preset_of(settings)
    context = ToolContext(Workspace(LocalFolder(tmp_path)), settings, (), names=chosen.names)
    with pytest.raises(ToolError, match="no longer parse.*line 5: SyntaxError: 'return' outside function"):
        await chosen.tools[tool].run(arguments, context)
    assert (tmp_path / "a.py").read_text() == METHOD
    right = {name: text.replace("        return 2", "            return 2") for name, text in arguments.items()}
    await chosen.tools[tool].run(right, context)
    assert (tmp_path / "a.py").read_text() == f"{METHOD}        return 2\n"


def test_lines_that_repeat_without_end_are_all_translated() -> None:
    found, quoted, new = ["\tx"] * 3000, ["    x"] * 3000, ["    x", "    y", "        z"] * 1000
    assert relocate(found, quoted, new, found) == ["\tx", "\ty", "\t\tz"] * 1000


def test_where_lines_repeat_the_beginning_and_the_end_that_stay_are_the_files_own() -> None:
    found = ["\ta = 1", *["\tx"] * 3000, "\tb  =  2"]
    quoted = [line.replace("\t", "    ") for line in found]
    new = [quoted[0], *["    x", "    y"] * 1500, quoted[-1]]
    assert relocate(found, quoted, new, found) == [found[0], *["\tx", "\ty"] * 1500, found[-1]]

"""Python of other people is parsed within bounds: whatever the text, the answer is a tree or a SyntaxError, in little time and memory."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import etude
from etude.core.bounded_python import compile_python, parse_expression, parse_python
from etude.rl.rewards.quality import findings
from etude.tasks.generate.generators.concrete import concrete

HOSTILE = {
    "a dotted import": "import a" + ".a" * 100_000,
    "with blanks and line ends": "from a" + " \\\n. \\\na" * 50_000 + " import b",
    "signs": "-" * 100_000 + "1",
    "negations": "not " * 100_000 + "1",
    "lambdas": "lambda:" * 20_000 + "1",
    "a zero byte": "x = 1\0",
    "half a character": "x = '\ud800'",
    "brackets": "[" * 5_000,
    "digits": "1" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_a_syntax_error_soon(text: str) -> None:
    began = time.process_time()
    for read in (parse_python, parse_expression, compile_python):
        with pytest.raises(SyntaxError):
            read(text)
    assert findings(text)["broken"] == 1
    assert time.process_time() - began < 10


def test_a_dotted_import_of_half_a_megabyte_needs_little_memory() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from etude.core.bounded_python import parse_python\n"
        "try: parse_python('import a' + '.a' * 250_000)\nexcept SyntaxError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "a dotted name has more than 1,000 parts\n", done.stderr


@given(st.text(alphabet=st.sampled_from("a.( )\n#\\'\"=1é"), max_size=60))
def test_it_agrees_with_ast_on_small_texts(text: str) -> None:
    try:
        expected = ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        expected = ""
    try:
        found = ast.dump(parse_python(text))
    except SyntaxError:
        found = ""
    assert found == expected


@example("#a", 40_000)
@example("a\\\n", 40_000)
@given(st.text(alphabet=st.sampled_from(". a1#\n\\(é"), min_size=1, max_size=12), st.integers(1, 40_000))
def test_looking_for_dotted_names_takes_time_in_proportion(piece: str, times: int) -> None:
    from etude.core import bounded_python

    text = piece * times + "." * bounded_python.MOST_NAME_PARTS
    began = time.thread_time()
    try:
        bounded_python._check_names(text)
    except SyntaxError as error:
        assert re.search("dotted name", str(error))
    assert time.thread_time() - began < 5


def test_code_in_use_is_read() -> None:
    for path in sorted(Path(etude.__file__).parent.rglob("*.py"))[::20]:
        assert ast.dump(parse_python(path.read_bytes())) == ast.dump(ast.parse(path.read_bytes()))


@pytest.mark.parametrize(
    "text",
    [
        "-" * 20_000 + "1",
        "f" + "()" * 5_000,
        "a" + "+a" * 5_000,
        "if a: pass\n" + "elif a: pass\n" * 5_000,
        "x" + ".a" * 900,
    ],
    ids=["signs", "calls", "sums", "branches", "attributes"],
)
def test_libcst_is_given_no_text_that_could_overflow_its_stack(text: str) -> None:
    with pytest.raises(SyntaxError):
        concrete(text)
    assert concrete("x = f(1)\n").code == "x = f(1)\n"


def test_nothing_else_parses_text_that_may_be_of_other_people() -> None:
    """Each exception names whose text it parses."""
    exceptions = {
        "core/bounded_python.py": "the bounds themselves",
        "tasks/generate/generators/concrete.py": "the bounds of libcst",
        "tasks/generate/generators/migration/stale.py": "runs as a test in the sandbox of a task",
        "tasks/generate/generators/migration/generator.py": "writes that test",
        "tasks/generate/exercises/template.py": "our own exercises",
        "tasks/generate/exercises/trial.py": "our own exercises",
        "tasks/generate/generators/refactor/move.py": "lines of imports that we wrote",
        "tasks/generate/generators/migration/generics.py": "lines of imports that we wrote",
        "tasks/cheats/exercise.py": "our own exercises",
        "tasks/cheats/written_tests.py": "writes a test that runs in a sandbox",
        "tasks/export/writing.py": "our own modules",
        "tasks/running/inside/etude_replies.py": "runs in a sandbox",
        "sandbox/inside/warm.py": "runs in a sandbox",
        "sandbox/launch/bundle.py": "our own modules",
    }
    source = Path(etude.__file__).parent
    parses = re.compile(r"\bast\.parse\(|(?<![.\w])compile\(|\bcst\.parse_\w+\(")
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if parses.search(path.read_text())}
    assert found == set(exceptions)

"""Chunks cover a file, and definitions are found in every language we have a grammar for."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.code_index.analysis import analyse, split_lines
from etude.agent.code_index.definitions import LONG_LINES
from etude.agent.code_index.languages import GRAMMARS
from etude.agent.code_index.words import WORD

EXAMPLES: dict[str, tuple[str, dict[str, str]]] = {
    "a.py": (
        "import os\nLIMIT = 3\n\nclass Store:\n    '''Keeps things.'''\n\n    @property\n    def size(self):\n        return 1\n\n"
        "@decorated(\n    1,\n)\nasync def fetch_all(url):\n    return url\n",
        {"Store": "class", "Store.size": "method", "fetch_all": "function"},
    ),
    "a.js": (
        "export class Queue {\n  push(x) {\n    return x;\n  }\n}\nexport const drain = async () => {\n  return 1;\n};\n"
        "exports.close = function () {\n  return 2;\n};\nconst api = {\n  open: function () {\n    return 3;\n  },\n};\n",
        {"Queue": "class", "Queue.push": "method", "drain": "function", "close": "function", "open": "function"},
    ),
    "a.ts": (
        "export interface Shape {\n  area(): number;\n}\nabstract class Base<T> {\n  run = (x: T) => {\n    return x;\n  };\n}\n"
        "export type Pair = {\n  a: string;\n};\nnamespace Tools {\n  export function use(): void {\n    return;\n  }\n}\nenum Colour {\n  Red,\n}\n",
        {
            "Shape": "interface",
            "Base": "class",
            "Base.run": "method",
            "Pair": "type",
            "Tools.use": "function",
            "Colour": "enum",
        },
    ),
    "a.tsx": ("export function Page(p: Props) {\n  return <b>{p.x}</b>;\n}\n", {"Page": "function"}),
    "a.go": (
        "package a\n\ntype Server struct {\n\tport int\n}\n\n"
        "// Listen waits.\nfunc (s *Server) Listen() error {\n\treturn nil\n}\n\nfunc New() *Server {\n\treturn nil\n}\n",
        {"Server": "type", "Server.Listen": "method", "New": "function"},
    ),
    "a.rs": (
        "pub struct Ring {\n    a: u8,\n}\n\nimpl Ring {\n    /// Turns.\n    pub fn turn(&self) -> u8 {\n        1\n    }\n}\n\n"
        "trait Spin {\n    fn spin(&self);\n}\n\nmacro_rules! ring {\n    () => {};\n}\n",
        {"Ring": "struct", "Ring.turn": "method", "Spin": "trait", "ring": "macro"},
    ),
    "A.java": (
        "public class A {\n  A() {\n    x = 1;\n  }\n  int size() {\n    return 1;\n  }\n  interface Visitor {\n    void visit();\n  }\n}\n",
        {"A": "class", "A.size": "method", "A.Visitor": "interface"},
    ),
    "a.c": (
        "#define TWICE(x) \\\n  ((x) * 2)\nstruct point {\n  int x;\n};\nstatic char **split_words(const char *s)\n{\n  return 0;\n}\n",
        {"TWICE": "macro", "point": "struct", "split_words": "function"},
    ),
    "a.cpp": (
        "namespace geo {\ntemplate <typename T>\nclass Box {\n public:\n  int width() const {\n    return 1;\n  }\n};\n}\n"
        "int geo::Outer::area(int x) {\n  return x;\n}\n",
        {"geo": "namespace", "geo.Box": "class", "geo.Box.width": "method", "area": "function"},
    ),
    "a.rb": (
        "module Tools\n  class Hammer\n    def hit!(x)\n      x\n    end\n    def self.make\n      1\n    end\n  end\nend\n",
        {"Tools": "module", "Tools.Hammer": "class", "Tools.Hammer.hit!": "method", "Tools.Hammer.make": "method"},
    ),
    "a.sh": ("set -e\n# Cleans.\nclean_up() {\n  rm -f x\n}\n", {"clean_up": "function"}),
    "README.md": (
        "intro\n\n# Install\ntext\n\n```\n# no heading\n```\n\n## From source\nmore\n",
        {"Install": "section", "From source": "section"},
    ),
}


def test_every_grammar_has_an_example() -> None:
    from etude.agent.code_index.languages import grammar_name

    assert set(GRAMMARS) <= {grammar_name(path, text) for path, (text, _) in EXAMPLES.items()}


@pytest.mark.parametrize("path", EXAMPLES)
def test_definitions_are_found_with_kind_name_and_parent(path: str) -> None:
    text, expected = EXAMPLES[path]
    found = {(made.symbol, made.kind) for made in analyse(path, text, b"").places}
    assert set(expected.items()) <= found


def test_a_definition_takes_the_comments_and_decorators_right_above_it() -> None:
    text = "import os\n\n\n# Says hello.\n@loud\n@twice(\n    2\n)\ndef hello():\n    return 1\n"
    (found,) = [c for c in analyse("a.py", text, b"").places if c.symbol == "hello"]
    assert (found.start, found.end) == (4, 10)


def test_a_docstring_counts_as_prose_and_code_as_code() -> None:
    (made,) = analyse("pkg/a.py", 'def f(value):\n    """Frobnicate."""\n    return value  # carefully\n', b"").chunks
    assert made.fields == (["def", "f", "value", "return", "value"], ["f"], ["pkg", "a"], ["Frobnicate", "carefully"])


def test_a_long_function_is_cut_and_every_piece_knows_its_name() -> None:
    text = "def long(x):\n" + "".join(f"    x += {n}\n" + "\n" * (n % 7 == 0) for n in range(200))
    found = analyse("a.py", text, b"").places
    assert len(found) > 3
    assert {c.symbol for c in found} == {"long"}
    assert all(c.end - c.start < LONG_LINES for c in found)


def test_functions_inside_a_long_function_are_found() -> None:
    inner = "  function inner{}() {{\n    return 1;\n  }}\n"
    text = "(function () {\n" + "".join(inner.format(n) for n in range(40)) + "})();\n"
    assert {c.symbol for c in analyse("a.js", text, b"").places} >= {f"inner{n}" for n in range(40)}


def test_a_large_text_that_a_grammar_cannot_cope_with_is_cut_by_lines_in_bounded_time() -> None:
    began = time.thread_time()
    made = analyse("A.java", "a < b <\n" * 60_000, b"").places
    assert time.thread_time() - began < 15.0  # parsed whole: minutes
    assert made[-1].end == 60_000 and {chunk.symbol for chunk in made} == {""}


def test_deep_nesting_is_no_recursion() -> None:
    analyse("a.py", "\n".join("(" * 3000 + ")" * 3000 for _ in range(2)), b"")
    analyse("a.js", "\n".join("{" for _ in range(3000)), b"")


CODE = st.lists(
    st.sampled_from(
        [
            "def f(x):",
            "    return x",
            "class A:",
            "",
            "}",
            "{",
            "function f() {",
            "/*",
            "*/",
            '"""',
            "# note",
            "if x:",
            "    ",
            "\t}",
            "fn a() {",
            "end",
            "日本",
        ]
    ),
    max_size=200,
).map("\n".join)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(EXAMPLES)), st.one_of(CODE, st.text(max_size=300)))
def test_chunks_are_disjoint_in_order_and_cover_every_line(path: str, text: str) -> None:
    made = analyse(path, text, b"").places
    rows = [row for chunk in made for row in range(chunk.start, chunk.end + 1)]
    assert rows == list(range(1, len(split_lines(text)) + 1))
    assert all(chunk.end - chunk.start < LONG_LINES for chunk in made)


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(EXAMPLES)), CODE)
def test_every_word_of_a_file_is_in_some_chunk(path: str, text: str) -> None:
    made = analyse(path, text, b"").chunks
    assert set(WORD.findall(text)) <= {word for chunk in made for words in chunk.fields for word in words}

"""Which language a file is in, and what its grammar calls definitions, wrappers and comments: data, so that a language is a table."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser, Query


@dataclass(frozen=True)
class Grammar:
    """`kinds`: node type -> kind of definition. `wrappers`: nodes whose first line belongs to the definition inside. `docs`: a query whose captures
    are prose (comments, docstrings). `language` is the name people filter by."""

    language: str
    module: str
    kinds: dict[str, str]
    wrappers: frozenset[str] = field(default=frozenset())
    docs: str = "(comment) @doc"
    entry: str = "language"


_SCRIPT = {
    "function_declaration": "function",
    "generator_function_declaration": "function",
    "class_declaration": "class",
    "method_definition": "method",
    # These are definitions if what they name is a function or a class (definitions.BOUND).
    "variable_declarator": "function",
    "assignment_expression": "function",
    "pair": "function",
    "field_definition": "method",
    "public_field_definition": "method",
}
_TYPED = _SCRIPT | {
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "type_alias_declaration": "type",
    "enum_declaration": "enum",
    "internal_module": "namespace",
    "module": "namespace",
}
_C = {
    "function_definition": "function",
    "struct_specifier": "struct",
    "union_specifier": "union",
    "enum_specifier": "enum",
    "type_definition": "type",
    "preproc_function_def": "macro",
}
_EXPORT = frozenset({"export_statement", "lexical_declaration", "variable_declaration", "expression_statement"})
_TWO_COMMENTS = "[(line_comment) (block_comment)] @doc"

GRAMMARS: dict[str, Grammar] = {
    "python": Grammar(
        "python",
        "tree_sitter_python",
        {"function_definition": "function", "class_definition": "class"},
        frozenset({"decorated_definition"}),
        "[(comment) (expression_statement (string))] @doc",
    ),
    "javascript": Grammar("javascript", "tree_sitter_javascript", _SCRIPT, _EXPORT),
    "typescript": Grammar("typescript", "tree_sitter_typescript", _TYPED, _EXPORT, entry="language_typescript"),
    "tsx": Grammar("typescript", "tree_sitter_typescript", _TYPED, _EXPORT, entry="language_tsx"),
    "go": Grammar(
        "go",
        "tree_sitter_go",
        {"function_declaration": "function", "method_declaration": "method", "type_spec": "type"},
        frozenset({"type_declaration"}),
    ),
    "rust": Grammar(
        "rust",
        "tree_sitter_rust",
        {
            "function_item": "function",
            "struct_item": "struct",
            "enum_item": "enum",
            "union_item": "union",
            "trait_item": "trait",
            "impl_item": "impl",
            "mod_item": "module",
            "type_item": "type",
            "macro_definition": "macro",
        },
        docs=_TWO_COMMENTS,
    ),
    "java": Grammar(
        "java",
        "tree_sitter_java",
        {
            "class_declaration": "class",
            "interface_declaration": "interface",
            "enum_declaration": "enum",
            "record_declaration": "class",
            "annotation_type_declaration": "interface",
            "method_declaration": "method",
            "constructor_declaration": "method",
        },
        docs=_TWO_COMMENTS,
    ),
    "c": Grammar("c", "tree_sitter_c", _C),
    "cpp": Grammar(
        "cpp",
        "tree_sitter_cpp",
        _C | {"class_specifier": "class", "namespace_definition": "namespace"},
        frozenset({"template_declaration"}),
    ),
    "ruby": Grammar(
        "ruby",
        "tree_sitter_ruby",
        {"class": "class", "module": "module", "method": "method", "singleton_method": "method"},
    ),
    "bash": Grammar("bash", "tree_sitter_bash", {"function_definition": "function"}),
}
_EXTENSIONS = {
    "python": "py pyi pyx",
    "javascript": "js mjs cjs jsx",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "c": "c",
    "cpp": "cc cpp cxx hh hpp hxx cu cuh",
    "ruby": "rb rake gemspec",
    "bash": "sh bash",
    "markdown": "md markdown",
    "restructuredtext": "rst",
    "json": "json jsonc",
    "toml": "toml",
    "yaml": "yaml yml",
    "html": "html htm",
    "css": "css scss less",
    "sql": "sql",
    "kotlin": "kt kts",
    "swift": "swift",
    "csharp": "cs",
    "php": "php",
    "scala": "scala",
    "lua": "lua",
    "perl": "pl pm",
    "cmake": "cmake",
}
BY_EXTENSION = {extension: name for name, extensions in _EXTENSIONS.items() for extension in extensions.split()}
TEXT = "text"
# What people filter by, in the order of the store's numbers: append only, or raise store.FORMAT.
LANGUAGES = (*dict.fromkeys(GRAMMARS[n].language if n in GRAMMARS else n for n in _EXTENSIONS), TEXT)
SHEBANG = re.compile(r"#!.*?\b(?P<name>python|bash|sh|dash|zsh|ruby|node)[\d.]*\b")
BY_SHEBANG = {"python": "python", "ruby": "ruby", "node": "javascript"}
CPP_HEADER = re.compile(r"^[^\S\n]*+(?:class|namespace|template|using)\b", re.MULTILINE)


def grammar_name(path: str, text: str) -> str:
    """A key of GRAMMARS, or the name of a language without one ("text" if even that is unknown)."""
    extension = PurePosixPath(path).suffix[1:].lower()
    if extension == "h":
        return "cpp" if CPP_HEADER.search(text) else "c"
    if extension in BY_EXTENSION:
        return BY_EXTENSION[extension]
    found = SHEBANG.match(text) if not extension else None
    return BY_SHEBANG.get(found["name"], "bash") if found else TEXT


def language_of(name: str) -> str:
    """What people call it: tsx is TypeScript."""
    return GRAMMARS[name].language if name in GRAMMARS else name


@cache
def parser(name: str) -> Parser:
    """The grammar's parser, loaded once a process."""
    from tree_sitter import Language, Parser

    grammar = GRAMMARS[name]
    return Parser(Language(getattr(importlib.import_module(grammar.module), grammar.entry)()))


@cache
def docs_query(name: str) -> Query:
    """The query that captures the grammar's prose."""
    from tree_sitter import Query

    language = parser(name).language
    assert language is not None  # parser() gave it one
    return Query(language, GRAMMARS[name].docs)

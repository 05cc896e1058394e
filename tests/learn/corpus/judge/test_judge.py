"""What the judge keeps, what it refuses, and that it never guesses."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.learn.corpus.judge import AcceptedFile, FileLimits, FileRefusal, judge, judge_name
from etude.learn.corpus.judge.verdict import FileRefusal as Reason

CODE = 'def area(width: int, height: int) -> int:\n    """How much paint it takes."""\n    return width * height\n'
C = "/* Adds two numbers. */\n"
C += "int add(int left, int right)\n{\n    return left + right;\n}\n\nint twice(int value)\n{\n    return add(value, value);\n}\n"


def _reason(path: str, data: bytes | str) -> object:
    found = judge(path, data.encode() if isinstance(data, str) else data)
    return found if isinstance(found, FileRefusal) else "kept"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("pkg/_vendor/six.py", Reason.VENDORED),
        ("third_party/zlib/inflate.c", Reason.VENDORED),
        ("node_modules/a/index.js", Reason.VENDORED),
        ("src/Vendor/a.c", Reason.VENDORED),
        ("extern/a.c", Reason.VENDORED),
        ("externals/a.c", Reason.VENDORED),
        ("bundled/a.c", Reason.VENDORED),
        ("pkg.egg-info/SOURCES.txt", Reason.METADATA),
        ("PKG-INFO", Reason.METADATA),
        (".git/config", Reason.METADATA),
        ("package-lock.json", Reason.LOCKFILE),
        ("poetry.lock", Reason.LOCKFILE),
        ("go.sum", Reason.LOCKFILE),
        ("locale/de/LC_MESSAGES/a.po", Reason.TRANSLATION),
        ("a.min.js", Reason.BUILT),
        ("a.js.map", Reason.BUILT),
        ("dist/index.js", Reason.BUILT),
        ("logo.png", Reason.NOT_TEXT_BY_NAME),
        ("wheels/a.whl", Reason.NOT_TEXT_BY_NAME),
        ("analysis.ipynb", Reason.NOT_TEXT_BY_NAME),
        ("model.safetensors", Reason.NOT_TEXT_BY_NAME),
        ("drawing.svg", Reason.UNKNOWN_LANGUAGE),
        ("what.qqq", Reason.UNKNOWN_LANGUAGE),
    ],
)
def test_a_name_is_refused_before_the_file_is_read(path: str, reason: FileRefusal) -> None:
    assert judge_name(path, 5_000) is reason


@pytest.mark.parametrize(
    "path",
    [
        "a.py",
        "src/a.c",
        "README",
        "README.md",
        "Makefile",
        "configure.ac",
        "bin/tool",
        "vendors.py",
        "dist/a.py",
        "build/a.c",
        "tests/data/a.py",
    ],
)
def test_a_name_that_tells_nothing_bad_is_read(path: str) -> None:
    assert judge_name(path, 5_000) is None


def test_sizes_are_found_by_the_name_alone() -> None:
    assert judge_name("a.py", 10_000_000_000) is FileRefusal.TOO_LARGE
    assert judge_name("a.py", 3) is FileRefusal.TOO_SMALL
    assert judge_name("a.json", 40_000) is FileRefusal.DATA
    assert judge_name("tests/fixtures/a.txt", 70_000) is FileRefusal.TEST_DATA
    assert judge_name("docs/a.txt", 70_000) is None
    assert judge_name("tests/test_a.py", 70_000) is None
    assert judge_name("a.py", 200, FileLimits(max_bytes=100)) is FileRefusal.TOO_LARGE


@pytest.mark.parametrize(
    ("path", "text", "language"),
    [
        ("a.py", CODE, "python"),
        ("a.pyi", CODE, "python"),
        ("a.h", C, "c"),
        ("a.hpp", C, "c++"),
        ("config.h.in", C, "c"),
        (
            "a.ts",
            "export function add(left: number, right: number): number {\n  return left + right;\n}\n",
            "typescript",
        ),
        ("bin/tool", "#!/usr/bin/env python3.11\n" + CODE, "python"),
        ("bin/run", '#!/bin/sh\nset -e\nfor name in one two three; do\n  echo "hello $name"\ndone\n', "shell"),
        ("README", "This is a project about paint. It says how much of it you need for a wall.\n", "text"),
        ("Makefile", "all:\n\tcc -o tool tool.c\n\nclean:\n\trm -f tool tool.o\n\ntest: all\n\t./tool\n", "makefile"),
    ],
)
def test_written_code_is_kept_with_its_language(path: str, text: str, language: str) -> None:
    assert judge(path, text.encode()) == AcceptedFile(text, language)


def test_line_ends_and_marks_do_not_reach_the_text() -> None:
    assert judge("a.py", b"\xef\xbb\xbf" + CODE.replace("\n", "\r\n").encode()) == AcceptedFile(CODE, "python")
    assert judge("a.c", C.replace("\n", "\r").encode()) == AcceptedFile(C, "c")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_byte_order_mark_tells_the_encoding(encoding: str) -> None:
    assert judge("a.py", (CODE + "# ümläut €\n").encode(encoding)) == AcceptedFile(CODE + "# ümläut €\n", "python")


def test_a_python_file_is_taken_at_its_word() -> None:
    text = "# -*- coding: latin-1 -*-\n" + CODE + "# für\n"
    assert judge("a.py", text.encode("latin-1")) == AcceptedFile(text, "python")
    assert judge("a.c", text.encode("latin-1")) is FileRefusal.ENCODING
    assert judge("a.py", text.replace("latin-1", "no-such").encode("latin-1")) is FileRefusal.ENCODING
    late = "x = 1\n" + text
    assert judge("a.py", late.encode("latin-1")) is FileRefusal.ENCODING


@given(st.binary(min_size=64, max_size=300))
@settings(max_examples=150, deadline=None)
def test_no_bytes_are_kept_that_do_not_decode_exactly(data: bytes) -> None:
    found = judge("a.md", data)
    if isinstance(found, AcceptedFile) and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        assert found.text == data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


@given(
    st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=70),
    st.sampled_from(["a.md", "a.c", "a.py", "x/y"]),
)
@settings(max_examples=80, deadline=None)
def test_every_text_has_a_verdict(text: str, path: str) -> None:
    assert isinstance(judge(path, text.encode()), AcceptedFile | FileRefusal)


@pytest.mark.parametrize(
    ("path", "head"),
    [
        ("a.c", "/* Generated by Cython 3.0.11 */\n"),
        ("a_pb2.py", "# -*- coding: utf-8 -*-\n# Generated by the protocol buffer compiler.  DO NOT EDIT!\n"),
        ("_version.py", "# file generated by setuptools_scm\n# don't change, don't track in version control\n"),
        ("parser.c", "/* A Bison parser, made by GNU Bison 3.8.2.  */\n\n/* Copyright */\n"),
        ("lexer.c", '#line 2 "lex.yy.c"\n#define FLEXINT_H\n'),
        ("a_wrap.c", "/* ----\n * This file was automatically generated by SWIG (http://www.swig.org).\n * ---- */\n"),
        ("moc_a.cpp", "/****\n** Meta object code from reading C++ file 'a.h'\n****/\n"),
        ("AParser.java", "// Generated from A.g4 by ANTLR 4.13.1\n"),
        ("a.go", "// Code generated by protoc-gen-go. DO NOT EDIT.\n"),
        ("a.h.in", "/* config.h.in.  Generated from configure.ac by autoheader.  */\n"),
        ("a.py", '"""This module was automatically generated; do not modify it."""\n'),
        ("a.js", '"use strict";\nObject.defineProperty(exports, "__esModule", { value: true });\n'),
    ],
)
def test_a_generators_signature_is_refused(path: str, head: str) -> None:
    assert _reason(path, head + (CODE if path.endswith(".py") else C)) is FileRefusal.GENERATED


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("gen.py", CODE + 'HEADER = """\n# Generated by gen.py. DO NOT EDIT.\n"""\n'),
        ("gen.py", '"""Writes the tables that are generated by hand."""\n\n' + CODE + "print('/* DO NOT EDIT */')\n"),
        ("test_re.py", "# WARNING: Don't change details in these tests if you don't know them.\n" + CODE),
        ("engine.py", '"""Parser engine for the grammar tables generated by pgen."""\n' + CODE),
    ],
)
def test_a_generators_own_source_is_kept(path: str, text: str) -> None:
    assert _reason(path, text) == "kept"


def test_data_in_the_clothes_of_code_is_refused() -> None:
    noise = random.Random(0).randbytes(6_000)
    blob = base64.b64encode(noise).decode()
    wrapped = "\n".join(blob[i : i + 76] for i in range(0, len(blob), 76))
    numbers = ",\n".join(", ".join(f"0x{byte:02x}" for byte in noise[i : i + 12]) for i in range(0, 3_000, 12))
    assert _reason("a.py", f'DATA = """\n{wrapped}\n"""\n') is FileRefusal.ENCODED_DATA
    assert _reason("a.c", f"const char table[] = {{\n{numbers}\n}};\n") is FileRefusal.ENCODED_DATA
    assert _reason("a.md", f"# Picture\n\n{blob}\n") is FileRefusal.ENCODED_DATA
    assert _reason("a.c", C * 200 + f"const char table[] = {{\n{numbers}\n}};\n") == "kept"


def test_minified_code_is_refused_and_prose_with_long_lines_is_not() -> None:
    small = "function(e,t){return e.call(t,this.x(),n)};var a=b?c:d;" * 60
    assert _reason("a.js", small) is FileRefusal.MINIFIED
    assert _reason("a.js", "\n".join(small[i : i + 300] for i in range(0, len(small), 300))) is FileRefusal.MINIFIED
    assert _reason("a.md", ("A paragraph of a page without a break. " * 60 + "\n\n") * 3) == "kept"


def test_few_words_are_refused() -> None:
    assert _reason("a.md", "+-----+-----+\n|  *  |  *  |\n" * 60) is FileRefusal.FEW_WORDS


def test_binary_content_is_refused_under_any_name() -> None:
    assert _reason("a.py", CODE.encode() + b"\0") is FileRefusal.BINARY
    assert _reason("a.txt", b"\x1b[0m" * 40 + CODE.encode()) is FileRefusal.BINARY
    assert _reason("a.py", CODE.encode() * 100 + b"# \x1b[0m\n") == "kept"


@pytest.mark.parametrize(
    "text",
    [
        "print 'hello, this is another Python'\n" * 3,
        "def broken(:\n    pass\n" * 5,
        "x = (" * 3_000 + ")" * 3_000 + "\n",
    ],
)
def test_python_must_parse(text: str) -> None:
    assert _reason("a.py", text) in (FileRefusal.NOT_PYTHON, FileRefusal.FEW_WORDS, FileRefusal.MINIFIED)
    assert not isinstance(judge("a.py", text.encode()), AcceptedFile)


def test_a_declared_encoding_does_not_confuse_the_parser() -> None:
    assert _reason("a.py", "# -*- coding: latin-1 -*-\n" + CODE) == "kept"

"""The judge: by name, then cheap looks at the bytes, then the text, and last the parser, which costs more than all before it."""

from __future__ import annotations

import re
from collections.abc import Callable

from etude.learn.corpus.judge import language
from etude.learn.corpus.judge.decoding import decode
from etude.learn.corpus.judge.generated import is_generated
from etude.learn.corpus.judge.names import judge_name
from etude.learn.corpus.judge.python import parses
from etude.learn.corpus.judge.verdict import AcceptedFile, FileLimits, FileRefusal

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def judge(
    path: str, data: bytes, limits: FileLimits = FileLimits(), is_python: Callable[[str], bool] = parses
) -> AcceptedFile | FileRefusal:
    """The text of a file and its language, or why it is not taken. `path` is inside the project, with "/"; `is_python` says whether text
    that calls itself Python is."""
    if refusal := judge_name(path, len(data), limits):
        return refusal
    tongue = language.of_name(path.lower().rpartition("/")[2]) or language.of_shebang(data)
    if not tongue:
        return FileRefusal.UNKNOWN_LANGUAGE
    if not data.startswith(UTF16_MARKS) and binary(data, limits):
        return FileRefusal.BINARY
    text = decode(data, python=tongue == "python")
    if text is None:
        return FileRefusal.ENCODING
    utf8 = text.encode("utf-8", "surrogatepass") if data.startswith(UTF16_MARKS) else data
    if is_generated(utf8):
        return FileRefusal.GENERATED
    if refusal := judge_shape(utf8, tongue, limits):
        return refusal
    if tongue == "python" and not is_python(text):
        return FileRefusal.NOT_PYTHON
    return AcceptedFile(text, tongue)


# Text that no person wrote: minified code, data in the form of code. Shares of characters decide, not the language. Bytes go through
# `translate` tables at memory speed; a regular expression sees only what a table found suspicious. Bytes beyond ASCII count as letters, so
# that prose in any script passes.

SPACE = b" \t\n\r\f\v"
CONTROLS = bytes(byte for byte in range(0x20) if byte not in b"\t\n\r\f\v") + b"\x7f"
ALPHANUMERIC = bytes(byte for byte in range(256) if chr(byte).isalnum() and byte < 0x80) + bytes(range(0x80, 256))
PROSE = frozenset(("markdown", "rst", "text", "asciidoc", "tex", "html", "texinfo", "org", "xml"))

# A run of base64 this long is no identifier; wrapped at 64 or 76 columns a line is one run.
BASE64_RUN = 60
# Numbers, hexadecimal digits and what separates them: a table of some lines. A matrix of 8 x 8 in a test stays below.
NUMBER_RUN = 400
_BASE64 = bytes(ord("A") if chr(b) in "+/=" or (chr(b).isalnum() and b < 0x80) else ord(" ") for b in range(256))
_NUMBERS = bytes(
    ord("0") if chr(b) in "0123456789abcdefABCDEFxXuUlL.,+-\\{}()[] \t\n\r\"'" else ord(" ") for b in range(256)
)
_BASE64_RUNS = re.compile(rb"A{%d,}" % BASE64_RUN)
_NUMBER_RUNS = re.compile(rb"0{%d,}" % NUMBER_RUN)
# A shorter file says too little by its shares (one import, a line of settings).
LEAST_BYTES = 500
DIGITS = b"0123456789"
# Below this share of digits no run can be a table of numbers. Code has 0.02 to 0.05.
LEAST_DIGITS = 0.1


def binary(data: bytes, limits: FileLimits) -> bool:
    """Whether control characters, or one NUL, say that this is no text."""
    return b"\0" in data or _share(data, CONTROLS) > limits.max_control_share


def judge_shape(data: bytes, tongue: str, limits: FileLimits) -> FileRefusal | None:
    """Why text of this shape is not taken. `data` is the text in UTF-8."""
    if _encoded(data, limits):
        return FileRefusal.ENCODED_DATA
    if tongue not in PROSE and len(data) >= LEAST_BYTES and _minified(data, limits):
        return FileRefusal.MINIFIED
    if _share(data, ALPHANUMERIC) < limits.min_alphanumeric_share:
        return FileRefusal.FEW_WORDS
    return None


def _minified(data: bytes, limits: FileLimits) -> bool:
    if _share(data, SPACE) < limits.min_space_share:
        return True
    lengths = list(map(len, data.split(b"\n")))
    if max(lengths) > limits.max_line_chars:
        long = sum(length for length in lengths if length > limits.max_line_chars)
        if long > limits.max_long_line_share * len(data):
            return True
    return len(data) > limits.max_mean_line_chars * len(lengths)


def _encoded(data: bytes, limits: FileLimits) -> bool:
    """Whether most of the characters are in long runs of base64, hexadecimal or numbers."""
    most = limits.max_encoded_share * len(data)
    letters = data.translate(_BASE64)
    if b"A" * BASE64_RUN in letters and sum(map(len, _BASE64_RUNS.findall(letters))) > most:
        return True
    if _share(data, DIGITS) < LEAST_DIGITS:
        return False
    numbers = data.translate(_NUMBERS)
    return sum(map(len, _NUMBER_RUNS.findall(numbers))) > most


def _share(data: bytes, characters: bytes) -> float:
    return 1 - len(data.translate(None, characters)) / max(1, len(data))

"""The judge: by name, then cheap looks at the bytes, then the text, and last the parser, which costs more than all before it."""

from __future__ import annotations

from collections.abc import Callable

from etude.learn.corpus.judge import language
from etude.learn.corpus.judge.decoding import decode
from etude.learn.corpus.judge.generated import generated
from etude.learn.corpus.judge.names import judge_name
from etude.learn.corpus.judge.python import parses
from etude.learn.corpus.judge.shape import binary, judge_shape
from etude.learn.corpus.judge.verdict import Kept, Limits, Refusal

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def judge(
    path: str, data: bytes, limits: Limits = Limits(), is_python: Callable[[str], bool] = parses
) -> Kept | Refusal:
    """The text of a file and its language, or why it is not taken. `path` is inside the project, with "/"; `is_python` says whether text
    that calls itself Python is."""
    if refusal := judge_name(path, len(data), limits):
        return refusal
    tongue = language.of_name(path.lower().rpartition("/")[2]) or language.of_shebang(data)
    if not tongue:
        return Refusal.UNKNOWN_LANGUAGE
    if not data.startswith(UTF16_MARKS) and binary(data, limits):
        return Refusal.BINARY
    text = decode(data, python=tongue == "python")
    if text is None:
        return Refusal.ENCODING
    utf8 = text.encode("utf-8", "surrogatepass") if data.startswith(UTF16_MARKS) else data
    if generated(utf8):
        return Refusal.GENERATED
    if refusal := judge_shape(utf8, tongue, limits):
        return refusal
    if tongue == "python" and not is_python(text):
        return Refusal.NOT_PYTHON
    return Kept(text, tongue)

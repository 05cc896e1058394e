"""What every wording of a task keeps: the subject (what changes) and the place (file, module or public feature).

A vague wording loses precision alone: `parse_range('1-3')` becomes "parse range", a value becomes "some value". `lacking_content` says which
of the two a text leaves out, by the words of the task's facts; a word with one typing error counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from etude.tasks.generate.prompts.facts import Facts

CODE = re.compile(r"`([^`\n]+)`")
MOST_PLACES = 3  # of a place that a person would list
SUBJECTS, WORDS = 2, 3  # one in two names of a headline must be said, one in three of its words where it has no names
_KEYWORDS = re.compile(r"^(?:(?:await|async|new|def|class|function|func|fn|const|export|default|static|pub)\s+)+")
_LITERALS = frozenset(("True", "False", "None", "null", "undefined", "true", "false", "NaN", "nan", "inf"))
_SUFFIX = re.compile(r"\.(py|pyi|[cm]?[jt]sx?|go|rs|java|json|toml|ya?ml|cfg|ini|md|rst|txt|sh|log|service|jsonl)$")
_GENERIC = frozenset(("src", "lib", "__init__", "index", "packages"))
_PIECES = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+|[^\W\d_]+")
# Code that a sentence names without backticks: `a_b`, `a.b()`, `fooBar`, `--json`.
_BARE_CODE = re.compile(
    r"(?<![\w`/.-])(?:--[a-z][\w-]*|(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*\([^()`\n]*\)"
    r"|(?:[A-Za-z]\w*\.)*[A-Za-z]*_\w+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)(?![\w`])"
)
_PROSE = re.compile(r"[^\W\d_][\w'-]*")
# Words that say nothing of a task's subject, whatever the task is.
_EMPTY = frozenset(
    """a an the this that these those it its itself they them their one ones thing things stuff something anything some any all both each
    and or but nor if then than so as at by for from in into of off on onto out over per to under up with without via when while where
    which who what why how there here is are was were be been being am do does did done doing has have had having can could may might
    must shall should will would not no never more less most least also only just very too again still already yet now please thanks thx
    pls hey ok hm let us we i you he she my our your fix fixes fixed fixing add adds added adding make makes made making change changes
    changed changing update updates updated updating improve improves improved improving get gets set use uses used using bug bugs issue
    issues problem problems error errors code wip misc minor various small several few many few look see need needs needed want wants
    wanted work works working support allow ensure handle better wrong right new old other others same first last value values""".split()
)


def names(text: str) -> list[str]:
    """What a text names of code, in its order, each once: spans in backticks, and what looks like code outside of them."""
    return list(dict.fromkeys(CODE.findall(mark_code(text))))


def mark_code(text: str) -> str:
    """The text with backticks around what looks like code."""
    parts = re.split(r"(`[^`\n]*`)", text)
    return "".join(part if part.startswith("`") else _BARE_CODE.sub(r"`\g<0>`", part) for part in parts)


def spoken_words(code: str) -> str:
    """A name as somebody says it, in words: `sqlite_utils.db` is "sqlite utils db". Empty for what is no name but a value."""
    code = _KEYWORDS.sub("", code.strip())
    code = code[1:-1] if re.fullmatch(r"\[[A-Za-z][\w.-]*\]", code) else code
    head = re.match(r"[-.@/]*[A-Za-z_$][\w$./:@-]*", code)
    if head is None or code in _LITERALS:
        return ""
    if re.fullmatch(r"[\w./@-]+( [\w./@:=-]+)+", code):  # a command
        return " ".join(filter(None, (_in_words(part) for part in code.split()[:3])))
    return _in_words(head[0])


def name_of(interface: str) -> str:
    """The name that a line of an interface introduces: "m: area(r)", "def f(x) -> int" and "m.f" introduce area, f and f."""
    text = re.sub(r"^[\w./@-]+: ", "", interface.strip())
    head = re.match(r"[\w$.]+", _KEYWORDS.sub("", text))
    return head[0].rpartition(".")[2] if head else ""


def places(facts: Facts) -> list[str]:
    """Where the task is, in words; the first of many. Empty where the facts do not say it."""
    listed = [spoken_name for code in names(facts.place) if (spoken_name := spoken_words(code))]
    clause = re.split(r"[,;:]", facts.place)[0].strip()
    return list(dict.fromkeys(listed))[:MOST_PLACES] or ([clause] if clause else [])


def says(text: str, phrase: str) -> bool:
    """Whether the text has every word of what is said, a path's or a dotted name's owner aside; one typing error a word is forgiven."""
    there = _words(text)
    return all(_has(there, word) for word in phrase.lower().split())


def lacking_content(facts: Facts, text: str, features: Iterable[str] = ()) -> list[str]:
    """What the text leaves out: subject, place, both or nothing. `features`: further names that say where a task is if its facts name no
    place, such as those that hidden tests call."""
    lacking = []
    where = [_core(code) for code in names(facts.place) if spoken_words(code)] or [
        word for word in _content_words(facts.place)
    ]
    named = [core for code in names(facts.headline) if (core := _core(code)) and core not in where]
    if named:
        enough = sum(says(text, name) for name in named) >= math.ceil(len(named) / SUBJECTS)
    else:
        listed = _content_words(facts.headline)
        enough = bool(listed) and sum(says(text, word) for word in listed) >= math.ceil(len(listed) / WORDS)
        named = listed
    if not enough:
        lacking.append(f"it does not say what changes ({_some(named) or 'and neither do the facts'})")
    given = [core for name in (*map(name_of, facts.interface), *features) if (core := _core(name))]
    where = where or [core for code in names(facts.headline) if (core := _core(code))] or given
    if not any(says(text, name) for name in where):
        lacking.append(f"it does not say where ({_some(where) or 'and neither do the facts'})")
    return lacking


def _some(found: Sequence[str]) -> str:
    return ", ".join(found[:4])


def _core(code: str) -> str:
    """The words of a name's own part: `pkg.mod.f` is "f"."""
    code = _KEYWORDS.sub("", code.strip())
    if not spoken_words(code) or " " in code:
        return spoken_words(code)
    head = re.match(r"[-.@/]*[A-Za-z_$][\w$./:@-]*", code)
    return _in_words(head[0] if head else code, most=1)


def _in_words(name: str, most: int = 2) -> str:
    """The last parts of a path or dotted name, split into their words."""
    parts = [part for part in re.split(r"[./:@]+", _SUFFIX.sub("", name)) if part.strip("-_")]
    parts = [part for part in parts if part not in _GENERIC] or parts
    return " ".join(word for part in parts[-most:] for word in _split(part))


def _split(part: str) -> list[str]:
    found: list[str] = []
    for piece in re.split(r"[_$-]+", part):
        words = _PIECES.findall(piece)
        # "IPv4" and "x" are words as they are.
        found += [word.lower() for word in words] if all(len(word) > 1 for word in words) else [piece.lower()]
    return [word for word in found if word]


def _words(text: str) -> frozenset[str]:
    tokens = re.findall(r"[\w$]+", text)
    return frozenset(token.lower() for token in tokens) | frozenset(word for token in tokens for word in _split(token))


def _content_words(text: str) -> list[str]:
    plain = CODE.sub(" ", mark_code(text))
    return list(dict.fromkeys(word for word in map(str.lower, _PROSE.findall(plain)) if word not in _EMPTY))


def _has(there: frozenset[str], word: str) -> bool:
    if word in there or (len(word) >= 4 and any(_one_error(word, other) for other in there)):
        return True
    parts = re.findall(r"\w+", word)  # "upper-bound"
    return parts != [word] and bool(parts) and all(_has(there, part) for part in parts)


def _one_error(word: str, other: str) -> bool:
    """Whether one letter that is missing, added or another, or two that are swapped, make one of the other."""
    if abs(len(word) - len(other)) > 1:
        return False
    start = next((n for n, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other)))
    left, right = word[start:], other[start:]
    swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    return left[1:] == right[1:] or left[1:] == right or left == right[1:] or swapped

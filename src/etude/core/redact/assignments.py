"""Values that only their name calls secret: `password = "…"`, `api_key: …`, `os.environ["TOKEN"] = "…"`, `<secret>…</secret>`.

The name is searched, not the value: five stems in the lower-case text, each a memory scan; a regular expression that begins with
the stem then reads the rest of the name, the sign and the value. What is not quoted must fill its line (env and YAML files) and be longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from etude.core.redact.finding import Finding
from etude.core.redact.randomness import change_share, is_hex, secret_is_drawn

STEMS = ("passw", "pwd", "secret", "token", "key")
_VALUE = r"[^\"'`\s\\]"
PATTERNS = {
    stem: re.compile(
        stem + r"(?P<tail>[\w.-]{0,24})"
        r"(?:[\"']?\]?[ \t]*(?::[ \t]*\w+[ \t]*=|=>|:=|=|:)[ \t]*[a-z@]{0,2}(?P<quote>[\"'`])(?P<quoted>"
        + _VALUE
        + r"{8,200})(?P=quote)"
        r"|[\"'],[ \t]*[\"'](?P<argument>" + _VALUE + r"{8,200})[\"']"
        r"|>(?P<element>[^<>\s]{8,200})</"
        r"|[ \t]*[=:][ \t]*(?P<bare>[^\s\"'`()\[\]{},;<>\\]{16,200})[ \t]*(?=\n|$))"
    )
    for stem in STEMS
}
# What makes a key a secret one; "key" alone is every dictionary's.
KEY_OF = re.compile(
    r"(?:api|access|account|auth|secret|private|signing|encrypt(?:ion)?|app|license|master|storage|service)[_.-]?$"
)
# A name that ends so speaks about a secret and holds none.
ABOUT = re.compile(
    r"name|type|field|u[ri][li]|path|file|dir|regex|pattern|hash|digest|checksum|header|prefix|label|format|class|izer|len|size|"
    r"count|hint|prompt|text|msg|message|error|title|sep|expir|ttl|age|scope|endpoint|algorithm|alg|word_reset|version|column|param|(?:^|[_.-])id$"
)
# A hash as a name says it; before the stem, on the same line.
HASHED = re.compile(
    r"hash|sha|md5|digest|checksum|integrity|etag|public|fingerprint|csrf|cache|primary|foreign|sort|partition"
)
AWS_SECRET = re.compile(r"[A-Za-z0-9/+]{40}")
LEAST_ARGUMENT = 16  # characters of a string after a string: `setenv("TOKEN", "…")`, but `("token", "symbol2")` too
NAMES = re.compile(r"[A-Za-z_$][\w$]*(?:[.:-]+>?[A-Za-z_$][\w$]*)*[!?]?")
CODE_CHANGE_SHARE = 0.2  # of the characters: `tokens2ids.next_index2` has 0.1, drawn letters and digits 0.45
NAME_CHARS = 40  # looked at before the stem for what qualifies it


def find_assignments(text: str, lower: str) -> Iterator[Finding]:
    """Secrets by name; `lower` is the text in lower case, character by character."""
    for stem, pattern in PATTERNS.items():
        for match in pattern.finditer(lower):
            finding = _judged(text, lower, stem, match)
            if finding:
                yield finding


def _judged(text: str, lower: str, stem: str, match: re.Match[str]) -> Finding | None:
    group = next(g for g in ("quoted", "argument", "element", "bare") if match[g] is not None)
    start, end = match.span(group)
    value = text[start:end]
    before = lower[max(0, match.start() - NAME_CHARS) : match.start()].rpartition("\n")[2]
    name = re.split(r"[^\w.-]", before)[-1]
    if ABOUT.search(match["tail"]) or HASHED.search(name) or (stem == "key" and not KEY_OF.search(name)):
        return None
    if group == "argument" and len(value) < LEAST_ARGUMENT:
        return None
    if group == "bare" and (is_code(value) or not re.fullmatch(r"[\w.\- \t#*/+]*", before)):
        return None
    if stem in ("passw", "pwd") and is_hex(value):  # a hash of a password, as tests and user tables write it
        return None
    if not secret_is_drawn(value):
        return None
    aws = AWS_SECRET.fullmatch(value) and ("aws" in before + match["tail"] or "access" in before + match["tail"])
    return Finding(start, end, "aws_secret" if aws else "password")


def is_code(value: str) -> bool:
    """An unquoted value that may be an expression: a name, dotted or with underscores, whose case and digits change as seldom as in words."""
    return NAMES.fullmatch(value) is not None and change_share(value) < CODE_CHANGE_SHARE

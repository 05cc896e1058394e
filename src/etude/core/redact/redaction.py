"""Secrets and personal data become placeholders: `<SECRET_GITHUB_TOKEN_1>`, `<EMAIL_2>`, `<NAME_1>`.

Promises: the same value has the same placeholder throughout a text; outside the findings not a byte changes; a redacted text is left
alone by a second pass; a placeholder is made of letters, digits, `_`, `<` and `>` only, so a string literal stays one (markup does not:
in XML it reads as a tag). Precision comes first where a value has no form of its own, since a wrong placeholder damages code:
see each search's module.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from etude.core.redact.addresses import find_emails, find_ip_addresses, find_phones
from etude.core.redact.finding import Finding
from etude.core.redact.names import find_authors, find_holders, find_homes, find_mail_names
from etude.core.redact.randomness import change_share, is_hex, secret_is_drawn
from etude.core.redact.tokens import find_tokens

# Values that only their name calls secret: `password = "…"`, `api_key: …`, `os.environ["TOKEN"] = "…"`,
# `<secret>…</secret>`.
#
# The name is searched, not the value: five stems in the lower-case text, each a memory scan; a regular expression
# that begins with the stem then reads the rest of the name, the sign and the value. What is not quoted must fill its
# line (env and YAML files) and be longer.


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


# Private keys in PEM and OpenPGP armour (RFC 7468, RFC 9580), also where a program's string literals hold them line
# by line.
#
# All from BEGIN to END goes. In a literal, `"-----BEGIN …\n"` to `"-----END …"`, the opening quote before and the
# closing one after stay, so that what is left is one literal. A marker alone (a parser's constant) is not a key.


# Between the markers: base64, armour headers ("Proc-Type: 4,ENCRYPTED"), and what a language needs to write lines as literals.
KEY = re.compile(
    r"-----BEGIN (?P<name>(?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?)-----"
    r"(?:[\w+/=\s\\\"'`,:.()#*@;]|-(?!----)){0,20000}+"  # possessive: never tried again, so linear in a file of BEGINs alone
    r"-----END (?P=name)-----"
)
# A key cut off: the marker and at least two lines of base64.
CUT = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[nr])+(?:[A-Za-z0-9+/=]{40,76}(?:\s|\\[nr])+){2,400}"
)
MATERIAL = re.compile(r"[A-Za-z0-9+/]{16,}")
# The shortest key in use, Ed25519 in PKCS 8, has 64 characters of base64.
LEAST_MATERIAL = 60


def find_private_keys(text: str) -> Iterator[Finding]:
    """Each key with its frame."""
    if "PRIVATE KEY" not in text:
        return
    for pattern in (KEY, CUT):
        for match in pattern.finditer(text):
            if sum(map(len, MATERIAL.findall(match[0]))) >= LEAST_MATERIAL:
                trailing = len(match[0]) - len(match[0].rstrip())
                yield Finding(match.start(), match.end() - trailing, "private_key")


PLACEHOLDER = re.compile(r"<((?:SECRET_[A-Z_]+|EMAIL|IP|PHONE|NAME|USER))_([0-9]+)>")
# A secret found by its place is sought in the rest of the text if it is this long: no shorter one is unlikely enough to be a word.
LEAST_REPEATED_CHARS = 20


def redact(text: str) -> tuple[str, Counter[str]]:
    """The text with placeholders, and how many were put, by kind."""
    counts: Counter[str] = Counter()
    placeholders: dict[tuple[str, str], str] = {}
    for find in (find_secrets, find_personal):
        while findings := _disjoint([*find(text)]):  # again, since a placeholder may bring to light what stood behind
            text = _replaced(text, findings, placeholders)
            counts.update(finding.kind for finding in findings)
    return text, counts


def find_secrets(text: str) -> Iterator[Finding]:
    """Keys, tokens and passwords, in no order; they may overlap."""
    yield from find_private_keys(text)
    yield from find_tokens(text)
    yield from _everywhere(text, [*find_assignments(text, _lower(text))])


def find_personal(text: str) -> Iterator[Finding]:
    """What belongs to a person, in no order; it may overlap."""
    if "@" in text:
        emails = [*find_emails(text)]
        yield from emails
        yield from find_mail_names(text, emails)
    yield from find_ip_addresses(text)
    yield from find_phones(text)
    yield from find_holders(text)
    yield from find_authors(text)
    yield from find_homes(text)


def _lower(text: str) -> str:
    """Lower case with every character at its place (the one capital that becomes two, U+0130, stays)."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text.replace("\u0130", "\u0131").lower()


def _everywhere(text: str, findings: list[Finding]) -> Iterator[Finding]:
    """The findings and every other place where their values stand."""
    yield from findings
    for value, kind in {(text[f.start : f.end], f.kind) for f in findings}:
        if len(value) >= LEAST_REPEATED_CHARS:
            for match in re.finditer(rf"(?<!\w){re.escape(value)}(?!\w)", text):
                yield Finding(*match.span(), kind)


def _disjoint(findings: list[Finding]) -> list[Finding]:
    """In order, overlapping ones united under the first one's kind: a form of its own before a mere name ("password")."""
    united: list[Finding] = []
    for finding in sorted(findings):
        if united and finding.start < united[-1].end:
            last = united[-1]
            kind = finding.kind if last.kind == "password" else last.kind
            united[-1] = Finding(last.start, max(last.end, finding.end), kind)
        else:
            united.append(finding)
    return united


def _replaced(text: str, findings: list[Finding], known: dict[tuple[str, str], str]) -> str:
    """`known` holds the placeholder of each (label, value) so far, and gets the new ones."""
    numbers: Counter[str] = Counter()
    for label, number in PLACEHOLDER.findall(text):  # of an earlier pass, or written by somebody: count on from there
        numbers[label] = max(numbers[label], int(number))
    parts, done = [], 0
    for finding in findings:
        key = finding.label, text[finding.start : finding.end]
        if key not in known:
            numbers[finding.label] += 1
            known[key] = f"<{finding.label}_{numbers[finding.label]}>"
        parts += [text[done : finding.start], known[key]]
        done = finding.end
    return "".join([*parts, text[done:]])

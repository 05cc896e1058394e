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
from etude.core.redact.assignments import find_assignments
from etude.core.redact.finding import Finding
from etude.core.redact.names import find_authors, find_holders, find_homes, find_mail_names
from etude.core.redact.private_keys import find_private_keys
from etude.core.redact.tokens import find_tokens

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

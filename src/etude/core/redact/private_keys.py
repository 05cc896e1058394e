"""Private keys in PEM and OpenPGP armour (RFC 7468, RFC 9580), also where a program's string literals hold them line by line.

All from BEGIN to END goes. In a literal, `"-----BEGIN …\\n"` to `"-----END …"`, the opening quote before and the closing one after stay,
so that what is left is one literal. A marker alone (a parser's constant) is not a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from etude.core.redact.finding import Finding

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

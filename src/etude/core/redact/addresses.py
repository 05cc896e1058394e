"""Addresses of people and machines: e-mail, IPv4 and IPv6, telephone numbers. Reserved, private and documented ones stay.

Each search begins with a character that is rare in code (`@`, a dot between digits, `::`, `+` before a digit) and looks both ways from
there; a textbook's pattern, which begins with the local part of the address, would try every word of the text.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Iterator

from etude.core.redact.finding import Finding

EMAIL = re.compile(
    r"@(?<=[\w+-]@)(?P<domain>(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.){1,6}(?P<top>[A-Za-z]{2,18}))(?![\w@(\[]|\.\w)"
)
LOCAL = re.compile(r"[\w.+%-]{0,63}[\w+-]\Z")
# Endings of files that are no country (ISO 3166): `lodash@4.x.js`, `kernel@backup.gz`.
NO_COUNTRY = frozenset("js ts rb hs gz xz db cs go el ex kt jl vb ko px".split())
# Any other two letters are a country; of the others those under which people have mail (IANA lists over a thousand, most of them words of code).
GENERIC_TOP = frozenset(
    "com org net edu gov mil int info biz name pro dev app io ai cloud tech online site xyz email systems software codes works science "
    "technology design studio world life blog team group solutions company network agency academy foundation social space page tools "
    "museum aero coop jobs mobi asia tel travel cat".split()
)
RESERVED_DOMAIN = re.compile(
    r"(?:.*\.)?(?:example|test|invalid|localhost|localdomain|local|internal|lan)(?:\.[a-z]{2,3}(?:\.[a-z]{2})?)?|"
    r"(?:.*\.)?(?:your|my|some|foo|bar|acme|company|domain|host|server|site|mail|email)?-?(?:domain|company|host|site|foo|bar|server)\.[a-z]{2,3}|"
    r"users\.noreply\.github\.com|(?:[a-z]\.)+[a-z]{2,3}",
    re.IGNORECASE,
)
NO_PERSON = frozenset(
    "git hg svn bzr cvs anonymous noreply no-reply nobody user username name you yourname your.name".split()
)

# From the first dot on; the number before it is looked back for.
IPV4 = re.compile(r"\.(?<=[0-9]\.)(?:[0-9]{1,3}\.){2}[0-9]{1,3}(?![\w+]|[.-]\w)")
IPV4_FIRST = re.compile(r"(?<![\w.+-])[0-9]{1,3}\Z")
# Unicast addresses of the internet are in 2000::/3 (RFC 4291, 2.4), so the first group has four digits and begins with 2 or 3.
IPV6 = re.compile(r":(?<=[23][0-9A-Fa-f]{3}:)(?<![\w:.].{5})(?:[0-9A-Fa-f]{0,4}:){1,6}[0-9A-Fa-f]{0,4}(?![\w:.]*[\w:])")
DOCUMENTATION_6 = (ipaddress.ip_network("2001:db8::/32"), ipaddress.ip_network("3fff::/20"))
VERSION_BEFORE = re.compile(
    r"(?:version|versions|ver|vers|release|rev|revision|build|firmware|section|sect|chapter|oid|rfc|clause|==|[<>~^!]=?|\bv|§)[\s\"'=:(\[]*$",
    re.IGNORECASE,
)
ADDRESS_BEFORE = re.compile(
    r"(?:ip|host|addr|address|server|dns|peer|gateway|route|ping|ssh|bind|listen|client|node|cidr)[A-Za-z]*[\s\"'=:(\[>]*$|://$|@$",
    re.IGNORECASE,
)
# Public resolvers, which belong to no person.
RESOLVERS = frozenset(("8.8.8.8", "8.8.4.4", "1.1.1.1", "1.0.0.1", "9.9.9.9", "208.67.222.222", "208.67.220.220"))
LEAST_DIGITS = (
    8  # of 12: with fewer and no word for an address before it, four numbers are more often a version or an object id
)

# +49 30 1234567: at least two groups after the country, written with spaces or dots, or the hyphens of a number in quotes.
PHONE_PLUS = re.compile(
    r"\+(?<![\w.)\]+]\+)[1-9][0-9]{0,2}(?:[ .-]?\([0-9]{1,4}\))?(?:[ .-][0-9]{2,8}){2,5}(?![\w.-]*[\w])"
)
PHONE_PAREN = re.compile(r"\((?<![\w)\]]\()[2-9][0-9]{2}\) ?[2-9][0-9]{2}-[0-9]{4}(?![\w-])")
PHONE_BEFORE = re.compile(
    r"(?:phone|fax|mobile|tel|cell|call|whatsapp|\bfon)\w*[.:\s\"'=(]*$|[\"']$|(?<![0-9])>$", re.IGNORECASE
)
FICTION = re.compile(r"555[ .)-]*(?:01[0-9]{2}|1212)|\(555\)|\b555\b")
PHONE_DIGITS = range(9, 16)  # E.164: fifteen at most

CONTEXT_CHARS = 24


def find_emails(text: str) -> Iterator[Finding]:
    """Addresses under which a person may have mail."""
    for match in EMAIL.finditer(text):
        local = LOCAL.search(text[max(0, match.start() - 64) : match.start()])
        if local is None or text.endswith("://", 0, match.start() - len(local[0])):  # the user of an address, not mail
            continue
        if not _is_mail(local[0].strip("."), match["domain"], match["top"].lower()):
            continue
        yield Finding(match.start() - len(local[0].lstrip(".")), match.end(), "email")


def _is_mail(local: str, domain: str, top: str) -> bool:
    if not any(c.isalpha() for c in local) and len(local) < 4:
        return False
    known = top not in NO_COUNTRY if len(top) == 2 else top in GENERIC_TOP
    return known and local.lower() not in NO_PERSON and not RESERVED_DOMAIN.fullmatch(domain)


def find_ip_addresses(text: str) -> Iterator[Finding]:
    """Addresses of the internet, version 4 and 6."""
    for match in IPV4.finditer(text):
        first = IPV4_FIRST.search(text, max(0, match.start() - 4), match.start())
        if first and _is_host_4(first[0] + match[0], text[max(0, first.start() - CONTEXT_CHARS) : first.start()]):
            yield Finding(first.start(), match.end(), "ip_address")
    for match in IPV6.finditer(text):
        start = match.start() - 4
        if _is_host_6(text[start : match.end()]):
            yield Finding(start, match.end(), "ip_address")


def _is_host_4(value: str, before: str) -> bool:
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        return False
    if not address.is_global or address.is_multicast or value in RESOLVERS or VERSION_BEFORE.search(before):
        return False
    steps = {later - number for number, later in itertools.pairwise(address.packed)}
    # 1.2.3.4, 12.34.56.78, 5.5.5.5, 123.45.67.89 are made up; with a nought at the end it is a network or a version
    if len(steps) == 1 or value.replace(".", "") in "1234567890" or value.endswith(".0"):
        return False
    long = len(value) - 3 >= LEAST_DIGITS and address.packed[0] > 2  # object ids begin with 0, 1 or 2 (X.660)
    return long or ADDRESS_BEFORE.search(before) is not None


def _is_host_6(value: str) -> bool:
    try:
        address = ipaddress.IPv6Address(value)
    except ValueError:
        return False
    # Two groups and nothing else (2001::1) are made up; a machine's address has more.
    return address.is_global and not any(address in net for net in DOCUMENTATION_6) and value.count(":") >= 4


def find_phones(text: str) -> Iterator[Finding]:
    """Telephone numbers in the two forms that code does not use for anything else."""
    for pattern in (PHONE_PLUS, PHONE_PAREN):
        for match in pattern.finditer(text):
            before = text[max(0, match.start() - CONTEXT_CHARS) : match.start()]
            digits = sum(c.isdigit() for c in match[0])
            if FICTION.search(match[0]) or (pattern is PHONE_PLUS and digits not in PHONE_DIGITS):
                continue
            if PHONE_BEFORE.search(before) or (
                pattern is PHONE_PLUS and " " in match[0] and before[-1:] in ("", "\n", " ")
            ):
                yield Finding(*match.span(), "phone")

"""Whether a licence that somebody names is borne out by a text that somebody encloses: names are vaguer than texts, and a text has no "or later"."""

from __future__ import annotations

import re

from etude.core.licence.expression import PUBLIC_DOMAIN, SOME_BSD

# What a name in metadata is used for in addition to its own licence.
ALSO_MEANT: dict[str, frozenset[str]] = {
    "MIT": frozenset(("X11", "MIT-0", "MIT-CMU")),
    "PSF-2.0": frozenset(("Python-2.0", "0BSD")),
    "Python-2.0": frozenset(("PSF-2.0", "0BSD")),
    PUBLIC_DOMAIN: frozenset(("CC0-1.0", "Unlicense", "0BSD", "WTFPL", "MIT-0")),
}
GNU = re.compile(r"(A?L?GPL)-(\d\.\d)-(only|or-later)")


def covers(claim: str, grant: str) -> bool:
    """Whether metadata that says `claim` is borne out by a text of `grant`."""
    claim_base, grant_base = claim.partition(" WITH ")[0], grant.partition(" WITH ")[0]
    if claim_base == grant_base:
        return " WITH " in claim or " WITH " not in grant
    if grant_base in ALSO_MEANT.get(claim_base, ()):
        return True
    if claim_base == SOME_BSD:
        return grant_base.startswith("BSD-")
    one, other = GNU.fullmatch(claim_base), GNU.fullmatch(grant_base)
    if not one or not other:
        return False
    if (
        one[1] == "LGPL" and one[2] == "3.0" and other[1] == "GPL"
    ):  # LGPL 3 refers to GPL 3, whose text is often the one enclosed
        return other[2] == "3.0"
    return one[1] == other[1] and (one[2] == other[2] or (one[3] == "or-later" and one[2] <= other[2]))

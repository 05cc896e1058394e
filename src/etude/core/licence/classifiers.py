"""Trove classifiers as SPDX expressions: `License :: OSI Approved :: X`. Those that name no version or variant say so in their own way (names.py)."""

from __future__ import annotations

import re

from etude.core.licence.expression import PUBLIC_DOMAIN, SOME_BSD
from etude.core.licence.names import of_name

LICENCE_OF_CLASSIFIER = {
    "Academic Free License (AFL)": "",
    "Apache Software License": "Apache-2.0",
    "Artistic License": "Artistic-1.0-Perl",
    "BSD License": SOME_BSD,
    "Boost Software License 1.0 (BSL-1.0)": "BSL-1.0",
    "CEA CNRS Inria Logiciel Libre License, version 2.1 (CeCILL-2.1)": "CECILL-2.1",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "European Union Public Licence 1.2 (EUPL 1.2)": "EUPL-1.2",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-2.0-or-later",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Public Domain": PUBLIC_DOMAIN,
    "Python License (CNRI Python License)": "CNRI-Python",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "University of Illinois/NCSA Open Source License": "NCSA",
    "Universal Permissive License (UPL)": "UPL-1.0",
    "Zope Public License": "ZPL-2.1",
    "zlib/libpng License": "Zlib",
    "ISC License (ISCL)": "ISC",
}
# They say that there is a licence, not which.
GROUPS = frozenset(("OSI Approved", "DFSG approved", "License"))


def of_classifiers(lines: list[str]) -> list[str]:
    """What each classifier about a licence says, groups left out; "" for one that names nothing known."""
    found: list[str] = []
    for line in lines:
        name = line.rpartition(" :: ")[2].strip()
        if not line.startswith("License") or name in GROUPS:
            continue
        found.append(
            LICENCE_OF_CLASSIFIER[name]
            if name in LICENCE_OF_CLASSIFIER
            else of_name(re.sub(r"\s*\([^)]*\)$", "", name))
        )
    return found

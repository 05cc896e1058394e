"""What a package's metadata says about its licence, format by format: PKG-INFO, pyproject.toml, setup.cfg, package.json, Cargo.toml."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from etude.core import bounded_toml
from etude.core.licence.expression import PUBLIC_DOMAIN, SOME_BSD, join_expressions, spdx, symbols
from etude.core.licence.names import MOST_CHARS, of_name
from etude.core.licence.texts import of_files

# Whether a licence that somebody names is borne out by a text that somebody encloses: names are vaguer than texts,
# and a text has no "or later".


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


# Trove classifiers as SPDX expressions: `License :: OSI Approved :: X`. Those that name no version or variant say so
# in their own way (names.py).


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


# A package.json with its README inside reaches some hundred kilobytes; what is larger isn't metadata.
MOST_BYTES = 2_000_000


@dataclass(frozen=True)
class MetadataLicence:
    """`exact` is false where the name leaves a version or variant open, which a licence text next to it may show."""

    expression: str = ""
    exact: bool = True


def parse_licence_field(name: str) -> MetadataLicence:
    """What one field in free words says: an expression, a name, or a whole licence text."""
    name = name.strip()
    if not name or name.upper() in ("UNKNOWN", "UNLICENSED", "NONE", "OTHER"):
        return MetadataLicence()
    if _is_text(name):
        texts = of_files({"License": name})
        return (
            MetadataLicence(texts.expression) if texts.expression or texts.foreign else of_line(name.split("\n", 1)[0])
        )
    return of_line(name)


def _is_text(name: str) -> bool:
    return "\n" in name.strip() or len(name) > MOST_CHARS


def of_line(name: str) -> MetadataLicence:
    expression = spdx(name) or of_name(name)
    vague = SOME_BSD in symbols(expression) or (
        re.search(r"GPL|general public", name, re.IGNORECASE) and not re.search(r"\d", name)
    )
    return MetadataLicence(expression, exact=not vague)


def of_fields(expression: str, free: str, classifiers: list[str]) -> MetadataLicence:
    """`License-Expression` alone decides; then the free words, made precise by the classifiers; then the classifiers: several hold all together,
    as nothing tells whether they are for choice."""
    if found := spdx(expression):
        return MetadataLicence(found)
    words = parse_licence_field(free)
    listed = of_classifiers(classifiers)
    by_list = MetadataLicence(
        join_expressions(listed) if all(listed) else "",
        exact=not any("(GPL)" in c or "(LGPL)" in c or "BSD License" in c for c in classifiers),
    )
    if not words.expression:
        return by_list
    if (
        by_list.expression
        and by_list.exact
        and (not words.exact or (_is_text(free) and covers(by_list.expression, words.expression)))
    ):
        return by_list  # the classifier has the version, or the "or later" that a text can't have
    return words


def of_pkg_info(text: str) -> MetadataLicence:
    fields = HeaderParser().parsestr(text)
    free = re.sub(r"\n[ \t]*\|?", "\n", str(fields.get("License", "")))
    return of_fields(
        str(fields.get("License-Expression", "")), free, [str(value) for value in fields.get_all("Classifier", [])]
    )


def of_pyproject(text: str) -> MetadataLicence:
    tables = bounded_toml.loads(text)
    project = tables.get("project")
    if not isinstance(project, dict):
        tool = tables.get("tool")
        project = tool.get("poetry", {}) if isinstance(tool, dict) else {}
    licence = project.get("license", "")
    if isinstance(licence, dict):
        licence = licence.get("text", "")
    classifiers = project.get("classifiers", [])
    return of_fields("", str(licence), [str(line) for line in classifiers] if isinstance(classifiers, list) else [])


def of_setup_cfg(text: str) -> MetadataLicence:
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(text)
    metadata = dict(parser["metadata"]) if parser.has_section("metadata") else {}
    classifiers = [line.strip() for line in metadata.get("classifiers", metadata.get("classifier", "")).split("\n")]
    return of_fields("", metadata.get("license", ""), classifiers)


def of_package_json(text: str) -> MetadataLicence:
    """The old list `licenses` offers a choice, as npm's own documentation rewrites it."""
    found = json.loads(text)
    if not isinstance(found, dict):
        return MetadataLicence()
    values = found.get("license", found.get("licenses", ""))
    parts = [_npm(value) for value in (values if isinstance(values, list) else [values])]
    if not all(part.expression for part in parts):
        return MetadataLicence()
    return MetadataLicence(
        join_expressions((part.expression for part in parts), choice=True), exact=all(part.exact for part in parts)
    )


def _npm(value: Any) -> MetadataLicence:
    name = str(value.get("type") or value.get("name") or "") if isinstance(value, dict) else str(value or "")
    return MetadataLicence() if name.upper().startswith("SEE LICEN") else parse_licence_field(name)


def of_cargo(text: str) -> MetadataLicence:
    package = bounded_toml.loads(text).get("package", {})
    return parse_licence_field(str(package.get("license", ""))) if isinstance(package, dict) else MetadataLicence()


Reader = Callable[[str], MetadataLicence]
PYTHON: tuple[tuple[str, Reader], ...] = (
    ("PKG-INFO", of_pkg_info),
    ("METADATA", of_pkg_info),
    ("pyproject.toml", of_pyproject),
    ("setup.cfg", of_setup_cfg),
)
NODE: tuple[tuple[str, Reader], ...] = (("package.json", of_package_json),)
RUST: tuple[tuple[str, Reader], ...] = (("Cargo.toml", of_cargo),)


def dist_info(root: Path) -> Path | None:
    """The folder in which an unpacked wheel keeps its metadata; None in a source tree, or where several packages are installed."""
    found = [path for path in root.glob("*.dist-info") if path.is_dir() and not path.is_symlink()]
    return found[0] if len(found) == 1 else None


def of_project(root: Path, kind: str) -> MetadataLicence:
    """What the first metadata file says that says anything. An npm package is asked for its own file first, every other for Python's."""
    installed = dist_info(root)
    for name, reader in (*NODE, *PYTHON, *RUST) if kind == "npm" else (*PYTHON, *RUST, *NODE):
        path = (installed if installed and name == "METADATA" else root) / name
        try:
            if path.is_symlink() or not path.is_file() or path.stat().st_size > MOST_BYTES:
                continue
            found = reader(path.read_text(encoding="utf-8-sig", errors="replace"))
        except (OSError, ValueError, TypeError, AttributeError, configparser.Error, RecursionError):
            continue  # damaged metadata says nothing; the licence text still may
        if found.expression:
            return found
    return MetadataLicence()

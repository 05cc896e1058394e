"""The order of the evidence, what a head says, the machine-readable copyright file, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from identify.vendor.licenses import LICENSES

from etude.core.licence import LicenceBook, LicenceConflict
from etude.core.licence.dep5 import parse_dep5
from etude.core.licence.header import comments, of_comments
from etude.core.licence.matching import analyse_text

TEXTS = dict(LICENSES)
GPL_NOTICE = """# This program is free software; you can redistribute it and/or modify
# it under the terms of the GNU General Public License as published by
# the Free Software Foundation; either version 2 of the License, or
# (at your option) any later version.
#
# This program is distributed in the hope that it will be useful,
# but WITHOUT ANY WARRANTY. See the GNU General Public License for more details.
import os
"""


def _project(root: Path, **files: str) -> LicenceBook:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("PKG_INFO", "PKG-INFO").replace("package_json", "package.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return LicenceBook.of_project(root, "sdist")


def _of(head: str) -> str | None:
    return of_comments(comments(head))


def test_a_tag_in_the_head_goes_before_everything(tmp_path: Path) -> None:
    book = _project(tmp_path, PKG_INFO="License: MIT\n", LICENSE=TEXTS["MIT"], debian__copyright=DEP5)
    found = book.of("src/a.c", "/* SPDX-License-Identifier: BSD-2-Clause */\nint x;\n")
    assert (found.expression, found.evidence) == ("BSD-2-Clause", "file")


def test_the_copyright_file_goes_before_metadata_and_text(tmp_path: Path) -> None:
    book = _project(tmp_path, PKG_INFO="License: MIT\n", LICENSE=TEXTS["MIT"], debian__copyright=DEP5)
    found = book.of("src/a.c", "int x;\n")
    assert (found.expression, found.evidence) == ("GPL-2.0-or-later", "dep5")


def test_a_licence_file_sets_its_folder_apart(tmp_path: Path) -> None:
    book = _project(tmp_path, PKG_INFO="License: MIT\n", LICENSE=TEXTS["MIT"], lib__zlib__LICENSE=TEXTS["Zlib"])
    assert book.of("lib/zlib/deep/a.c", "").expression == "Zlib"
    assert book.of("lib/zlib/deep/a.c", "").evidence == "text"
    assert book.of("lib/b.c", "").expression == "MIT"


def test_a_page_that_only_points_to_the_licence_sets_no_folder_apart(tmp_path: Path) -> None:
    page = "# BSD-3-Clause License\n\n```{literalinclude} ../LICENSE.txt\n---\nlanguage: text\n---\n```\n"
    book = _project(tmp_path, LICENSE=TEXTS["MIT"], docs__license=page)
    assert book.of("docs/index.md", "# Index\n").expression == book.of("a.py", "").expression == "MIT"


def test_where_metadata_and_text_contradict_the_text_holds_and_the_conflict_is_kept(tmp_path: Path) -> None:
    book = _project(tmp_path, PKG_INFO="License: MIT\n", LICENSE=TEXTS["GPL-3.0"])
    assert (book.project.expression, book.project.evidence) == ("GPL-3.0-only", "text")
    assert book.conflicts == [LicenceConflict("MIT", "GPL-3.0-only")]


def test_a_licence_with_a_restriction_added_is_unknown_whatever_the_metadata_says(tmp_path: Path) -> None:
    text = TEXTS["MIT"].replace("to any person", "to any person for noncommercial purposes", 1)
    assert text != TEXTS["MIT"]
    book = _project(tmp_path, PKG_INFO="License: MIT\n", LICENSE=text)
    assert book.project.expression == ""
    assert book.conflicts == [LicenceConflict("MIT", "")]


def test_terms_in_words_of_their_own_are_unknown(tmp_path: Path) -> None:
    text = "You may use this software on Tuesdays. " * 20
    assert _project(tmp_path, PKG_INFO="License: MIT\n", LICENSE=text).project.expression == ""


def test_metadata_alone_is_evidence_and_nothing_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert _project(tmp_path / "a", PKG_INFO="License: MIT\n").of("x.py", "").evidence == "metadata"
    nothing = _project(tmp_path / "b", README="hello").of("x.py", "")
    assert (nothing.expression, nothing.evidence) == ("", "none")


def test_the_texts_of_two_licences_in_one_file_hold_together_unless_a_choice_is_offered(tmp_path: Path) -> None:
    both = TEXTS["BSD-3-Clause"] + "\n\n" + TEXTS["MIT"]
    assert _project(tmp_path, LICENSE=both).project.expression == "BSD-3-Clause AND MIT"
    assert (
        _project(tmp_path, LICENSE="You may use either of these licenses:\n\n" + both).project.expression
        == "BSD-3-Clause OR MIT"
    )


def test_old_npm_lists_offer_a_choice(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text(json.dumps({"licenses": [{"type": "MIT"}, {"type": "GPLv2"}]}))
    assert LicenceBook.of_project(tmp_path, "npm").project.expression == "GPL-2.0-only OR MIT"


@pytest.mark.parametrize(
    "name", ["PKG-INFO", "pyproject.toml", "setup.cfg", "package.json", "Cargo.toml", "LICENSE", "debian/copyright"]
)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\x00",
        b"{[",
        b"[project]\nlicense = 3\n",
        b"[]",
        b'{"license": {"type": 7}}',
        b"\n" * 5000,
        b"License:",
    ],
)
def test_damaged_evidence_is_none(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(data)
    assert LicenceBook.of_project(tmp_path, "debian").of("a.py", "import os\n").expression == ""


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text(TEXTS["MIT"])
    root = tmp_path / "root"
    root.mkdir()
    for name in ("LICENSE", "PKG-INFO"):
        (root / name).symlink_to(outside)
    assert LicenceBook.of_project(root, "folder").project.evidence == "none"


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("// SPDX-License-Identifier: (GPL-2.0 OR MIT)\n", "GPL-2.0-only OR MIT"),
        ("# SPDX-License-Identifier: MIT\n# SPDX-License-Identifier: Apache-2.0\n", "Apache-2.0 AND MIT"),
        ("# SPDX-License-Identifier: my own\n", ""),
        ('MARK = "SPDX-License-Identifier: MIT"\n', None),
        (GPL_NOTICE, "GPL-2.0-or-later"),
        (
            GPL_NOTICE.replace(
                "either version 2 of the License, or\n# (at your option) any later version", "version 2"
            ),
            "GPL-2.0-only",
        ),
        ('/*\n * Licensed under the Apache License, Version 2.0 (the "License");\n */\n', "Apache-2.0"),
        ("// Dual licensed under the MIT license or the Apache License, Version 2.0.\n", "Apache-2.0 OR MIT"),
        (
            "# Copyright X. Use of this source code is governed by a BSD-style license that can be\n# found in the LICENSE file.\n",
            None,
        ),
        ("# This Source Code Form is subject to the terms of the Mozilla Public\n# License, v. 2.0.\n", "MPL-2.0"),
        ("# Copyright (c) 2020 X. All rights reserved. Proprietary and confidential. No license.\n", ""),
        (
            "# You can redistribute it under the same terms as Perl itself; see its license.\n",
            "Artistic-1.0-Perl OR GPL-1.0-or-later",
        ),
        ("/* " + TEXTS["MIT"].replace("\n", "\n * ") + " */\nint x;\n", "MIT"),
        ('"""Which licences a file has."""\nimport re\n', None),
        ("", None),
    ],
)
def test_a_head_says_what_it_grants(head: str, licence: str | None) -> None:
    assert _of(head) == licence


DEP5 = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: A
License: GPL-2+

Files: lib/* odd/\\*.c
Copyright: B
License: Expat

Files: lib/x?.c
 ./doc/a.txt
Copyright: C
License: GPL-2 or Artistic, and BSD-3-clause

Files: own/*
Copyright: D
License: strange
 Do what the bear says.

License: GPL-2+
 This is the GPL.
"""


@pytest.mark.parametrize(
    ("path", "licence"),
    [
        ("a.c", "GPL-2.0-or-later"),
        ("deep/er/a.c", "GPL-2.0-or-later"),
        ("lib/deep/a.c", "MIT"),
        ("lib/x1.c", "(Artistic-1.0-Perl OR GPL-2.0-only) AND BSD-3-Clause"),
        ("lib/x12.c", "MIT"),
        ("doc/a.txt", "(Artistic-1.0-Perl OR GPL-2.0-only) AND BSD-3-Clause"),
        ("odd/*.c", "MIT"),
        ("odd/a.c", "GPL-2.0-or-later"),
        ("own/a.c", ""),
    ],
)
def test_the_last_paragraph_that_matches_counts(path: str, licence: str) -> None:
    book = parse_dep5(DEP5)
    assert book is not None
    assert book.of(path) == licence


def test_a_copyright_file_for_people_is_not_machine_readable() -> None:
    assert parse_dep5("This package was debianized by X.\n\nLicense: GPL\n") is None


@pytest.mark.parametrize("name", sorted(set(TEXTS) - {"CC-BY-4.0", "CC-BY-SA-4.0"}))
def test_a_standard_text_is_found_inside_other_words(name: str) -> None:
    found = analyse_text(
        "Some words before that say nothing at all.\n\n"
        + TEXTS[name]
        + "\n\nSome words after, by hand, about the authors.\n"
    ).licences
    assert [licence.removesuffix("-only") for licence in found] == [name]


def test_an_unpacked_wheel_keeps_its_evidence_next_to_the_package(tmp_path: Path) -> None:
    folder = tmp_path / "a-1.0.dist-info"
    (folder / "licenses").mkdir(parents=True)
    (folder / "METADATA").write_text("License: BSD\n")
    (folder / "licenses" / "LICENSE").write_text(TEXTS["BSD-2-Clause"])
    assert LicenceBook.of_project(tmp_path, "sdist").of("a/b.py", "").expression == "BSD-2-Clause"
    (tmp_path / "b-1.0.dist-info").mkdir()  # two packages installed side by side: neither speaks for the other's files
    assert LicenceBook.of_project(tmp_path, "sdist").of("a/b.py", "").expression == ""

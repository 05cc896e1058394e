"""Expressions, families, and names that people write."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.licence import family
from etude.core.licence.expression import equivalent, join_expressions, spdx, symbols
from etude.core.licence.licence import FAMILIES
from etude.core.licence.metadata import covers, of_classifiers
from etude.core.licence.names import of_name

KNOWN = st.sampled_from(
    ["MIT", "Apache-2.0", "MPL-2.0", "LGPL-2.1-or-later", "GPL-3.0-only", "CC-BY-NC-4.0", "LicenseRef-own", "BUSL-1.1"]
)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("MIT", "permissive"),
        ("Apache-2.0 WITH LLVM-exception", "permissive"),
        ("CC0-1.0", "permissive"),
        ("LicenseRef-BSD", "permissive"),
        ("LicenseRef-public-domain", "permissive"),
        ("MPL-2.0", "weak copyleft"),
        ("LGPL-3.0-or-later", "weak copyleft"),
        ("GPL-2.0-only WITH Classpath-exception-2.0", "weak copyleft"),
        ("GPL-2.0-only WITH Linux-syscall-note", "strong copyleft"),
        ("AGPL-3.0-only", "strong copyleft"),
        ("GPL-2.0+", "strong copyleft"),
        ("BUSL-1.1", "other"),
        ("LicenseRef-NVIDIA-Proprietary", "unknown"),
        ("", "unknown"),
        ("not a licence (", "unknown"),
        ("MIT OR GPL-3.0-only", "permissive"),
        ("MIT AND GPL-3.0-only", "strong copyleft"),
        ("MPL-2.0 AND (GPL-2.0-only OR MIT)", "weak copyleft"),
    ],
)
def test_a_family_is_what_the_licence_asks_for(expression: str, kind: str) -> None:
    assert family(expression) == kind


@given(KNOWN, KNOWN)
@settings(max_examples=40, deadline=None)
def test_a_choice_takes_the_best_and_a_sum_the_worst(one: str, other: str) -> None:
    ranks = FAMILIES.index(family(one)), FAMILIES.index(family(other))
    assert FAMILIES.index(family(f"{one} OR {other}")) == min(ranks)
    assert FAMILIES.index(family(f"{one} AND {other}")) == max(ranks)


@given(st.lists(KNOWN, min_size=1, max_size=5), st.booleans(), st.randoms())
@settings(max_examples=40, deadline=None)
def test_joining_is_the_same_in_every_order(parts: list[str], choice: bool, random: object) -> None:
    shuffled = parts[:]
    random.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue]
    whole = join_expressions(parts, choice=choice)
    assert whole == join_expressions(shuffled, choice=choice)
    assert symbols(whole) == frozenset(parts)


def test_brackets_keep_a_choice_inside_a_sum() -> None:
    assert equivalent(join_expressions(["MIT OR Apache-2.0", "MPL-2.0"]), "MPL-2.0 AND (Apache-2.0 OR MIT)")


@given(st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_has_an_expression_or_none_and_never_an_error(text: str) -> None:
    for found in (spdx(text), of_name(text)):
        assert found == "" or spdx(found) == found


@pytest.mark.parametrize(
    ("name", "licence"),
    [
        ("MIT", "MIT"),
        ("The MIT License (MIT)", "MIT"),
        ("Expat license", "MIT"),
        ("MIT/X11", "MIT"),
        ("MIT No Attribution", "MIT-0"),
        ("Apache License, Version 2.0", "Apache-2.0"),
        ("MIT/Apache-2.0", "Apache-2.0 OR MIT"),
        ("Your choice of MIT or Apache License 2.0", "Apache-2.0 OR MIT"),
        ("MIT, BSD", "LicenseRef-BSD AND MIT"),
        ("BSD", "LicenseRef-BSD"),
        ("New BSD License", "BSD-3-Clause"),
        ("2-clause BSD", "BSD-2-Clause"),
        ("FreeBSD", "BSD-2-Clause"),
        ("GPLv2+", "GPL-2.0-or-later"),
        ("GPL (>= 2)", "GPL-2.0-or-later"),
        ("GNU GPL v3 or later", "GPL-3.0-or-later"),
        ("GPLv3", "GPL-3.0-only"),
        ("GPL", "GPL-1.0-or-later"),
        ("GNU Lesser General Public License v3 or later (LGPLv3+)", "LGPL-3.0-or-later"),
        ("LGPL v2.1", "LGPL-2.1-only"),
        ("GNU Affero General Public License v3", "AGPL-3.0-only"),
        ("GPL-1+ or Artistic", "Artistic-1.0-Perl OR GPL-1.0-or-later"),
        ("GPL v2.1", ""),  # there is none
        ("GNU GPLv2 (with FOSS License Exception)", ""),
        ("Dual License", ""),
        ("UNLICENSED", ""),
        ("SEE LICENSE IN LICENSE.md", ""),
        ("Google Cloud Platform Terms of Service", ""),
        ("BSD-3-Clause, Apache-2.0, dependency licenses", ""),
    ],
)
def test_a_name_says_no_more_than_it_says(name: str, licence: str) -> None:
    assert of_name(name) == licence


def test_classifiers_name_their_licences_and_groups_name_none() -> None:
    lines = [
        "License :: OSI Approved",
        "License :: OSI Approved :: BSD License",
        "License :: Other/Proprietary License",
        "Topic :: Software",
    ]
    assert of_classifiers(lines) == ["LicenseRef-BSD", ""]


@pytest.mark.parametrize(
    ("claim", "grant", "borne_out"),
    [
        ("GPL-2.0-or-later", "GPL-2.0-only", True),
        ("GPL-2.0-or-later", "GPL-3.0-only", True),
        ("GPL-3.0-only", "GPL-2.0-only", False),
        ("LGPL-3.0-only", "GPL-3.0-only", True),
        ("LGPL-2.1-only", "GPL-2.0-only", False),
        ("LicenseRef-BSD", "BSD-2-Clause", True),
        ("BSD-2-Clause", "BSD-3-Clause", False),
        ("MIT", "X11", True),
        ("Apache-2.0", "Apache-2.0 WITH LLVM-exception", False),
    ],
)
def test_a_claim_is_borne_out_by_a_text_of_its_own_kind(claim: str, grant: str, borne_out: bool) -> None:
    assert covers(claim, grant) is borne_out

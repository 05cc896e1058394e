"""Rules of package indexes: who may ask for what."""

from __future__ import annotations

import pytest

from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.packages.rule import pip_name
from etude.sandbox.network.rules import named_rule
from etude.sandbox.spec import PackageRule


def test_every_package_but_the_denied_ones_under_all_their_spellings() -> None:
    rule = named_rule(PackageRule("pip", ("*",), deny=("My.Project",)))
    assert rule.require("Requests", pip_name) == "requests"
    for spelled in ("my-project", "My_Project", "my.project"):
        with pytest.raises(RequestRefused, match="denied"):
            rule.require(spelled, pip_name)


def test_what_is_denied_stays_so_though_it_is_named() -> None:
    rule = named_rule(PackageRule("npm", ("left-pad", "lodash"), deny=("left-pad",)))
    with pytest.raises(RequestRefused, match="denied"):
        rule.require("left-pad", lambda text: text)

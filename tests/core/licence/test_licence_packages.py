"""Real packages, their licences decided by reading: the book must agree with every one. packages/README.md says how the set was made."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from identify.vendor.licenses import LICENSES

from etude.core.licence import LicenceBook
from etude.core.licence.expression import equivalent

PACKAGES = Path(__file__).parent / "packages"
INCLUDE = re.compile(r"^%include (\S+) (\d+) (\d+)$", re.MULTILINE)
FIELD = re.compile(r"^(?:Metadata-Version|License|License-Expression|Classifier):")


def _lines(name: str) -> list[str]:
    """A text that several packages share: in texts/, or a standard one that comes with `identify`."""
    standard = name.removeprefix("identify:")
    text = (
        dict(LICENSES)[standard]
        if standard != name
        else (PACKAGES / "texts" / f"{name}.txt").read_text(encoding="utf-8")
    )
    return [line.strip() for line in text.split("\n")]


def _expand(path: str, text: str) -> str:
    text = INCLUDE.sub(lambda found: "\n".join(_lines(found[1])[int(found[2]) : int(found[3])]), text)
    if path == "PKG-INFO":  # a field's further lines are indented
        return (
            "\n".join(line if FIELD.match(line) else f"        {line}" for line in text.rstrip("\n").split("\n")) + "\n"
        )
    return text


def _packages() -> list[tuple[str, dict]]:
    return [
        (kind, package)
        for kind in ("sdist", "npm", "debian")
        for package in tomllib.loads((PACKAGES / f"{kind}.toml").read_text(encoding="utf-8"))["package"]
    ]


@pytest.mark.sample(60)
@pytest.mark.parametrize(
    ("kind", "package"), [pytest.param(kind, package, id=f"{kind}:{package['name']}") for kind, package in _packages()]
)
def test_a_published_package_has_the_licence_that_a_reader_finds(kind: str, package: dict, tmp_path: Path) -> None:
    for path, text in package["files"].items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_expand(path, text), encoding="utf-8")
    book = LicenceBook.of_project(tmp_path, kind)
    asks = package.get("asks", {"src/main.c": package["licence"]})
    wrong = {}
    for path, licence in asks.items():
        found = book.of(path, "").expression
        if not equivalent(found, licence):
            wrong[path] = f"found {found!r}, a reader finds {licence!r}"
    assert not wrong


def test_the_set_is_large_and_varied() -> None:
    packages = _packages()
    assert len(packages) >= 100
    assert len({package["licence"] for _, package in packages}) >= 40

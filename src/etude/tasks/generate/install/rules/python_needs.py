"""What a Python project says its tests need: extras, dependency groups, requirement files, tox. Read as data, nothing is run."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping
from typing import Any

from etude.core import bounded_toml

GROUPS = ("test", "tests", "testing", "dev", "development", "unittest", "pytest")
REQUIREMENTS = re.compile(r"(^|/)(requirements[-_./]?)?(tests?|testing|dev|develop)([-_.]?requirements)?\.(txt|in)$")
MOST_EXTRAS = 4
# What a project's own test list names in addition to what its tests import: slow to install, and no test needs it.
_TOOLS = frozenset(
    "black ruff flake8 mypy pyright pre-commit tox nox twine build wheel bump2version sphinx furo isort pylint "
    "coveralls codecov setuptools pip check-manifest towncrier cibuildwheel interrogate pyroma zest-releaser".split()
)
_LISTED = re.compile(r"install_requires\s*=\s*\[")
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")


def project_table(files: Mapping[str, str]) -> dict[str, Any]:
    """pyproject.toml, or nothing where it is absent or broken."""
    try:
        return bounded_toml.loads(files.get("pyproject.toml", ""))
    except ValueError:
        return {}


def setup_cfg(files: Mapping[str, str]) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(files.get("setup.cfg", ""))
    except configparser.Error:
        return configparser.ConfigParser()
    return parser


def extras(files: Mapping[str, str]) -> list[str]:
    """Names of the project's extras that sound like tests, in the order of GROUPS."""
    named = set(project_table(files).get("project", {}).get("optional-dependencies", {}))
    config = setup_cfg(files)
    if config.has_section("options.extras_require"):
        named |= set(config.options("options.extras_require"))
    _, _, text = files.get("setup.py", "").partition("extras_require")
    named |= {name for name in GROUPS if re.search(rf"[\"']{name}[\"']\s*:", text)}
    return [name for name in GROUPS if name in named][:MOST_EXTRAS]


def test_requirements(files: Mapping[str, str]) -> list[str]:
    """Requirement lines beyond the extras: dependency groups, poetry's and hatch's groups, tests_require, requirement files, tox's deps."""
    table = project_table(files)
    found: list[str] = []
    groups = table.get("dependency-groups", {})
    for name in GROUPS:
        found += _group(groups, name, set())
    poetry = table.get("tool", {}).get("poetry", {})
    for group in ({"dependencies": poetry.get("dev-dependencies", {})}, *poetry.get("group", {}).values()):
        found += [name for name in group.get("dependencies", {}) if name.lower() != "python"]
    for environment in table.get("tool", {}).get("hatch", {}).get("envs", {}).values():
        found += [line for line in environment.get("dependencies", []) if "{" not in line]
    config = setup_cfg(files)
    found += _lines(config.get("options", "tests_require", fallback=""))
    found += _tox(files)
    named = [path for path in sorted(files) if REQUIREMENTS.search(path) and path.count("/") <= 1]
    tests = [path for path in named if "test" in path.rpartition("/")[2]]
    for path in tests or named:  # lists for developers hold much that no test needs
        found += _lines(files[path])
    return _kept(found)


def own_requirements(files: Mapping[str, str], chosen: Iterable[str] = ()) -> list[str]:
    """What the project itself needs, and its extras of `chosen`: by pyproject.toml, setup.cfg and setup.py, else by requirements.txt."""
    project = table_or_empty(project_table(files).get("project"))
    found = [str(line) for line in project.get("dependencies") or ()]
    tool = table_or_empty(project_table(files).get("tool"))
    found += [
        name
        for name in table_or_empty(table_or_empty(tool.get("poetry")).get("dependencies"))
        if name.lower() != "python"
    ]
    config = setup_cfg(files)
    found += _lines(config.get("options", "install_requires", fallback=""))
    for listed in _listed(files.get("setup.py", "")):
        found += re.findall(r"[\"']([^\"']+)[\"']", listed)
    return [*_kept(found or _lines(files.get("requirements.txt", ""))), *own_extras(files, chosen)]


def _listed(text: str) -> list[str]:
    """What is in the brackets of `install_requires=[…]`, each up to the first that closes."""
    found: list[str] = []
    opened = _LISTED.search(text)
    while opened is not None and (end := text.find("]", opened.end())) >= 0:
        found.append(text[opened.end() : end])
        opened = _LISTED.search(text, end)
    return found


def own_extras(files: Mapping[str, str], chosen: Iterable[str]) -> list[str]:
    """The requirements of these extras."""
    optional = table_or_empty(table_or_empty(project_table(files).get("project")).get("optional-dependencies"))
    config, found = setup_cfg(files), []
    for name in chosen:
        found += [str(line) for line in optional.get(name) or ()]
        found += _lines(config.get("options.extras_require", name, fallback=""))
    return _kept(found)


def table_or_empty(value: Any) -> dict[str, Any]:
    """A table of somebody's settings, or an empty one where something else is written."""
    return value if isinstance(value, dict) else {}


def _group(groups: Any, name: str, seen: set[str]) -> list[str]:
    """PEP 735, included groups and all."""
    if name in seen or not isinstance(groups, dict):
        return []
    seen.add(name)
    found: list[str] = []
    for entry in groups.get(name, []):
        if isinstance(entry, str):
            found.append(entry)
        elif isinstance(entry, dict) and "include-group" in entry:
            found += _group(groups, entry["include-group"], seen)
    return found


def _tox(files: Mapping[str, str]) -> list[str]:
    config = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        config.read_string(files.get("tox.ini", ""))
    except configparser.Error:
        return []
    lines = _lines(config.get("testenv", "deps", fallback=""))
    return [line.rpartition(":")[2].strip() if re.match(r"^[\w,!{}-]+:\s", line) else line for line in lines]


def _lines(text: str) -> list[str]:
    return [line.split("#")[0].strip() for line in text.splitlines()]


def _kept(lines: Iterable[str]) -> list[str]:
    """Requirements of packages: no options, paths, addresses, substitutions; no tools that no test imports. Pins of a lock are loosened:
    a pin of years ago may not build here."""
    found: dict[str, str] = {}
    for line in (" ".join(line.split()) for line in lines):
        name = _NAME.match(line)
        if name is None or "://" in line or "{" in line or line.startswith(("-", ".", "/")) or " @ " in line:
            continue
        plain = re.sub(r"[-_.]+", "-", name[0]).lower()
        if plain not in _TOOLS and not plain.startswith(("sphinx", "types-", "flake8-")):
            found.setdefault(plain, re.sub(r" ?==[^;]*", "", line).strip())
    return list(found.values())

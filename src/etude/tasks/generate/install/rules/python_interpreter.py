"""Which Python a project's environment is made with: the sandbox's own, or another of the machine where the project asks for it. Pure.

A step looks for the chosen versions inside the sandbox and says what is missing; the rules only put them in order.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from etude.sandbox import interpreter
from etude.tasks.environment.toolchains import INSIDE, PYTHONS
from etude.tasks.generate.install.rules.python_needs import project_table, setup_cfg, table_or_empty

DEMAND = "python"  # in a list of wanted distributions: a demand on the interpreter, e.g. "python>=3.12"
_LATEST = 99  # a patch release of a minor version whose own is not known
_CARET = re.compile(r"([\^~])\s*(\d{1,9})(?:\.(\d{1,9}))?(?:\.\d{1,9})*")
LONGEST = 200  # characters of a demand; longer ones are none, and Python reads no number of thousands of digits
_DECLARED = re.compile(r"python_requires\s*=\s*[\"']([^\"']+)[\"']")
_IGNORED = re.compile(r"Requires-Python ([<>=!~][<>=!~\d.*, ]*\d)")
_MISSED = re.compile(
    r"No matching distribution found|requires a different Python|Could not find a version that satisfies"
)
# Names of the standard library, by the first version that has them (its own "What's New" pages).
_SINCE = {
    "typing": {"override": 12, "TypeAliasType": 12, "TypeIs": 13, "ReadOnly": 13, "NoDefault": 13},
    "itertools": {"batched": 12},
    "collections.abc": {"Buffer": 12},
    "warnings": {"deprecated": 13},
    "copy": {"replace": 13},
}
_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def declared_versions(files: Mapping[str, str]) -> SpecifierSet:
    """What the project asks of the interpreter, by pyproject.toml, its release's metadata, setup.cfg or setup.py; empty: nothing that can
    be read."""
    table = project_table(files)
    poetry = table_or_empty(table_or_empty(table_or_empty(table.get("tool")).get("poetry")).get("dependencies"))
    released = re.search(r"(?m)^Requires-Python:\s*(.+)$", files.get("PKG-INFO", ""))
    config = setup_cfg(files).get("options", "python_requires", fallback="")
    written = _DECLARED.search(files.get("setup.py", ""))
    texts = (
        table_or_empty(table.get("project")).get("requires-python"),
        poetry.get("python"),
        released[1] if released else "",
        config,
        written[1] if written else "",
    )
    return next((found for text in texts if isinstance(text, str) and (found := _specifier(text))), SpecifierSet())


def learn_demand(output: str) -> list[str]:
    """What a failed try asks of the interpreter, as one demand: the versions of a missing requirement are for other Pythons, or a name of
    the standard library is newer."""
    found = [f"{DEMAND}{one.replace(' ', '')}" for one in _IGNORED.findall(output)] if _MISSED.search(output) else []
    minors = [_SINCE[module][name] for name, module in _NAME.findall(output) if name in _SINCE.get(module, {})]
    if minors:
        return [f"{DEMAND}>=3.{max(minors)}"]
    demanded = [one for one in dict.fromkeys(found) if not _own(_specifier(one.removeprefix(DEMAND)))]
    return demanded[-1:]  # of the newest release that was left out


def venv(files: Mapping[str, str], wanted: Sequence[str], folder: str) -> str:
    """The step that makes the virtual environment `folder`. `wanted`: its demands on the interpreter are heard too."""
    specifier = declared_versions(files)
    for one in demands(wanted):
        specifier &= _specifier(one.removeprefix(DEMAND))
    if _own(specifier):
        return f"python3 -m venv {folder}"
    able = [minor for minor in PYTHONS if specifier.contains(f"3.{minor}.{_LATEST}")]
    places = " ".join(f"python3.{minor} {INSIDE}/python3.{minor}/bin/python3.{minor}" for minor in able)
    own = ".".join(map(str, interpreter.find().version[:3]))
    why = f"no Python {specifier} for this project: the sandbox has {own}; install another below /usr, with uv or with pyenv"
    look = (
        f'for one in {places}; do if command -v "$one" >/dev/null; then python=$one; break; fi; done; ' if able else ""
    )
    return f'python=; {look}if [ -n "$python" ]; then "$python" -m venv {folder}; else echo {shlex.quote(why)} >&2; false; fi'


def demands(wanted: Iterable[str]) -> list[str]:
    """Of a list of wanted distributions, what it asks of the interpreter."""
    return [one for one in wanted if re.match(rf"{DEMAND}[<>=!~]", one)]


def _own(specifier: SpecifierSet) -> bool:
    """Whether the sandbox's own Python will do."""
    return specifier.contains(".".join(map(str, interpreter.find().version[:3])), prereleases=True)


def _specifier(text: str) -> SpecifierSet:
    """Poetry's `^3.12` and `~3.12` among them; of alternatives the first; empty where it is no specifier."""
    first = text.split("||")[0].strip()
    if len(first) > LONGEST:
        return SpecifierSet()
    plain = _CARET.sub(_plain, first) if "^" in first or re.match(r"~\s*\d", first) else first
    plain = f"=={plain}" if re.fullmatch(r"\d+(\.\d+)*(\.\*)?", plain) else plain
    try:
        return SpecifierSet(plain)
    except InvalidSpecifier:
        return SpecifierSet()


def _plain(found: re.Match[str]) -> str:
    sign, major, minor = found[1], int(found[2]), int(found[3] or 0)
    upper = f"{major + 1}" if sign == "^" or found[3] is None else f"{major}.{minor + 1}"
    return f">={major}.{minor},<{upper}"

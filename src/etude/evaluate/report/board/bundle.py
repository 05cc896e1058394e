"""The board's modules as one script, for a stand-alone page: a browser loads no modules from next to a file.

Each module becomes a function that returns what it exports, in the order in which they need each other; the last one, the
page's own, stays open. The modules keep to a few forms of `import` and `export`, all on one line; another form is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

IMPORT = re.compile(r'^import \{ (\w+(?:, \w+)*) \} from "\./(\w+)\.js";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|const|class) (\w+)", re.MULTILINE)
EXPORTED = re.compile(r"^export \{ (\w+(?:, \w+)*) \};$", re.MULTILINE)
OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


class Unbundled(ValueError):
    """A module of a form that can't become part of one script."""


def bundle(modules: Mapping[str, str], entry: str) -> str:
    """`modules`: text by name (`dom.js`); `entry` is run last. Raises Unbundled, KeyError for a module that is not there."""
    parts = [_module(name, modules[name], last=name == entry) for name in _ordered(modules, entry)]
    script = "".join(parts)
    if "</script" in script.lower() or "<!--" in script:
        raise Unbundled("a module holds what ends or hides a script in a page: </script or <!--")
    return script


def _ordered(modules: Mapping[str, str], entry: str) -> list[str]:
    """Needed ones first."""
    done: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise Unbundled(f"modules need each other in a circle: {' > '.join([*path, name])}")
        if name not in done:
            for _, needed in IMPORT.findall(modules[name]):
                visit(f"{needed}.js", (*path, name))
            done.append(name)

    visit(entry, ())
    return done


def _module(name: str, text: str, *, last: bool) -> str:
    names = [*EXPORT.findall(text), *(n for found in EXPORTED.findall(text) for n in found.split(", "))]
    text = IMPORT.sub(lambda found: f"const {{ {found[1]} }} = ${found[2]};", text)
    text = EXPORTED.sub("", text)
    text = EXPORT.sub(lambda found: found[0].removeprefix("export "), text)
    if other := OTHER.search(text):
        raise Unbundled(f"{name}: {other[0]!r} is an import or export of another form")
    return (
        text
        if last
        else f"const ${name.removesuffix('.js')} = (() => {{\n{text}return {{ {', '.join(names)} }};\n}})();\n"
    )

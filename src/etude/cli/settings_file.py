"""The settings of a verb with many options: read from a TOML file and from KEY=VALUE words, and written as a commented TOML file.

Promise: what `format_settings` writes, `read_settings` reads back as the same values. An error names the file with its line, or the word.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from etude.core import bounded_toml
from etude.core.spelling import similar

WIDTH = 118
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def key_of(parameter: Any) -> str:
    """The key of a parameter: its long option with _ for -, or the name of an argument."""
    longest: str = max(parameter.opts, key=len)
    return longest.lstrip("-").replace("-", "_")


def read_settings(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """By key the values of a file. `settings`: the verb's parameters by key. Raises BadParameter."""
    try:
        text = path.read_text(encoding="utf-8")
        found = bounded_toml.loads(text)
    except OSError as error:
        raise typer.BadParameter(f"--config {path} can't be read: {error.strerror}; name a TOML file") from None
    except ValueError as error:
        raise typer.BadParameter(f"--config {path} is no TOML: {error}") from None
    for key, value in found.items():
        check(f"{path}{_line(text, key)}", key, value, settings)
    return found


def read_word(word: str, settings: Mapping[str, Any]) -> tuple[str, Any]:
    """Key and value of a word KEY=VALUE. The value may be written as in TOML; a text needs no quotes. Raises BadParameter."""
    key, equals, text = word.partition("=")
    key = key.strip()
    if not equals:
        raise typer.BadParameter(f"--set {word}: give KEY=VALUE")
    value = _value(text.strip(), settings.get(key))
    check(f"--set {word}", key, value, settings)
    return key, value


def check(place: str, key: str, value: Any, settings: Mapping[str, Any]) -> None:
    """Raises BadParameter for an unknown key, and for a value of another type than the setting's."""
    if key not in settings:
        near = similar(key, settings)
        hint = f"did you mean {near[0]}?" if near else "--print-config lists the settings"
        raise typer.BadParameter(f"{place}: there is no setting {key!r}; {hint}")
    parameter = settings[key]
    wanted = _type(parameter)
    if not _has_type(value, parameter):
        kind = f"a list of {_NAMES[wanted]}" if is_list(parameter) else _NAMES[wanted]
        raise typer.BadParameter(f"{place}: {key} = {_shown(value)} must be {kind}")


def _has_type(value: Any, parameter: Any) -> bool:
    wanted = _type(parameter)
    if is_list(parameter):
        return isinstance(value, list) and all(_fits(one, wanted) for one in value)
    return _fits(value, wanted)


def is_list(parameter: Any) -> bool:
    return bool(parameter.multiple) or parameter.nargs != 1


def format_settings(title: str, values: Mapping[str, Any], about: Mapping[str, str]) -> str:
    """A TOML file with every setting, its description and its value. A setting without a value is a comment."""
    blocks = [f"# {title}"]
    for key, words in about.items():
        value = _plain(values.get(key))
        line = f"# {key} =" if value is None else f"{key} = {_toml(value)}"
        blocks.append("\n".join([*(f"# {text}" for text in textwrap.wrap(words, WIDTH)), line]))
    return "\n\n".join(blocks)


_NAMES: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _type(parameter: Any) -> type:
    """The TOML type of a setting, or of an element of it."""
    annotation = parameter.type_descriptor.annotation
    if get_origin(annotation) is list:
        annotation = get_args(annotation)[0]
    return annotation if annotation in (bool, int, float) else str


def _fits(value: Any, wanted: type) -> bool:
    if isinstance(value, bool) or wanted is bool:
        return isinstance(value, bool) and wanted is bool
    return isinstance(value, int | float) if wanted is float else isinstance(value, wanted)


def _value(text: str, parameter: Any) -> Any:
    """The value that a text spells: as in TOML, else the text itself."""
    listed = parameter is not None and is_list(parameter)
    if (
        parameter is not None
        and _type(parameter) is str
        and not text.startswith(('"', "'", "[") if listed else ('"', "'"))
    ):
        return [text] if listed else text
    try:
        value = bounded_toml.loads(f"value = {text}")["value"]
    except ValueError:
        value = text
    return [value] if listed and not isinstance(value, list) else value


def _line(text: str, key: str) -> str:
    """`:3`, where the key is in the third line; empty where it is written in another way."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*[=.]|\s*\[+\s*{re.escape(key)}\b", line):
            return f":{number}"
    return ""


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    """A parameter's value as TOML has it; None for one that is not set."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return str(value) if isinstance(value, Path) else value


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    """A basic string. Raises BadParameter for a text that is not Unicode, which TOML can't hold."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise typer.BadParameter(f"{text!r} is no Unicode text, so no settings file can hold it; give it as an option")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'


def keys(parameters: Iterable[Any], left_out: Iterable[str]) -> dict[str, Any]:
    """The parameters that are settings, by key."""
    named = {key_of(parameter): parameter for parameter in parameters}
    return {key: parameter for key, parameter in named.items() if key not in left_out}

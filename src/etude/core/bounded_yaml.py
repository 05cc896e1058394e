"""YAML that somebody else may have written, read within bounds.

A file of 400 bytes can name one list ten times in a list, that list ten times in the next, and so on: aliases make billions of values of it. The
number of values is counted before any is made, and files beyond the bounds are refused.
"""

from __future__ import annotations

from typing import Any

MOST_CHARS = 256 << 10  # far above any compose file, task or front matter; the reader takes about a second for it
MOST_VALUES = 100_000  # with what aliases repeat
MOST_NUMBER_CHARS = 1000  # the time for a number grows with the square of its length
_PLAIN_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")


class YamlRefused(ValueError):
    """No YAML of plain values, or more of it than is read; says what is wrong."""


def loads(text: str) -> Any:
    """The document's plain values (tables, lists, texts, numbers, dates). Raises YamlRefused."""
    import yaml

    if len(text) > MOST_CHARS:
        raise YamlRefused(f"it has {len(text):,} characters, more than the {MOST_CHARS:,} that are read")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    except YamlRefused:
        raise
    except RecursionError as error:
        raise YamlRefused("it is nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise YamlRefused(" ".join(str(error).split())[:300] or type(error).__name__) from error


def _count(node: Any, counted: dict[int, int]) -> int:
    """How many values a node and all below it are, as often as they are named. Raises YamlRefused, RecursionError."""
    if id(node) in counted:
        if not counted[id(node)]:
            raise YamlRefused(f"line {node.start_mark.line + 1} holds an alias of itself")
        return counted[id(node)]
    counted[id(node)] = 0  # not known yet
    found = 1
    if isinstance(node.value, str):
        if node.tag in _PLAIN_NUMBERS and len(node.value) > MOST_NUMBER_CHARS:
            raise YamlRefused(
                f"line {node.start_mark.line + 1} has a number of {len(node.value):,} characters, more than the {MOST_NUMBER_CHARS:,} that are read"
            )
    else:
        for each in node.value:
            for part in each if isinstance(each, tuple) else (each,):
                found += _count(part, counted)
    if found > MOST_VALUES:
        raise YamlRefused(f"its aliases make more than {MOST_VALUES:,} values of it")
    counted[id(node)] = found
    return found

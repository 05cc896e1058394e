"""Writes docs/recipe.md from the settings' own descriptions: `python -m etude.pipeline.recipe.document`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from etude.pipeline.recipe.recipe import Recipe, block, named_blocks

OPENING = """# The recipe

A run is described by TOML files. `etude run a.toml b.toml --set rl.group_size=4` composes them left to right; a later
value wins. Every key has a default, so a recipe names only what it changes. An unknown key or a wrong type is refused with
the file, the key and the closest key that exists. `--dry-run` prints the resolved recipe, and every run directory
holds it as `recipe.toml`. `model.init` and `run.sft_checkpoint` take a directory or a name on a model hub (`docs/hub.md`).

This page is generated from the settings: `python -m etude.pipeline.recipe.document`.
"""


def document() -> str:
    """The whole page."""
    parts = [OPENING]
    defaults = Recipe()
    for name, found in Recipe.model_fields.items():
        model = block(found.annotation)
        about = (model.__doc__ or "").strip().replace("\n", " ")
        parts += [f"## [{name}]\n", f"{re.sub(' +', ' ', about)}\n"]
        parts += ["| key | type | default | meaning |", "|---|---|---|---|", *_rows(getattr(defaults, name), ""), ""]
    return "\n".join(parts)


def _rows(settings: BaseModel | type[BaseModel], prefix: str) -> list[str]:
    """A row for each key: of a block with its values, or of a class of which a recipe names as many as it likes."""
    rows: list[str] = []
    model = settings if isinstance(settings, type) else type(settings)
    for name, found in model.model_fields.items():
        value = _default(found) if isinstance(settings, type) else getattr(settings, name)
        if (many := named_blocks(found.annotation)) is not None:
            rows += [
                f"| `{prefix}{name}` | tables | none | {found.description} |",
                *_rows(many, f"{prefix}{name}.<name>."),
            ]
            continue
        inner = block(found.annotation)
        if inner is not None:
            rows += [] if value is not None else [f"| `{prefix}{name}` | table | absent | {found.description} |"]
            rows += _rows(value if value is not None else inner(), f"{prefix}{name}.")
            continue
        shown = "" if value in (None, "") else f"`{_plain(value)}`"
        if found.default_factory and isinstance(value, int | float):
            shown = "by the machine"
        cells = (f"`{prefix}{name}`", _type(found), shown, found.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def _default(found: FieldInfo) -> Any:
    return None if found.is_required() else found.get_default(call_default_factory=True)


def _type(found: FieldInfo) -> str:
    text = found.annotation.__name__ if isinstance(found.annotation, type) else str(found.annotation)
    if getattr(found.annotation, "__args__", None):
        text = str(found.annotation)
    text = re.sub(r"\b(typing|pathlib)\.(_local\.)?", "", text)  # Python 3.13 says pathlib._local.Path
    text = re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace(", ", " or "), text).replace(
        "| None", "or nothing"
    )
    text = re.sub(r"^Union\[(.*)\]$", lambda match: match[1].replace(", ", " or "), text)
    return " ".join([text, *_bounds(found)])


def _bounds(found: FieldInfo) -> list[str]:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    return [
        f"{sign} {getattr(rule, name)}"
        for rule in found.metadata
        for name, sign in signs.items()
        if getattr(rule, name, None) is not None
    ]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_plain(v)}" for k, v in value.items()) + " }" if value else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_plain(v) for v in value) + "]"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def main() -> None:
    """Write the page to the path given, by default docs/recipe.md of this checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path, nargs="?", default=Path(__file__).parents[4] / "docs" / "recipe.md")
    target = parser.parse_args().target
    target.write_text(document())
    print(f"wrote {target}")


if __name__ == "__main__":
    main()

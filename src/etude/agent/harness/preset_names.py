"""The names of the presets, from which recipes, settings files and command lines choose. Few imports, so that `--help` is quick."""

from __future__ import annotations

from typing import Literal, get_args

from etude.core.plugins import is_import_path

PresetName = Literal["nano", "full", "search_replace", "search_replace_v2", "patch", "minimal"]
PRESET_NAMES: tuple[PresetName, ...] = get_args(PresetName)


def known_preset(name: str) -> str:
    """The name of a built-in preset, or an import path. Raises ValueError."""
    if name not in PRESET_NAMES and not is_import_path(name):
        raise ValueError(f"{name!r} is none of {', '.join(PRESET_NAMES)}, and no import path (module:name)")
    return name

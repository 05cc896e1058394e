"""The names of the presets, from which recipes, settings files and command lines choose. No other import, so that `--help` is quick."""

from __future__ import annotations

from typing import Literal

PresetName = Literal["nano", "full", "search_replace", "search_replace_v2", "patch", "minimal"]

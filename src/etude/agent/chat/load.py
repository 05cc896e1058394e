"""The renderer of a checkpoint directory: ours for the laptop model, the `renderers` package's for the families it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.agent.chat import families
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.files import read_bounded, read_json
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.renderer import Effort, Renderer
from etude.agent.chat.special import CHAT_TOKENS

NANO = "nano"
MAX_TEMPLATE_BYTES = 4 << 20  # the largest of published models have 20 KB


def load_renderer(
    folder: Path,
    *,
    family: str | None = None,
    effort: Effort | None = None,
) -> Renderer:
    """Chosen by the directory's config.json, chat template and tokenizer, or by name. Raises FileNotFoundError without a
    tokenizer.json, UnknownFamily if the format is none of ours or the tokenizer lacks its markers, ValueError if the tokenizer
    does not fit the laptop format."""
    tokenizer = HubTokenizer.load(folder)
    if family is None:
        family = family_of(folder, tokenizer)
    if family == NANO:
        return NanoRenderer.load(folder)
    chosen = families.by_name(family)
    families.require_markers(chosen, tokenizer.words())
    return FamilyRenderer(chosen, tokenizer, effort=effort)


def family_of(folder: Path, tokenizer: HubTokenizer) -> str:
    """The name of a directory's chat format; raises UnknownFamily."""
    vocabulary = tokenizer.words()
    if all(token in vocabulary for token in CHAT_TOKENS):
        return NANO
    model_type = str(read_config(folder).get("model_type", ""))
    return families.detect(model_type, read_template(folder), vocabulary).name


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, or nothing where there is none; raises ValueError if it is no JSON object."""
    return read_json(folder / "config.json")


def read_template(folder: Path) -> str | None:
    """The chat template: chat_template.jinja, or the one in tokenizer_config.json (of several, the one for tools).
    Raises ValueError for a damaged file."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_bounded(file, MAX_TEMPLATE_BYTES)
    template = read_json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        rows = [row for row in template if isinstance(row, dict) and isinstance(row.get("name"), str)]
        named = {row["name"]: row.get("template") for row in rows}
        template = named.get("tool_use") or named.get("default")
    if template is not None and not isinstance(template, str):
        raise ValueError(
            f"{folder / 'tokenizer_config.json'}: its chat_template is a {type(template).__name__}, not a text"
        )
    return template

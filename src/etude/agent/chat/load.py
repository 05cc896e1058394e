"""The renderer of a checkpoint directory: ours for the laptop model, the `renderers` package's for the families it knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etude.agent.chat import families
from etude.agent.chat.chat_family import TEMPLATE, ChatFamily
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.files import read_json, read_template
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.chat.renderer import Effort, Renderer
from etude.agent.chat.special import CHAT_TOKENS

NANO = "nano"


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
    chosen = _of_template(folder, tokenizer) if family == TEMPLATE else families.by_name(family)
    families.require_markers(chosen, tokenizer.words())
    return FamilyRenderer(chosen, tokenizer, effort=effort)


def family_of(folder: Path, tokenizer: HubTokenizer) -> str:
    """The name of a directory's chat format; raises UnknownFamily."""
    vocabulary = tokenizer.words()
    if all(token in vocabulary for token in CHAT_TOKENS):
        return NANO
    model_type = str(read_config(folder).get("model_type", ""))
    template = read_template(folder)
    try:
        return families.detect(model_type, template, vocabulary).name
    except families.UnknownFamily as error:
        if template is None:
            raise
        return _of_template(folder, tokenizer, f"{error}. ").name


def _of_template(folder: Path, tokenizer: HubTokenizer, unknown: str = "") -> ChatFamily:
    """Imported here: the package of renderers costs half a second of start-up."""
    from etude.agent.chat.template_format import NoPlainTemplate, template_family

    try:
        return template_family(folder, tokenizer)
    except NoPlainTemplate as error:
        raise families.UnknownFamily(f"{unknown}Its template alone does not say how to write it: {error}") from error


def read_config(folder: Path) -> dict[str, Any]:
    """config.json, or nothing where there is none; raises ValueError if it is no JSON object."""
    return read_json(folder / "config.json")

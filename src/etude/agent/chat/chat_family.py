"""What describes one chat format: its markers, how its calls are written, and how its template differs from others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from etude.agent.chat.renderer import Effort

# How a format writes a call's arguments: one JSON object, or one untyped text each.
Arguments = Literal["json", "parameter", "arg_value", "arg_value:opensource", "arg_text", "invoke"]
# All turns, those with one call and no text, or none. "declared": it declares tools and writes no calls.
TemplateCalls = Literal["all", "one", "declared", "none"]
# Where its template takes tools from: its own field, one JSON text of the system message, or a list of JSON texts in `xml_tools`.
TemplateTools = Literal["tools", "system", "xml_tools"]

TEMPLATE = "template"  # the name of the format of a template that is no family's


@dataclass(frozen=True)
class TemplateWords:
    """What a chat template writes around the texts of a conversation (`template_format.py`)."""

    first: str  # in front of the first text of the user, where there is no system prompt
    system: (
        tuple[str, str] | None
    )  # in front of the system prompt, and from it to the first text of the user; None: it has no place for one
    asked: str  # from a text of the user to the assistant's
    answered: str  # from a text of the assistant to the user's; begins with `end`
    end: str  # the token that ends a turn
    trims: tuple[str, ...]  # roles around whose texts blanks are left out
    stops: tuple[str, ...] = ()  # further tokens that end a turn


@dataclass(frozen=True)
class ChatFamily:
    """One chat format."""

    name: str
    model_types: frozenset[str]
    markers: tuple[str, ...]  # tokens the format can't do without
    roles: tuple[str, ...]  # markers that open a turn: they have no place inside a sampled one
    arguments: Arguments = "json"
    shows: tuple[str, ...] = ()  # what its template contains
    hides: tuple[str, ...] = ()  # what its template does not contain
    package: str = ""  # the name of its renderer in the `renderers` package, if it is another
    thinks: bool = True  # whether turns have a place for thinking
    keeps: bool = False  # whether its own template, by default, still shows thinking after a further request
    keep: tuple[str, bool] | None = None  # the field that tells its template to, and the value that does
    declares: str = (
        ""  # how a call is written, for the families whose template leaves it to the caller to describe tools
    )
    options: Mapping[str, Any] = field(default_factory=dict)  # of the package's renderer
    effort: tuple[str, Mapping[Effort, str]] | None = None  # the field that says how hard to think, and its words
    call_ids: bool = False  # the format writes ids of calls: functions.NAME:NUMBER
    first_system: bool = False  # a system message is allowed at the beginning only
    named: bool = False  # the format writes the tool's name in front of a result
    opener: str = ""  # the marker in front of the first call
    think_end: str = "</think>"
    text_end: str = ""  # what closes a turn without calls, and one with calls
    call_end: str = ""
    call_begins: str = ""  # how a call begins on a line of its own, where the tokenizer may have no marker for it
    takes_tools: TemplateTools = "tools"
    template_calls: TemplateCalls = "all"  # which turns with calls the published template can write
    differs: str = ""  # in what the published template differs by design
    broken: tuple[
        tuple[str, str], ...
    ] = ()  # what a published template contains if it is broken, and what it does wrong
    revision: int = 0  # counts the changes of a format that this package writes itself
    words: TemplateWords | None = None  # of a checkpoint whose template is no family's

    @property
    def always_keeps(self) -> bool:
        """Whether no rendering drops thinking."""
        return self.keeps and self.keep is None

    def fault_of(self, template: str) -> str | None:
        """What is wrong with a published template that is known to be broken; None for any other."""
        return next((fault for mark, fault in self.broken if mark in template), None)

    def fits(self, template: str) -> bool:
        """Whether a chat template looks like this family's."""
        return all(mark in template for mark in self.shows) and not any(mark in template for mark in self.hides)

    def missing(self, vocabulary: Collection[str]) -> list[str]:
        """Markers that a vocabulary lacks."""
        return [marker for marker in self.markers if marker not in vocabulary]

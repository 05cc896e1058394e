"""The format of a chat template that is no family's: what it writes around the texts of a conversation, found by rendering a few.

It is taken where a template has no tools and an assistant's turn ends with a token of the tokenizer. Tools are then written in the Hermes form, as
for families whose templates have none. A template that has tools or thinking is left to a family: with other words for them the model would not do
what it was trained to do.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from renderers import ParsedToolCall, RenderedTokens

from etude.agent.chat.chat_family import TEMPLATE, ChatFamily, TemplateWords
from etude.agent.chat.files import read_json, read_template
from etude.agent.chat.hermes import hermes_calls, with_declared, written_result, written_turn
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.template import ChatTemplate, TemplateError
from etude.agent.chat.text_format import Row, TextFormat

# Texts that no template holds; of letters alone, since some templates trim or escape.
SYSTEM, ASKED, ANSWERED = "Zqsystemqz", tuple(f"Zquser{x}qz" for x in "abc"), tuple(f"Zqanswer{x}qz" for x in "ab")
ROLES = ("system", "user", "assistant")
OWN_FORMS = ("tool", "think", "reason")  # a template that has one of these words has a form for tools or thinking
DATE = "2025-01-01"


class NoPlainTemplate(ValueError):
    """A template that is not of the kind that this module reads; says why."""


def template_family(folder: Path, tokenizer: HubTokenizer) -> ChatFamily:
    """The format of a directory's template. Raises NoPlainTemplate, or ValueError for a damaged file."""
    source = read_template(folder)
    if source is None:
        raise NoPlainTemplate("there is no chat template")
    if own := [word for word in OWN_FORMS if word in source.lower()]:
        raise NoPlainTemplate(f"it has a form of its own for what it calls {own[0]!r}")
    try:
        template = ChatTemplate.load(folder, DATE)
        assert template is not None  # its source is there
        words = _words(template, tokenizer, _end_of_text(folder))
    except TemplateError as error:
        raise NoPlainTemplate(str(error)) from error
    written = "".join([words.first, *(words.system or ()), words.asked, words.answered])
    roles = tuple(word for word in tokenizer.added if word in written and word not in (words.end, *words.stops))
    return ChatFamily(
        TEMPLATE, frozenset(), markers=(words.end, *roles), roles=roles, thinks=False, first_system=True,
        text_end=words.end, call_end=words.end, call_begins="<tool_call>", template_calls="none",
        differs="the template has no tools, which are written in the Hermes form", words=words,
        revision=int(hashlib.sha256(repr(astuple(words)).encode()).hexdigest()[:8], 16),
    )  # fmt: skip


def _end_of_text(folder: Path) -> str:
    """As tokenizer_config.json names it; empty if it does not."""
    named = read_json(folder / "tokenizer_config.json").get("eos_token")
    named = named.get("content") if isinstance(named, dict) else named
    return named if isinstance(named, str) else ""


def _words(template: ChatTemplate, tokenizer: HubTokenizer, end_of_text: str) -> TemplateWords:
    """What the template writes around texts. Raises NoPlainTemplate and TemplateError."""
    turns = _conversation()
    first, *between, last = _split(_text(template, turns), [ASKED[0], ANSWERED[0], ASKED[1], ANSWERED[1], ASKED[2]])
    asked, answered = between[0], between[1]
    if between != [asked, answered, asked, answered] or last != asked:
        raise NoPlainTemplate("what it writes around a turn depends on the place of the turn")
    end = max((word for word in tokenizer.added if answered.startswith(word)), key=len, default="")
    if not end:
        raise NoPlainTemplate(f"an assistant's turn is followed by {answered[:20]!r}, which begins with no added token")
    system = _system(template, turns, (asked, answered))
    trims = tuple(role for role in ROLES if (role != "system" or system) and _trims(template, role))
    stops = (end_of_text,) if end_of_text in tokenizer.added and end_of_text != end else ()
    return TemplateWords(first, system, asked, answered, end, trims, stops)


def _system(template: ChatTemplate, turns: list[Row], around: tuple[str, str]) -> tuple[str, str] | None:
    """What is before a system prompt, and between it and the first text of the user; None where the template refuses or leaves it out. Raises
    NoPlainTemplate for one that it writes elsewhere."""
    try:
        text = _text(template, [{"role": "system", "content": SYSTEM}, *turns])
    except TemplateError:
        return None
    if SYSTEM not in text:
        return None
    before, behind, *between, last = _split(text, [SYSTEM, ASKED[0], ANSWERED[0], ASKED[1], ANSWERED[1], ASKED[2]])
    if [*between, last] != [*around, *around, around[0]]:
        raise NoPlainTemplate("what it writes around a turn depends on the system prompt")
    return before, behind


def _trims(template: ChatTemplate, role: str) -> bool:
    """Whether blanks around a text of this role are left out."""
    rows = [{"role": "system", "content": SYSTEM}] if role == "system" else []
    rows += _conversation()
    plain = _text(template, rows)
    row = next(row for row in rows if row["role"] == role)
    padded = _text(template, [{**one, "content": f" \n{one['content']}\n "} if one is row else one for one in rows])
    if padded == plain.replace(row["content"], f" \n{row['content']}\n "):
        return False
    if padded == plain:
        return True
    raise NoPlainTemplate(f"it changes blanks around a text of the {role}")


def _conversation() -> list[Row]:
    rows = [[{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
            for said, answer in zip(ASKED, ANSWERED, strict=False)]  # fmt: skip
    return [*(row for pair in rows for row in pair), {"role": "user", "content": ASKED[2]}]


def _text(template: ChatTemplate, rows: Sequence[Row]) -> str:
    return template.text(list(rows), (), generation=True)


def _split(text: str, said: Sequence[str]) -> list[str]:
    """What is around texts that a conversation holds in this order. Raises NoPlainTemplate if one of them is there otherwise than once."""
    for one in said:
        if text.count(one) != 1:
            raise NoPlainTemplate(f"it writes a text of a conversation {text.count(one)} times")
    if [text.index(one) for one in said] != sorted(text.index(one) for one in said):
        raise NoPlainTemplate("it writes a conversation in another order")
    return re.split("|".join(map(re.escape, said)), text)


class TemplateFormat(TextFormat):
    """A whole conversation is one text. Messages between two turns of the assistant are one turn of the user."""

    def __init__(self, words: TemplateWords, tokenizer: HubTokenizer) -> None:
        self.words, self.end, self.stops = words, words.end, words.stops
        super().__init__(tokenizer)

    def render_ids(
        self, messages: Sequence[Row], *, tools: Sequence[Row] | None = None, add_generation_prompt: bool = False
    ) -> list[int]:
        words, rows = self.words, list(messages)
        system = self._trimmed(rows.pop(0)) if rows and rows[0]["role"] == "system" else ""
        system = with_declared(system, tools or ())
        text = f"{words.system[0]}{system}{words.system[1]}" if system and words.system else words.first
        text += f"{system}\n\n" if system and not words.system else ""
        blocks = self._blocks(rows)
        if not blocks or blocks[0][0]["role"] == "assistant":
            blocks.insert(0, [])  # an assistant answers somebody
        for number, block in enumerate(blocks):
            if block and block[0]["role"] == "assistant":
                text += words.asked + self.turn(block[0]) + (words.answered if number + 1 < len(blocks) else words.end)
            else:
                text += self.block(block)
        generation = words.asked if add_generation_prompt else ""
        return self.tokenizer.encode(text + generation)

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: Sequence[int],
        previous_completion_ids: Sequence[int],
        new_messages: Sequence[Row],
        *,
        tools: Sequence[Row] | None = None,
    ) -> RenderedTokens | None:
        held = self._held(previous_prompt_ids, previous_completion_ids, new_messages)
        if held is None:
            return None
        said = self.tokenizer.encode(self.words.answered + self.block(new_messages) + self.words.asked)[1:]
        prompt = min(len(said), len(self.tokenizer.encode(self.words.asked)))
        owners = self._owners(new_messages, len(said) - prompt)
        return RenderedTokens(
            token_ids=[*held, *said],
            message_indices=[-1] * len(held) + owners + [-1] * prompt,
            message_roles=[row["role"] for row in new_messages],
        )

    def joins(self, before: Row, row: Row) -> bool:
        return "assistant" not in (before["role"], row["role"])

    def block(self, rows: Sequence[Row]) -> str:
        return "\n".join(written_result(row) if row["role"] == "tool" else self._trimmed(row) for row in rows)

    def turn(self, row: Row) -> str:
        return written_turn(row, self._trimmed(row))

    def calls(self, ids: list[int]) -> list[ParsedToolCall]:
        return hermes_calls(self.tokenizer, ids)

    def _trimmed(self, row: Row) -> str:
        return row["content"].strip() if row["role"] in self.words.trims else row["content"]

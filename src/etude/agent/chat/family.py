"""A real model family's chat format: the `renderers` package over the checkpoint's own tokenizer.

What this adds to the package: content is inert (`hub_tokenizer.py`), calls come from token ids alone, every breach of the format
is typed (`reading.py`), and a bridge costs what is new: the package is shown the generation prompt in place of the whole history,
which its bridges read for nothing else, so a turn after 200,000 tokens costs what the first one did.

Thinking: within a tool cycle (results of tools, the query for a self-summary) it stays. At a word of the user's most families' own
templates drop it, which no append can do: `bridge` then answers None under `tool_cycle`, and keeps all of it under `all`.
By default it is done as the family was trained; a family without thinking has none to drop, and nothing is rendered twice.
A conversation that is rendered again under `all` (a turn that can't be continued) keeps its thinking where the template has an option for it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Sequence

from etude.agent.chat import reading
from etude.agent.chat.chat_family import ChatFamily
from etude.agent.chat.conversation import one_system, package_messages
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.kimi_schema import typed_tools
from etude.agent.chat.live import LiveTurn
from etude.agent.chat.live_families import live_turns
from etude.agent.chat.package_renderer import ThinkingRetention, package_renderer
from etude.agent.chat.problem import Problem
from etude.agent.chat.renderer import Bridge, Effort, RenderError, Thinking, TokenKinds
from etude.core.trace.message import Message

# What the package raises on messages it can't render and, reading what a model wrote, on what it did not foresee.
_REFUSED = (AssertionError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)
# Opening tags without their closing ones that a turn may have before it is taken for one that repeats itself: reading this many
# takes milliseconds.
RUNAWAY = 100
_ASKED = [{"role": "user", "content": "x"}]


class FamilyRenderer:
    """See `Renderer`. `thinking_retention` is a choice of whole runs: it changes what later turns see."""

    pieces = None

    def __init__(
        self,
        family: ChatFamily,
        tokenizer: HubTokenizer,
        *,
        thinking_retention: ThinkingRetention | None = None,
        effort: Effort | None = None,
    ) -> None:
        thinking_retention = thinking_retention or ("all" if family.keeps or not family.thinks else "tool_cycle")
        self.name = family.name
        self.family = family
        self._tokenizer = tokenizer
        self._retention: ThinkingRetention = thinking_retention
        self._effort: Effort | None = effort if family.effort else None
        self._package = package_renderer(family, tokenizer, thinking_retention, self._effort)
        self._keeping = package_renderer(family, tokenizer, "all", self._effort)
        self.stop_ids = tuple(self._package.get_stop_token_ids())
        asked = self._package.render_ids(_ASKED)
        self._generation = self._package.render_ids(_ASKED, add_generation_prompt=True)[len(asked) :]
        self._roles = frozenset(tokenizer.convert_tokens_to_ids(list(family.roles)))
        self._opener = tokenizer.convert_tokens_to_ids(family.opener) if family.opener else None
        self._live = live_turns(family, tokenizer, self._generation, self.stop_ids)
        self.fingerprint = self._hash()

    def at_effort(self, effort: Effort | None) -> FamilyRenderer:
        if self.family.effort is None or effort == self._effort:
            return self
        return FamilyRenderer(self.family, self._tokenizer, thinking_retention=self._retention, effort=effort)

    def keeping(self, thinking: Thinking) -> FamilyRenderer:
        retention: ThinkingRetention = "all" if thinking == "all" else "tool_cycle"
        if thinking == "family" or retention == self._retention or not self.family.thinks or self.family.always_keeps:
            return self
        return FamilyRenderer(self.family, self._tokenizer, thinking_retention=retention, effort=self._effort)

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, generation: bool = True
    ) -> list[int]:
        rows, declared = self._rows(messages), self._tools(tools)
        if self.family.declares:
            from etude.agent.chat.deepseek import with_tools

            rows, declared = with_tools(rows, declared or (), self.family.declares), None
        try:
            return self._package.render_ids(rows, tools=declared, add_generation_prompt=generation)
        except _REFUSED as error:
            raise RenderError(f"the {self.name} chat format can't hold this conversation: {error!r}") from error

    def bridge(
        self, turn: Message, sampled: Sequence[int], new: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> Bridge | None:
        within = not any(message.role == "user" and not message.summary for message in new)
        package = self._keeping if within else self._package
        rows = self._rows(new, asked=turn)
        held = [*self._generation, *sampled]
        try:
            joined = package.bridge_to_next_turn(self._generation, list(sampled), rows, tools=self._tools(tools))
        except _REFUSED:
            return None  # rendering the whole from scratch shows whether the turn or the messages are to blame
        if joined is None or joined.token_ids[: len(held)] != held:
            return None
        return Bridge(joined.token_ids[len(held) :], joined.tokens_per_message())

    def answer(self, message: Message, *, first_call: int = 0) -> list[int]:
        if message.role != "assistant":
            raise RenderError(f"a policy answers as the assistant, not as {message.role!r}")
        row = self._rows([message], first_call=first_call)[0]
        spoken = getattr(self._package, "spoken", None)  # the formats that this package writes itself
        ids = self._answered(row) if spoken is None else spoken(row, _ASKED)
        return self._ended(ids, bool(message.calls))

    def parse(self, ids: Sequence[int], *, tools: Sequence[dict[str, Any]] = (), first_call: int = 0) -> Message:
        body = list(ids)
        closed = bool(body) and body[-1] in self.stop_ids
        body = body[:-1] if closed else body
        for token in body:
            if not 0 <= token < self._tokenizer.size or token in self._roles or token in self.stop_ids:
                if not (self.name == "gpt-oss" and token in self.stop_ids):  # a demonstration may hold several calls
                    return self._strayed(body, token)
        try:
            parsed = self._parsed(list(ids), tools)
            return reading.message_of(
                parsed, body, family=self.family, tokenizer=self._tokenizer, closed=closed, tools=tools,
                first_call=first_call,
            )  # fmt: skip
        except _REFUSED as error:
            problem = Problem.MALFORMED.say(f"it could not be read ({type(error).__name__})")
            return Message("assistant", self._tokenizer.decode(body), problem=problem)

    def listen(self) -> LiveTurn:
        return self._live()

    def count(self, ids: Sequence[int]) -> TokenKinds:
        body = [token for token in ids if 0 <= token < self._tokenizer.size]
        try:
            parsed = self._parsed(body, ())
        except _REFUSED:
            return TokenKinds(message=len(ids))  # unreadable as a whole: `parse` says so
        spans = [call.token_span for call in parsed.tool_calls if call.token_span is not None]
        if not spans:
            thinking = len(ids) if parsed.reasoning_complete is False else self._thinking(body, parsed)
            return TokenKinds(thinking=thinking, message=len(ids) - thinking)
        first = spans[0][0] - (spans[0][0] > 0 and body[spans[0][0] - 1] == self._opener)
        places = {call.token_span for call in parsed.tool_calls if call.name == "done" and call.token_span}
        done = sum(stop - start for start, stop in places)
        return TokenKinds(thinking=first, calling=len(ids) - first - done, message=done)

    def vocabulary(self) -> list[str]:
        return self._tokenizer.vocabulary()

    def _rows(
        self, messages: Sequence[Message], *, first_call: int = 0, asked: Message | None = None
    ) -> list[dict[str, Any]]:
        family = self.family
        rows = package_messages(
            messages, call_ids=family.call_ids, thinks=family.thinks, named=family.named, first_call=first_call,
            asked=asked,
        )  # fmt: skip
        rows = one_system(rows, first=asked is None) if family.first_system else rows
        return self._tokenizer.guard(rows)

    def _tools(self, tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
        declared = typed_tools(list(tools)) if self.name == "kimi-k2.5" else list(tools)
        return self._tokenizer.guard(declared) or None

    def _parsed(self, ids: list[int], tools: Sequence[dict[str, Any]]) -> Any:
        """What the package reads. Its search for a parameter's end costs the square of how many have none: a turn that repeats
        an opening tag without end is refused before it (ValueError)."""
        if self.family.arguments in ("parameter", "invoke") and len(ids) > RUNAWAY:
            text = self._tokenizer.decode(ids)
            if text.count("<parameter") + text.count("<invoke") > text.count("</parameter>") * 2 + RUNAWAY:
                raise ValueError("parameters without end")
        return self._package.parse_response(ids, tools=list(tools) or None, prompt_ids=self._generation)

    def _answered(self, row: dict[str, Any]) -> list[int]:
        """The rendered turn behind the generation prompt."""
        prompt = self._package.render_ids(_ASKED, add_generation_prompt=True)
        rendered = self._package.render_ids([*_ASKED, row])
        common = next((i for i, (a, b) in enumerate(zip(prompt, rendered, strict=False)) if a != b), len(prompt))
        if common == len(prompt):
            return self._thought(row, rendered[common:])
        opening = self._tokenizer.decode(prompt[common:])
        for stop in range(common + 1, min(common + 4, len(rendered)) + 1):  # text was joined across the border
            text = self._tokenizer.decode(rendered[common:stop])
            if text.startswith(opening):
                return self._tokenizer.encode(text[len(opening) :]) + rendered[stop:]
        return self._thought(row, rendered[common:])

    def _thought(self, row: dict[str, Any], ids: list[int]) -> list[int]:
        """With the thinking that the prompt opened, where the template leaves it out of what it takes for history."""
        if not self._tokenizer.decode(self._generation).rstrip().endswith("<think>"):
            return ids
        end = self.family.think_end
        thought = self._tokenizer.encode(row.get("reasoning_content", ""))  # guarded with the row
        marker = self._tokenizer.convert_tokens_to_ids(end)
        said = self._tokenizer.decode(ids)
        if said.lstrip().startswith(end):
            return thought + ids
        written = marker in ids if marker is not None else said.startswith(self._tokenizer.decode(thought) + end)
        return ids if written else [*thought, *self._tokenizer.encode(f"\n{end}\n\n"), *ids]

    def _ended(self, ids: list[int], called: bool) -> list[int]:
        """Up to its end marker; the formats whose next role ends a turn get the marker that would follow."""
        if self.name == "gpt-oss":
            return ids
        end = next((i for i, token in enumerate(ids) if token in self.stop_ids), None)
        if end is not None:
            return ids[: end + 1]
        return [*ids, self._tokenizer.convert_tokens_to_ids(self.family.call_end if called else self.family.text_end)]

    def _strayed(self, body: list[int], token: int) -> Message:
        known = [t for t in body if 0 <= t < self._tokenizer.size]
        named = self._tokenizer.decode([token]) if 0 <= token < self._tokenizer.size else f"the id {token}"
        problem = Problem.STRAY.say(f"{named} has no place inside a turn")
        return Message("assistant", self._tokenizer.decode(known), problem=problem)

    def _thinking(self, body: list[int], parsed: Any) -> int:
        """Tokens up to the end of the thinking. The end may be spelt in several tokens: the shortest beginning that holds it."""
        if parsed.reasoning_content is None:
            return 0
        low, high = 0, len(body)
        while low < high:
            middle = (low + high) // 2
            if self.family.think_end in self._tokenizer.decode(body[: middle + 1]):
                high = middle
            else:
                low = middle + 1
        return min(low + 1, len(body))

    def _hash(self) -> str:
        import renderers

        facts = [self.name, renderers.__version__, self._retention, self._effort, self._tokenizer.digest]
        facts += [self.family.revision] if self.family.revision else []
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

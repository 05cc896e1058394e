"""The laptop model's chat format: one special token per role and per tool, `<|end|>` after every message.

    <|user|> text <|end|> <|assistant|> optional text, calls <|end|> <|tool|> result <|end|> <|assistant|> ...

A call is `<|edit|>` argument `<|arg|>` argument ..., positional. Text is always encoded with the special tokens switched
off, so a file or a user that contains the characters `<|assistant|>` can never forge a role. Parsing looks at ids only.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Sequence

from tokenizers import Tokenizer

from etude.agent.chat import special
from etude.agent.chat.live import LiveTurn, Part
from etude.agent.chat.renderer import Bridge, Effort, RenderError, Thinking, TokenKinds
from etude.agent.chat.tokenizer_file import read_tokenizer
from etude.core.trace.message import CUT_OFF, Message, ToolCall

_ROLE_TOKEN = {"user": special.USER, "assistant": special.ASSISTANT, "tool": special.TOOL, "system": special.SYSTEM}

# Must survive encoding and decoding unchanged, else edits copy wrong text: tabs, indents, runs of blanks, non-Latin text.
_PROBE = "def f(x):\n\tif x  ==  1:\n        return 'é→😀'\n\n"


class NanoRenderer:
    """See `Renderer`. `thinking` has no place in this format; tools are those of `special.TOOL_PARAMETERS`."""

    name = "nano-1"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = Tokenizer.from_str(serialized := tokenizer.to_str())  # a copy: the setting below is ours
        self._tokenizer.encode_special_tokens = True  # special-token text in content is plain text
        self._ids = {token: _id_of(tokenizer, token) for token in special.CHAT_TOKENS}
        self._tool_of = {self._ids[special.tool_token(name)]: name for name in special.TOOL_PARAMETERS}
        # Every special token parts text, also those that the chat format has no use for.
        self._text_of = {n: token.content for n, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._end, self._arg = self._ids[special.END], self._ids[special.ARG]
        self._marks: dict[int, Part | None] = {token: "call" for token in self._text_of}
        self._marks[self._end] = None
        self._size = tokenizer.get_vocab_size()
        self.stop_ids = (self._end,)
        self.fingerprint = hashlib.sha256(f"{self.name}\n{serialized}".encode()).hexdigest()[:16]
        if (back := self._decode(self._encode(_PROBE))) != _PROBE:
            raise ValueError(
                f"the tokenizer loses text: {_PROBE!r} came back as {back!r}; train it with byte fallback and without "
                "a normalizer"
            )

    @classmethod
    def load(cls, path: str | Path) -> NanoRenderer:
        """From a `tokenizer.json`, or the folder that holds one."""
        path = Path(path)
        file = path / "tokenizer.json" if path.is_dir() else path
        return cls(read_tokenizer(file))

    @property
    def pieces(self) -> NanoRenderer:
        return self

    def at_effort(self, effort: Effort | None) -> NanoRenderer:
        return self

    def keeping(self, thinking: Thinking) -> NanoRenderer:
        return self

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, generation: bool = True
    ) -> list[int]:
        return self.render_prefix(messages, tools) + (self.generation_prompt() if generation else [])

    def bridge(
        self, turn: Message, sampled: Sequence[int], new: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> Bridge:
        parts = [self.render_message(message) for message in new]
        ids = [*self.close_turn(sampled), *(token for part in parts for token in part), *self.generation_prompt()]
        return Bridge(ids, [len(part) for part in parts])

    def answer(self, message: Message, *, first_call: int = 0) -> list[int]:
        return self.render_message(message)[len(self.generation_prompt()) :]

    def render_message(self, message: Message) -> list[int]:
        if message.thinking:
            raise RenderError("the nano chat format has no place for thinking; put it into the text or leave it out")
        if message.role == "system" and not message.text:
            return []
        if message.calls and message.role != "assistant":
            raise RenderError(f"a {message.role} message carries tool calls; only an assistant message may")
        ids = [self._ids[_ROLE_TOKEN[message.role]]]
        if message.summary:
            ids.append(self._ids[special.SUMMARY])
        ids += self._encode(message.text)
        for call in message.calls:
            ids += self._call(call)
        return [*ids, self._end]

    def render_prefix(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        for tool in tools:
            function = tool["function"]
            self._check_tool(function["name"], tuple(function["parameters"]["properties"]))
        return [token for message in messages for token in self.render_message(message)]

    def generation_prompt(self) -> list[int]:
        return [self._ids[special.ASSISTANT]]

    def close_turn(self, ids: Sequence[int]) -> list[int]:
        return [] if ids and ids[-1] == self._end else [self._end]

    def parse(self, ids: Sequence[int], *, tools: Sequence[dict[str, Any]] = (), first_call: int = 0) -> Message:
        body = list(ids)
        closed = bool(body) and body[-1] == self._end
        body = body[:-1] if closed else body
        text, calls, problem = self._read(body, first_call)
        if problem is None and not closed:
            problem = CUT_OFF
        if problem is not None:
            return Message("assistant", self._readable(body), problem=problem)
        return Message("assistant", text, calls=tuple(calls))

    def listen(self) -> LiveTurn:
        return LiveTurn(self._decode, self._marks)

    def loss_mask(self, ids: Sequence[int]) -> list[bool]:
        """True where a policy speaks in an already rendered sequence (its end markers included)."""
        mask, speaking, start = [], False, self._ids[special.ASSISTANT]
        for token in ids:
            mask.append(speaking)
            if token == start:
                speaking = True
            elif token == self._end:
                speaking = False
        return mask

    def count(self, ids: Sequence[int]) -> TokenKinds:
        first_call = next((i for i, token in enumerate(ids) if token in self._tool_of), None)
        if first_call is None:
            return TokenKinds(message=len(ids))
        done = next((i for i, token in enumerate(ids) if self._tool_of.get(token) == "done"), len(ids) - 1)
        message = len(ids) - done - 1
        return TokenKinds(thinking=first_call, calling=len(ids) - first_call - message, message=message)

    def vocabulary(self) -> list[str]:
        return [self._word(i) for i in range(self._size)]

    def _word(self, token: int) -> str:
        """A token's text; a byte of a longer character has none of its own and shows as the vocabulary writes it."""
        text = self._text_of.get(token) or self._decode([token])
        return text if "\ufffd" not in text else self._tokenizer.id_to_token(token) or ""

    def _read(self, body: list[int], first_call: int) -> tuple[str, list[ToolCall], str | None]:
        """Text, calls and the first problem of a turn without its end marker."""
        pieces = self._split(body)
        text = self._decode(pieces[0][1])
        calls: list[ToolCall] = []
        for head, parts in _group(pieces[1:], self._arg):
            if head not in self._tool_of:
                return text, calls, f"stray {self._text_of.get(head, head)}"
            name = self._tool_of[head]
            names = special.TOOL_PARAMETERS[name]
            if not names and parts == [[]]:
                parts = []
            if len(parts) != len(names):
                return text, calls, f"{name} takes {len(names)} arguments, got {len(parts)}"
            arguments = dict(zip(names, map(self._decode, parts), strict=True))
            calls.append(ToolCall(f"c{first_call + len(calls)}", name, arguments))
        return text, calls, None

    def _split(self, body: list[int]) -> list[tuple[int, list[int]]]:
        """[(marker, content)]: content cut at special tokens and unknown ids; the first marker is -1 (no marker)."""
        pieces: list[tuple[int, list[int]]] = [(-1, [])]
        for token in body:
            if token in self._text_of or not 0 <= token < self._size:
                pieces.append((token, []))
            else:
                pieces[-1][1].append(token)
        return pieces

    def _call(self, call: ToolCall) -> list[int]:
        self._check_tool(call.name, tuple(call.arguments))
        ids = [self._ids[special.tool_token(call.name)]]
        for i, name in enumerate(special.TOOL_PARAMETERS[call.name]):
            value = call.arguments[name]
            if not isinstance(value, str):
                raise RenderError(f"{call.name}.{name} is {value!r}; the nano chat format holds strings only")
            ids += [self._arg] * (i > 0) + self._encode(value)
        return ids

    def _check_tool(self, name: str, parameters: tuple[str, ...]) -> None:
        known = special.TOOL_PARAMETERS.get(name)
        if known is None:
            raise RenderError(
                f"the nano vocabulary has no token for the tool {name!r} (it has {', '.join(special.TOOL_PARAMETERS)}); "
                "use the nano preset, or give the tool one of the reserved tokens in chat/special.py and retrain"
            )
        if set(parameters) != set(known):
            raise RenderError(f"the tool {name} takes {known} in the nano chat format, not {parameters}")

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids if text else []

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False) if ids else ""

    def _readable(self, body: list[int]) -> str:
        """A malformed turn for human eyes, its special tokens as text."""
        return "".join(
            (self._text_of.get(marker, f"<|{marker}?|>") if marker >= 0 else "") + self._decode(content)
            for marker, content in self._split(body)
        )


def _group(pieces: list[tuple[int, list[int]]], arg: int) -> list[tuple[int, list[list[int]]]]:
    """Calls with their argument pieces: every `<|arg|>` piece joins the marker before it."""
    calls: list[tuple[int, list[list[int]]]] = []
    for marker, content in pieces:
        if marker == arg and calls:
            calls[-1][1].append(content)
        else:
            calls.append((marker, [content]))
    return calls


def _id_of(tokenizer: Tokenizer, token: str) -> int:
    number = tokenizer.token_to_id(token)
    if number is None:
        raise ValueError(
            f"the tokenizer lacks the special token {token} of the laptop model's chat format; a base model that has no chat format gets "
            "it with `etude tokenizer extend --chat`"
        )
    return number

"""Answers as OpenAI's JSON: chat completions and completions, whole and in chunks.

Extensions: `return_token_ids` adds `prompt_token_ids` and `token_ids` as vLLM does, and `etude` to each choice: the weight version of each
token and, for models with experts, the routes.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.agent.chat.live import Piece
from etude.agent.policy.wire.chat import chat_usage, wire_call
from etude.agent.policy.wire.token_fields import origin_of
from etude.core.trace.completion import SampledTokens, Usage
from etude.learn.serve.answer_reader import ServedAnswer
from etude.learn.serve.request import SamplingOptions

Row = dict[str, Any]
Chunk = dict[str, Any]


@dataclass(frozen=True)
class AnswerFormat:
    """One request's answers. `token_text` is the text of one token, `prompts` are the token ids by choice."""

    model: str
    options: SamplingOptions
    prompts: Sequence[tuple[int, ...]]
    token_text: Callable[[int], str]
    created: int = field(default_factory=lambda: int(time.time()))
    number: str = field(default_factory=lambda: uuid.uuid4().hex)

    def usage(self, answers: Sequence[ServedAnswer]) -> Row:
        """The sum over all choices; each prompt counts once."""
        cached = sum(answer.completion.usage.cached_tokens for answer in answers[:: self.options.choices])
        read = sum(map(len, self.prompts[:: self.options.choices]))
        written = sum(len(answer.tokens.ids) for answer in answers)
        return chat_usage(Usage(read, cached, written)).model_dump()

    def usage_chunk(self, answers: Sequence[ServedAnswer]) -> Chunk:
        return {**self.head(True), "choices": [], "usage": self.usage(answers)}

    def head(self, chunk: bool) -> Row:
        raise NotImplementedError

    def opening(self) -> list[Chunk]:
        """The chunks that precede the first token."""
        raise NotImplementedError

    def step(self, index: int, pieces: Sequence[Piece], tokens: SampledTokens) -> Chunk | None:
        """What tokens add to a choice; None for nothing."""
        raise NotImplementedError

    def closing(self, index: int, answer: ServedAnswer) -> list[Chunk]:
        """The chunks that end a choice."""
        raise NotImplementedError

    def whole(self, answers: Sequence[ServedAnswer]) -> Row:
        raise NotImplementedError

    def provenance(self, answer: ServedAnswer) -> Row:
        """The fields of a choice that `return_token_ids` adds at its end."""
        return origin_of(answer.tokens) if self.options.token_ids else {}


@dataclass(frozen=True)
class ChatFormat(AnswerFormat):
    """chat.completion and chat.completion.chunk."""

    one_call: bool = False

    def head(self, chunk: bool) -> Row:
        kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": f"chatcmpl-{self.number}", "object": kind, "created": self.created, "model": self.model}

    def opening(self) -> list[Chunk]:
        ids = {"prompt_token_ids": list(self.prompts[0])} if self.options.token_ids else {}
        return [
            self._chunk(index, {"role": "assistant", "content": ""}) | (ids if index == 0 else {})
            for index in range(len(self.prompts))
        ]

    def step(self, index: int, pieces: Sequence[Piece], tokens: SampledTokens) -> Chunk | None:
        delta: Row = {}
        for part, text in pieces:
            key = "content" if part == "text" else "reasoning_content"
            delta[key] = delta.get(key, "") + text
        more = self._of_tokens(tokens) if tokens.ids else {}
        return self._chunk(index, delta, **more) if delta or more else None

    def closing(self, index: int, answer: ServedAnswer) -> list[Chunk]:
        calls = [wire_call(call, at).model_dump(exclude_none=True) for at, call in enumerate(self._calls(answer))]
        chunks = [self._chunk(index, {"tool_calls": [call]}) for call in calls]
        return [*chunks, self._chunk(index, {}, finish_reason=self._finish(answer), **self.provenance(answer))]

    def whole(self, answers: Sequence[ServedAnswer]) -> Row:
        ids = {"prompt_token_ids": list(self.prompts[0])} if self.options.token_ids else {}
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        return {**self.head(False), "choices": choices, "usage": self.usage(answers), **ids}

    def _choice(self, index: int, answer: ServedAnswer) -> Row:
        message: Row = {"role": "assistant", "content": answer.message.text or None}
        if answer.message.thinking:
            message["reasoning_content"] = answer.message.thinking
        if calls := self._calls(answer):
            message["tool_calls"] = [wire_call(call).model_dump(exclude_none=True) for call in calls]
        row: Row = {"index": index, "message": message, "logprobs": None, "finish_reason": self._finish(answer)}
        return {**row, **self._of_tokens(answer.tokens), **self.provenance(answer)}

    def _calls(self, answer: ServedAnswer) -> Sequence[Any]:
        return answer.message.calls[:1] if self.one_call else answer.message.calls

    def _finish(self, answer: ServedAnswer) -> str:
        return "tool_calls" if answer.message.calls else answer.finish

    def _of_tokens(self, tokens: SampledTokens) -> Row:
        found: Row = {"token_ids": tokens.ids} if self.options.token_ids else {}
        if self.options.top_logprobs is not None:
            tops = tokens.top or [[] for _ in tokens.ids]
            rows = zip(tokens.ids, tokens.logprobs, tops, strict=True)
            content = [
                {**self._entry(id, logprob), "top_logprobs": [self._entry(*pair) for pair in top]}
                for id, logprob, top in rows
            ]
            found["logprobs"] = {"content": content, "refusal": None}
        return found

    def _entry(self, id: int, logprob: float) -> Row:
        text = self.token_text(id)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _chunk(self, index: int, delta: Row, finish_reason: str | None = None, **more: Any) -> Chunk:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason, **more}
        return {**self.head(True), "choices": [choice]}


@dataclass(frozen=True)
class CompletionFormat(AnswerFormat):
    """text_completion, which has one object for both."""

    offsets: dict[int, int] = field(default_factory=dict)  # characters of each choice so far

    def head(self, chunk: bool) -> Row:
        return {
            "id": f"cmpl-{self.number}", "object": "text_completion", "created": self.created, "model": self.model
        }  # fmt: skip

    def opening(self) -> list[Chunk]:
        if not self.options.token_ids:
            return []
        return [self._chunk(i, "", prompt_token_ids=list(prompt)) for i, prompt in enumerate(self.prompts)]

    def step(self, index: int, pieces: Sequence[Piece], tokens: SampledTokens) -> Chunk | None:
        text = "".join(text for _, text in pieces)
        more = self._of_tokens(index, tokens) if tokens.ids else {}
        return self._chunk(index, text, **more) if text or more else None

    def closing(self, index: int, answer: ServedAnswer) -> list[Chunk]:
        return [self._chunk(index, "", answer.finish, **self.provenance(answer))]

    def whole(self, answers: Sequence[ServedAnswer]) -> Row:
        return {
            **self.head(False),
            "choices": [self._choice(i, answer) for i, answer in enumerate(answers)],
            "usage": self.usage(answers),
        }

    def _choice(self, index: int, answer: ServedAnswer) -> Row:
        row: Row = {
            "index": index, "text": answer.message.text, "logprobs": None, "finish_reason": answer.finish
        }  # fmt: skip
        ids = {"prompt_token_ids": list(self.prompts[index])} if self.options.token_ids else {}
        return {**row, **self._of_tokens(index, answer.tokens), **ids, **self.provenance(answer)}

    def _of_tokens(self, index: int, tokens: SampledTokens) -> Row:
        found: Row = {"token_ids": tokens.ids} if self.options.token_ids else {}
        if self.options.top_logprobs is not None:
            texts, offsets, at = [self.token_text(id) for id in tokens.ids], [], self.offsets.get(index, 0)
            for text in texts:
                offsets.append(at)
                at += len(text)
            self.offsets[index] = at
            top = tokens.top and [{self.token_text(id): value for id, value in reversed(row)} for row in tokens.top]
            found["logprobs"] = {
                "tokens": texts, "token_logprobs": tokens.logprobs, "top_logprobs": top, "text_offset": offsets
            }  # fmt: skip
        return found

    def _chunk(self, index: int, text: str, finish_reason: str | None = None, **more: Any) -> Chunk:
        choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason, **more}
        return {**self.head(True), "choices": [choice]}


def as_json(body: Any) -> bytes:
    """ASCII alone: text from a client may hold half a surrogate pair, which has no UTF-8."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()

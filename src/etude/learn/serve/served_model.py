"""A checkpoint as the server uses it: chat format, tokenizer, engine and limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from etude.agent.chat.families import UnknownFamily
from etude.agent.chat.files import read_json
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.load import load_renderer
from etude.agent.chat.renderer import Renderer, RenderError
from etude.agent.policy.protocol import Request
from etude.learn.engine.core import EngineCore
from etude.learn.engine.service import EngineThread, leave_cores_to_engine
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.serve.answer_reader import AnswerReader, text_feed
from etude.learn.serve.request import ChatQuestion, RefusedRequest, SamplingOptions, TextQuestion

# The window of a server that is given none: its cache takes 200 MB a session for a model of 135 million parameters.
DEFAULT_CONTEXT = 4096


@dataclass(frozen=True)
class ServedModel:
    """`renderer` is None for a checkpoint without a chat format. `window` is prompt and answer together, in tokens."""

    name: str
    renderer: Renderer | None
    tokenizer: HubTokenizer
    ends: frozenset[int]
    vocab_size: int
    window: int
    chat_problem: str = ""

    @cached_property
    def _texts(self) -> list[str]:
        return self.tokenizer.vocabulary()

    def token_text(self, id: int) -> str:
        """The text of one token; a part of a character as the vocabulary writes it."""
        return self._texts[id] if id < len(self._texts) else ""

    def chat_prompt(self, question: ChatQuestion) -> tuple[int, ...]:
        """Raises RefusedRequest for what the chat format cannot hold."""
        renderer = self.chat_renderer(question)
        try:
            return tuple(renderer.render(question.messages, question.tools))
        except RenderError as error:
            raise RefusedRequest(f"the model's chat format cannot hold this request: {error}", "messages") from error

    def chat_renderer(self, question: ChatQuestion) -> Renderer:
        if self.renderer is None:
            raise RefusedRequest(f"{self.name} has no chat format ({self.chat_problem}); use /v1/completions", "model")
        return self.renderer.at_effort(question.effort)

    def chat_reader(self, question: ChatQuestion) -> AnswerReader:
        renderer, made = self.chat_renderer(question), sum(len(message.calls) for message in question.messages)
        return AnswerReader(
            renderer.listen().feed,
            question.options.stop,
            lambda ids: renderer.parse(ids, tools=question.tools, first_call=made),
        )

    def text_prompts(self, question: TextQuestion) -> list[tuple[int, ...]]:
        """The token ids of each choice. Raises RefusedRequest."""
        prompts: list[tuple[int, ...]] = []
        for prompt in question.prompts:
            ids = tuple(self.tokenizer.encode(prompt)) if isinstance(prompt, str) else prompt
            wrong = next((id for id in ids if not 0 <= id < self.vocab_size), None)
            if wrong is not None:
                raise RefusedRequest(f"prompt holds the id {wrong}; ids are 0 to {self.vocab_size - 1}", "prompt")
            if not ids:
                raise RefusedRequest("prompt has no tokens; send a longer text", "prompt")
            prompts += [ids] * question.options.choices
        return prompts

    def text_reader(self, options: SamplingOptions) -> tuple[AnswerReader, Callable[[], str]]:
        feed, rest = text_feed(self.tokenizer.decode, self.ends)
        return AnswerReader(feed, options.stop), rest

    def requests(self, prompts: Sequence[tuple[int, ...]], options: SamplingOptions, param: str) -> list[Request]:
        """What the engine is asked, by choice. Raises RefusedRequest for a prompt without room for an answer."""
        return [self._request(prompt, options, i % options.choices, param) for i, prompt in enumerate(prompts)]

    def _request(self, prompt: tuple[int, ...], options: SamplingOptions, number: int, param: str) -> Request:
        room = self.window - len(prompt)
        if room < 1:
            raise RefusedRequest(
                f"This model's maximum context length is {self.window} tokens. However, your request has {len(prompt)} "
                f"input tokens. Please reduce the length of the {param}.",
                param, code="context_length_exceeded",
            )  # fmt: skip
        extra: dict[str, Any] = {"top_p": options.top_p} if options.top_p < 1 else {}
        if options.top_logprobs:
            extra["top_logprobs"] = min(options.top_logprobs, self.vocab_size)
        return Request(
            session_id="", messages=(), prompt_ids=prompt, stop_ids=tuple(sorted(self.ends)),
            max_tokens=min(options.max_tokens or room, room), temperature=options.temperature,
            seed=None if options.seed is None else options.seed + number, extra=extra,
        )  # fmt: skip


def open_model(
    folder: Path, name: str, *, sessions: int, context: int | None, threads: int
) -> tuple[ServedModel, EngineThread]:
    """The model and its engine, which is not started yet. Raises CheckpointError, and ValueError for a context that the model lacks."""
    tokenizer = HubTokenizer.load(folder)
    renderer, problem = _renderer(folder)
    leave_cores_to_engine()
    model = load_checkpoint(folder)
    limit = model.config.context_length
    if context is not None and context > limit:
        raise ValueError(f"--context {context} is more than the model's {limit} positions; give at most {limit}")
    window = context or min(limit, DEFAULT_CONTEXT)
    settings = EngineSettings(max_slots=sessions, max_batch=sessions, max_len=window, threads=threads)
    ends = {id for id in _end_ids(folder) if id < model.config.vocab_size} | set(renderer.stop_ids if renderer else ())
    served = ServedModel(name, renderer, tokenizer, frozenset(ends), model.config.vocab_size, window, problem)
    return served, EngineThread(EngineCore(model, settings))


def _renderer(folder: Path) -> tuple[Renderer | None, str]:
    """The chat format, or why there is none."""
    try:
        return load_renderer(folder), ""
    except UnknownFamily as error:
        return None, str(error)


def _end_ids(folder: Path) -> set[int]:
    """The ids that end a text, from generation_config.json or config.json."""
    for file in ("generation_config.json", "config.json"):
        named = read_json(folder / file).get("eos_token_id")
        ids = named if isinstance(named, list) else [named]
        if found := {id for id in ids if isinstance(id, int)}:
            return found
    return set()

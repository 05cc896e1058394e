"""A checkpoint's own chat template, rendered as Hugging Face does it: what our renderers are held against.

The environment is that of `transformers` (sandboxed, blocks trimmed, its filters and helpers); the template is the checkpoint's,
that is foreign code, and can reach nothing.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Sequence

from etude.chat.load import read_template


class TemplateError(ValueError):
    """A template that does not compile, or refuses a conversation; says what it said."""


class ChatTemplate:
    """Text of a conversation by the checkpoint's template. `date` is what it takes today for."""

    def __init__(self, source: str, names: dict[str, str], date: str) -> None:
        from jinja2 import TemplateError as JinjaError
        from jinja2.ext import loopcontrols
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        room = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        room.filters["tojson"] = _tojson
        room.globals["raise_exception"] = _refuse
        room.globals["strftime_now"] = lambda form: datetime.fromisoformat(date).strftime(form)
        self._errors = (JinjaError, TypeError, ValueError, AttributeError)
        self._names = names
        try:
            self._template = room.from_string(source)
        except JinjaError as error:
            raise TemplateError(f"the chat template does not compile: {error}") from error

    @classmethod
    def load(cls, folder: Path, date: str) -> ChatTemplate | None:
        """The folder's, or None if it has none."""
        source = read_template(folder)
        if source is None:
            return None
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        names = {key: _word(value) for key, value in settings.items() if key.endswith("_token") and value}
        return cls(source, names, date)

    def text(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], *, generation: bool, **settings: Any
    ) -> str:
        """The conversation as text; raises TemplateError if the template refuses it."""
        try:
            return self._template.render(
                messages=list(messages), tools=list(tools) or None, add_generation_prompt=generation,
                **self._names, **settings,
            )  # fmt: skip
        except self._errors as error:
            raise TemplateError(f"the chat template refuses the conversation: {error}") from error


def _word(value: Any) -> str:
    return value["content"] if isinstance(value, dict) else str(value)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Unlike jinja's own, without escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> None:
    raise ValueError(message)

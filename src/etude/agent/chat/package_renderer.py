"""What renders a family: the `renderers` package, with its errors mended, or a format that this package writes itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from etude.agent.chat.chat_family import ChatFamily
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.renderer import Effort

if TYPE_CHECKING:
    from etude.agent.chat.text_format import TextFormat

ThinkingRetention = Literal["tool_cycle", "all"]


def package_renderer(
    family: ChatFamily, tokenizer: HubTokenizer, retention: ThinkingRetention, effort: Effort | None
) -> Any:
    """The package's renderer, or this package's own. Imported here: the package costs half a second of start-up."""
    import renderers
    from pydantic import TypeAdapter
    from renderers.configs import GptOssRendererConfig
    from renderers.qwen35 import Qwen35Renderer

    if family.words is not None:
        from etude.agent.chat.template_format import TemplateFormat

        return TemplateFormat(family.words, tokenizer)
    if (written := _text_formats().get(family.name)) is not None:
        return written(tokenizer)
    options: dict[str, Any] = {**family.options, "thinking_retention": retention}
    if family.keep:
        field, keeping = family.keep
        options[field] = keeping if retention == "all" else not keeping
    if family.effort and effort:
        field, words = family.effort
        options[field] = words[effort]
    named = {"name": family.package or family.name, **options}
    config = TypeAdapter(renderers.RendererConfig).validate_python(named)
    if isinstance(config, GptOssRendererConfig):
        from etude.agent.chat.harmony import Harmony

        return Harmony(tokenizer, config)
    if family.name == "deepseek-v3.1":
        from etude.agent.chat.deepseek import DeepSeek31

        return DeepSeek31(tokenizer, config)
    made = renderers.create_renderer(tokenizer, config)
    return _with_joined_texts(made) if isinstance(made, Qwen35Renderer) else made


def _text_formats() -> Mapping[str, type[TextFormat]]:
    """The formats of this package, by the name of the family."""
    from etude.agent.chat.granite import Granite, Granite4, Granite4Default, Granite31, Granite33
    from etude.agent.chat.hermes import ChatML, Cohere, FalconH1, Gemma3, Qwen2, Qwen25, SmolLM2, SmolLM3
    from etude.agent.chat.llama_mistral import Llama3, Llama31, Mistral
    from etude.agent.chat.phi import Phi4, Phi4Mini, Phi35
    from etude.agent.chat.python_calls import LFM2, Olmo3, Olmo31

    return {
        "qwen2": Qwen2,
        "qwen2.5": Qwen25,
        "qwen3-2507": ChatML,
        "chatml": ChatML,
        "granite-3": Granite,
        "granite-3.1": Granite31,
        "granite-3.3": Granite33,
        "granite-4": Granite4,
        "granite-4-default": Granite4Default,
        "phi-3.5": Phi35,
        "phi-4": Phi4,
        "phi-4-mini": Phi4Mini,
        "smollm2": SmolLM2,
        "smollm3": SmolLM3,
        "lfm2": LFM2,
        "lfm2-first": LFM2,
        "olmo-3": Olmo3,
        "olmo-3.1": Olmo31,
        "falcon-h1": FalconH1,
        "cohere": Cohere,
        "llama-3": Llama3,
        "llama-3.1": Llama31,
        "gemma-3": Gemma3,
        "mistral": Mistral,
    }


def _with_joined_texts(package: Any) -> Any:
    """The renderer, whose turns are encoded from marker to marker. The package encodes a turn's text and the blank lines behind it apart. The
    template writes both in one piece, of which a tokenizer makes other tokens (".", "\\n\\n" against ".\\n\\n")."""
    package._render_assistant = partial(_render_joined, package._render_assistant)
    return package


def _render_joined(
    inner: Callable[..., None],
    *given: Any,
    emit_special: Callable[..., None],
    emit_text: Callable[..., None],
    **more: Any,
) -> None:
    held: list[str] = []
    where: list[tuple[int, bool, bool]] = []  # of the held texts: message, sampled, content

    def flush() -> None:
        if held:
            number, sampled, content = where[0]
            emit_text("".join(held), number, is_sampled=sampled, is_content=content)
        held.clear()
        where.clear()

    def text(words: str, number: int, *, is_sampled: bool, is_content: bool) -> None:
        if where and where[0] != (number, is_sampled, is_content):
            flush()
        held.append(words)
        where.append((number, is_sampled, is_content))

    def special(token: int, number: int, **flags: bool) -> None:
        flush()
        emit_special(token, number, **flags)

    def others(emit: Callable[..., None], *values: Any, **flags: Any) -> None:
        flush()
        emit(*values, **flags)

    emitters = {name: partial(others, emit) for name, emit in more.items() if name.startswith("emit_")}
    inner(*given, emit_special=special, emit_text=text, **{**more, **emitters})
    flush()

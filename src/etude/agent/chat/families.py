"""The model families whose chat formats we render, and how a checkpoint's own files tell which one it is.

A family is defined by its chat template, not by the model's author: the same model type may ship several templates, so a directory's
template decides where there is one, and the tokenizer must hold the family's markers either way. The markers are those of the
models' published tokenizers.
"""

from __future__ import annotations

from typing import Any, Collection

from etude.agent.chat.chat_family import ChatFamily


class UnknownFamily(ValueError):
    """A directory whose chat format is none of ours."""


_IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>")
_THINK = ("<think>", "</think>")
_QWEN: dict[str, Any] = {
    "markers": (*_IM, "<tool_response>", "</tool_response>", *_THINK),
    "roles": ("<|im_start|>",),
    "opener": "<tool_call>",
    "text_end": "<|im_end|>",
    "call_end": "<|im_end|>",
}
_VISION = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_QWEN_SEEING: dict[str, Any] = {
    **_QWEN,
    "first_system": True,
    "revision": 1,
    "arguments": "parameter",
    "markers": (*_QWEN["markers"], *_VISION),
}
_HERMES: dict[str, Any] = {
    "roles": ("<|im_start|>",), "thinks": False, "text_end": "<|im_end|>", "call_end": "<|im_end|>", "call_begins": "<tool_call>",
}  # fmt: skip
_NO_TOOLS: dict[str, Any] = {
    "template_calls": "none",
    "differs": "the template has no tools, which are written in the Hermes form",
}
_NO_CALLS: dict[str, Any] = {
    "template_calls": "declared",
    "differs": "the template writes no calls, which have the form that its system prompt asks for",
}
_GRANITE: dict[str, Any] = {
    "model_types": frozenset({"granite", "granitemoe", "granitemoeshared", "granitemoehybrid"}),
    "markers": ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"), "roles": ("<|start_of_role|>", "<|end_of_role|>"),
    "thinks": False, "text_end": "<|end_of_text|>", "call_end": "<|end_of_text|>",
}  # fmt: skip
_GRANITE_CALLING: dict[str, Any] = {
    **_GRANITE,
    "markers": (*_GRANITE["markers"], "<|tool_call|>"),
    "opener": "<|tool_call|>",
}
_LLAMA: dict[str, Any] = {
    "model_types": frozenset({"llama"}),
    "markers": ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    "roles": ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    "thinks": False, "first_system": True, "text_end": "<|eot_id|>", "call_end": "<|eot_id|>",
}  # fmt: skip
_LFM2: dict[str, Any] = {
    "model_types": frozenset({"lfm2", "lfm2_moe"}), "roles": ("<|startoftext|>", "<|im_start|>"), "thinks": False, "opener": "<|tool_call_start|>",
    "markers": (
        *("<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|tool_list_start|>", "<|tool_list_end|>"),
        *("<|tool_call_start|>", "<|tool_call_end|>", "<|tool_response_start|>", "<|tool_response_end|>"),
    ),
    "text_end": "<|im_end|>", "call_end": "<|im_end|>",
}  # fmt: skip
_OLMO: dict[str, Any] = {
    "model_types": frozenset({"olmo3"}), "roles": ("<|im_start|>",), "thinks": False, "first_system": True, "opener": "<function_calls>",
    "markers": (*_IM[:3], "<functions>", "</functions>", "<function_calls>", "</function_calls>"), "hides": ("<think>",),
    "text_end": "<|im_end|>", "call_end": "<|im_end|>",
}  # fmt: skip
_PHI = ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>")
_PHI_TURNS: dict[str, Any] = {"roles": _PHI[:3], "thinks": False, "text_end": "<|end|>", "call_end": "<|end|>"}
_QWEN3 = frozenset({"qwen3", "qwen3_moe", "qwen3_next"})
_QWEN35 = frozenset({"qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"})
_KIMI: dict[str, Any] = {
    "markers": (
        *("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
        *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        *("<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"),
    ),
    "roles": ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"),
    "call_ids": True,
    "opener": "<|tool_calls_section_begin|>",
    "text_end": "<|im_end|>",
    "call_end": "<|im_end|>",
}
_MEDIA = ("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>")


def _deepseek(word: str) -> str:
    return f"<｜{word.replace(' ', '▁')}｜>"


_DEEPSEEK: dict[str, Any] = {
    "model_types": frozenset({"deepseek_v3"}),
    "markers": tuple(
        map(
            _deepseek,
            (
                *("begin of sentence", "end of sentence", "User", "Assistant", "tool calls begin", "tool calls end"),
                *("tool call begin", "tool call end", "tool sep", "tool outputs begin", "tool outputs end"),
                *("tool output begin", "tool output end"),
            ),
        )
    ),
    "roles": tuple(map(_deepseek, ("begin of sentence", "User", "Assistant", "tool outputs begin"))),
    "opener": _deepseek("tool calls begin"),
    "text_end": _deepseek("end of sentence"),
    "call_end": _deepseek("end of sentence"),
}
_CALLS = (_deepseek("tool calls begin") + _deepseek("tool call begin"), _deepseek("tool sep"),
          _deepseek("tool call end") + "{additional_tool_calls}" + _deepseek("tool calls end"))  # fmt: skip
_FENCED = f"{_CALLS[0]}function{_CALLS[1]}tool_call_name\n```json\ntool_call_arguments\n```{_CALLS[2]}"
_RAW = f"{_CALLS[0]}tool_call_name{_CALLS[1]}tool_call_arguments{_CALLS[2]}"
_GLM: dict[str, Any] = {
    "markers": (
        *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
        *("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", *_THINK),
    ),
    "roles": ("<|system|>", "<|assistant|>"),
    "arguments": "arg_value",
    "opener": "<tool_call>",
    "text_end": "<|user|>",
    "call_end": "<|observation|>",
}
_NEMOTRON: dict[str, Any] = {
    **_QWEN, "model_types": frozenset({"nemotron_h"}), "markers": (*_IM[:2], *_IM[3:], "<tool_response>", "</tool_response>", *_THINK),
    "arguments": "parameter", "first_system": True, "options": {"enable_thinking": True}, "keep": ("truncate_history_thinking", False),
}  # fmt: skip
_LAGUNA: dict[str, Any] = {
    "model_types": frozenset({"laguna"}), "markers": ("〈|EOS|〉", "<assistant>", "</assistant>", "<tool_call>", "</tool_call>", *_THINK),
    "roles": ("<assistant>",), "arguments": "arg_text", "opener": "<tool_call>", "text_end": "</assistant>", "call_end": "</assistant>",
}  # fmt: skip
_HY3 = {
    word: f"<{word}:opensource>"
    for word in (
        "think",
        "tool_calls",
        "tool_call",
        "tool_sep",
        "arg_key",
        "arg_value",
        "tool_responses",
        "tool_response",
    )
}
_HY3_END = "<｜hy_eos:opensource｜>"
_HY3_ROLES = tuple(
    f"<｜{word}:opensource｜>" for word in ("hy_begin_of_sentence", "hy_User", "hy_Assistant", "reasoning_mode")
)
_GLM_TYPES = frozenset({"glm4_moe", "glm4_moe_lite", "glm_moe_dsa"})

FAMILIES: tuple[ChatFamily, ...] = (
    ChatFamily("qwen3", _QWEN3, shows=("<think>",), hides=("<function=",), **_QWEN),
    ChatFamily(
        "qwen3-2507", _QWEN3, shows=("<tool_call>",), hides=("<function=", "<think>"), markers=_IM, **_HERMES, opener="<tool_call>",
    ),
    ChatFamily(
        "qwen2.5", frozenset({"qwen2"}), shows=("You are Qwen, created by Alibaba Cloud",), markers=_IM, **_HERMES, opener="<tool_call>",
    ),
    ChatFamily(
        "qwen2", frozenset({"qwen2", "qwen2_moe"}), shows=("<|im_start|>", "You are a helpful assistant."), hides=("<tool_call>", "<think>"),
        markers=_IM[:3], **_HERMES, **_NO_TOOLS,
    ),
    ChatFamily(
        "chatml", frozenset({"llama", "mistral", "qwen2", "stablelm"}), shows=("<|im_start|>",), markers=_IM[:2],
        hides=("<tool_call>", "named SmolLM", "You are", "<think>", "<|im_sep|>"), **_HERMES, **_NO_TOOLS,
    ),
    ChatFamily("smollm2", frozenset({"llama"}), shows=("named SmolLM",), markers=_IM[:3], **_HERMES, **_NO_TOOLS),
    ChatFamily(
        "granite-3", shows=("<|start_of_role|>",), hides=("<tool_call>", "<think>", "Knowledge Cutoff", "strftime_now"), call_begins="<tool_call>",
        **_GRANITE, **_NO_TOOLS,
    ),
    ChatFamily(
        "phi-3.5", frozenset({"phi3"}), shows=("<|system|>", "<|user|>", "<|end|>"), hides=("<|tool|>", "<think>"), markers=_PHI,
        **_PHI_TURNS, call_begins="<tool_call>", **_NO_TOOLS,
    ),
    ChatFamily(
        "phi-4", frozenset({"phi3", "llama"}), shows=("<|im_sep|>",), hides=("<think>", "<tool_call>"), markers=(*_IM[:3], "<|im_sep|>"),
        **_HERMES, **_NO_TOOLS,
    ),
    ChatFamily(
        "phi-4-mini", frozenset({"phi3"}), shows=("<|tool|>",), hides=("<|tool_call|>", "Your name is Phi"), takes_tools="system",
        opener="<|tool_call|>", template_calls="declared", differs="the template writes no calls, which have the tokenizer's markers",
        markers=(*_PHI, "<|tool|>", "<|/tool|>", "<|tool_call|>", "<|/tool_call|>", "<|tool_response|>"),
        **{**_PHI_TURNS, "roles": (*_PHI_TURNS["roles"], "<|tool|>", "<|tool_response|>")},
    ),
    ChatFamily(
        "smollm3", frozenset({"smollm3"}), shows=("xml_tools", "Reasoning Mode"), markers=("<|im_start|>", "<|im_end|>", "<|end_of_text|>"),
        first_system=True, takes_tools="xml_tools", options={"enable_thinking": False}, **_HERMES, **_NO_CALLS,
    ),
    ChatFamily("lfm2", shows=("<|tool_list_start|>", "tool_calls"), **_LFM2),
    ChatFamily(
        "lfm2-first", shows=("<|tool_list_start|>",), hides=("tool_calls",), template_calls="declared",
        differs="the template writes no calls, which have the form of its later revision", **_LFM2,
    ),
    ChatFamily("olmo-3", shows=("<function_calls>", "tool_calls", "You are a helpful function-calling AI assistant"), **_OLMO),
    ChatFamily("olmo-3.1", shows=("<function_calls>", "tool_calls", "You are Olmo, a helpful AI assistant built by Ai2"), **_OLMO),
    ChatFamily(
        "falcon-h1", frozenset({"falcon_h1"}), shows=("<|im_start|>", "function calling AI model"), first_system=True,
        markers=("<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<|end_of_text|>"), **_HERMES, **_NO_CALLS,
    ),
    ChatFamily(
        "cohere", frozenset({"cohere", "cohere2"}), shows=("<|CHATBOT_TOKEN|>",), hides=("<|START_RESPONSE|>", "Action:", "tools"), thinks=False,
        first_system=True, call_begins="<tool_call>", text_end="<|END_OF_TURN_TOKEN|>", call_end="<|END_OF_TURN_TOKEN|>",
        markers=("<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        roles=("<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"), **_NO_TOOLS,
    ),
    ChatFamily("granite-3.1", shows=("<|start_of_role|>tools<|end_of_role|>", "Knowledge Cutoff Date"), **_GRANITE_CALLING, **_NO_CALLS),
    ChatFamily("granite-3.3", shows=("<|start_of_role|>available_tools", "Knowledge Cutoff Date"), **_GRANITE_CALLING, **_NO_CALLS),
    ChatFamily(
        "granite-4", shows=("<|start_of_role|>", "<tool_call>"), hides=("g4_default_system_message", "<think>"), call_begins="<tool_call>",
        **_GRANITE,
    ),
    ChatFamily(
        "granite-4-default", shows=("<|start_of_role|>", "<tool_call>", "g4_default_system_message"), hides=("<think>",),
        call_begins="<tool_call>", **_GRANITE,
    ),
    ChatFamily(
        "qwen3-coder", _QWEN3, arguments="parameter", shows=("<function=",), hides=("<think>",), package="prime-qwen3",
        thinks=False, **_QWEN,
    ),
    ChatFamily("qwen3.5", _QWEN35, hides=("preserve_thinking",), options={"enable_thinking": True}, **_QWEN_SEEING),
    ChatFamily(
        "qwen3.6", _QWEN35, shows=("preserve_thinking",), hides=("reasoning_effort",), keep=("preserve_thinking", True),
        options={"enable_thinking": True}, **_QWEN_SEEING,
    ),
    ChatFamily(
        "qwen3.8", _QWEN35, shows=("preserve_thinking", "reasoning_effort"), keeps=True, keep=("preserve_thinking", True),
        options={"enable_thinking": True},
        effort=("reasoning_effort", {"low": "low", "medium": "medium", "high": "xhigh"}), **_QWEN_SEEING,
    ),
    ChatFamily("kimi-k2", frozenset({"kimi_k2"}), hides=("<think>",), thinks=False, **_KIMI),
    ChatFamily(
        "kimi-k2.5", frozenset({"kimi_k25", "kimi_k2_5"}), **{**_KIMI, "markers": (*_KIMI["markers"], *_MEDIA)},
    ),
    ChatFamily(
        "deepseek-v3", shows=("```json",), hides=("<think>",), thinks=False, declares=_FENCED,
        broken=((
            "message['role'] == 'assistant' and message['content'] is none",
            "it writes calls only where the content is null, and closes the calls only after a second call",
        ),),
        **_DEEPSEEK,
    ),
    ChatFamily(
        "deepseek-r1", shows=("```json", "<think>"), declares=_FENCED,
        broken=(("set ns.is_first = true", "it opens the calls only once in a conversation"),), **_DEEPSEEK,
    ),
    ChatFamily(
        "deepseek-v3.1", shows=("</think>",), hides=("```json",), package="deepseek-v3", thinks=False, declares=_RAW,
        **{**_DEEPSEEK, "markers": (*_DEEPSEEK["markers"], *_THINK)},
    ),
    ChatFamily("glm-4.5", _GLM_TYPES, hides=("clear_thinking",), **{**_GLM, "markers": (*_GLM["markers"], "/nothink")}),
    ChatFamily(
        "glm-5", _GLM_TYPES, shows=("clear_thinking",), hides=("reasoning_effort",), keep=("clear_thinking", False),
        **_GLM,
    ),
    ChatFamily(
        "glm-5.3", _GLM_TYPES, shows=("clear_thinking", "reasoning_effort"), keeps=True,
        keep=("clear_thinking", False),
        effort=("reasoning_effort", {"low": "low", "medium": "high", "high": "max"}), **_GLM,
    ),
    ChatFamily(
        "laguna-xs-2.1", shows=("<available_tools>",), hides=("render_assistant_messages_raw", "preserve_thinking"), thinks=False, **_LAGUNA,
    ),
    ChatFamily(
        "laguna-s-2.1", shows=("<available_tools>", "preserve_thinking"), hides=("render_assistant_messages_raw",), keeps=True, **_LAGUNA,
    ),
    ChatFamily(
        "hy3", frozenset({"hy_v3"}), shows=("hy_begin_of_sentence", "reasoning_mode"), thinks=False, first_system=True,
        markers=(*_HY3_ROLES, _HY3_END, *_HY3.values(), *(tag.replace("<", "</") for word, tag in _HY3.items() if word != "tool_sep")),
        roles=_HY3_ROLES, arguments="arg_value:opensource", opener=_HY3["tool_calls"], text_end=_HY3_END, call_end=_HY3_END,
        think_end="</think:opensource>",
    ),
    ChatFamily("nemotron-3", shows=("truncate_history_thinking", r"\n</think>\n"), **_NEMOTRON),
    ChatFamily("nemotron-3-ultra", shows=("truncate_history_thinking", "effort"), hides=(r"\n</think>\n",), **_NEMOTRON),
    ChatFamily("nemotron-3.5", shows=("truncate_history_thinking",), hides=(r"\n</think>\n", "effort"), **_NEMOTRON),
    ChatFamily(
        "gpt-oss", frozenset({"gpt_oss"}),
        markers=("<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|channel|>", "<|message|>", "<|constrain|>"),
        roles=(), effort=("reasoning_effort", {"low": "low", "medium": "medium", "high": "high"}),
        keep=("auto_drop_analysis", False), named=True, text_end="<|return|>", call_end="<|call|>", think_end="<|end|>",
        differs="instructions, calls and results are written as OpenAI's reference encoder does", revision=1,
    ),
    ChatFamily(
        "llama-3.1", shows=("ipython",), call_begins='{"name": ', options={"date_string": "26 Jul 2024"}, template_calls="one",
        differs="the template refuses parallel calls and drops text in front of a call", **_LLAMA,
    ),
    ChatFamily(
        "llama-3", shows=("<|start_header_id|>",), hides=("ipython",), call_begins="<tool_call>", **_LLAMA, **_NO_TOOLS,
    ),
    ChatFamily(
        "gemma-3", frozenset({"gemma3", "gemma3_text"}), shows=("<start_of_turn>",), markers=("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        roles=("<bos>", "<start_of_turn>"), thinks=False, first_system=True, text_end="<end_of_turn>", call_end="<end_of_turn>",
        call_begins="<tool_call>", **_NO_TOOLS,
    ),
    ChatFamily(
        "mistral", frozenset({"mistral", "mistral3", "ministral3"}), shows=("[ARGS]",), hides=("[CALL_ID]",), thinks=False, first_system=True,
        markers=(
            "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]",
            "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]",
        ),
        roles=("<s>", "[INST]", "[/INST]", "[TOOL_RESULTS]", "[SYSTEM_PROMPT]"), opener="[TOOL_CALLS]", text_end="</s>", call_end="</s>",
    ),
    ChatFamily(
        "minimax-m2", frozenset({"minimax_m2", "minimax"}), arguments="invoke",
        markers=("]~!b[", "]~b]", "[e~[", "<minimax:tool_call>", "</minimax:tool_call>", *_THINK), roles=("]~b]",), first_system=True,
        opener="<minimax:tool_call>", text_end="[e~[", call_end="[e~[",
    ),
)  # fmt: skip


def by_name(name: str) -> ChatFamily:
    """The family of that name; raises UnknownFamily."""
    found = next((family for family in FAMILIES if family.name == name), None)
    if found is None:
        raise UnknownFamily(f"there is no chat family {name!r}; there are nano, {', '.join(f.name for f in FAMILIES)}")
    return found


def detect(model_type: str, template: str | None, vocabulary: Collection[str]) -> ChatFamily:
    """The family of a checkpoint; raises UnknownFamily with what was seen and what to do."""
    known = [family for family in FAMILIES if model_type in family.model_types]
    marked = [family for family in FAMILIES if not family.missing(vocabulary)]
    candidates = known if model_type else marked
    fitting = [family for family in candidates if template is None or family.fits(template)]
    if not model_type and len(fitting) > 1:
        raise UnknownFamily(
            f"config.json names no model_type, and {_names(fitting)} fit the tokenizer"
            f"{' and the template' if template is not None else ''}; name one with --family"
        )
    if template is None and len(fitting) != 1 and not any(family in marked for family in fitting):
        raise UnknownFamily(
            "there is no chat template, and the tokenizer has the tokens of "
            + (f"none of {_names(fitting)}" if fitting else f"no format that is known by model type {model_type!r}")
            + ": put the template of the instruct model, or one of your own, into the directory as chat_template.jinja"
        )
    if not fitting:
        raise UnknownFamily(
            f"the chat format of model type {model_type!r} is unknown: "
            + (f"its template is that of none of {_names(candidates)}" if candidates else "no family is known by it")
            + f"; known are nano, {_names(FAMILIES)}. If its format is one of these, `etude model check DIR --family NAME` proves it; "
            "a run needs a checkpoint whose own files name a known format (docs/chat.md)"
        )
    found = next((family for family in fitting if family in marked), fitting[0])
    if missing := found.missing(vocabulary):
        raise UnknownFamily(
            f"the checkpoint looks like {found.name}, but its tokenizer lacks {', '.join(missing)}; "
            "is tokenizer.json that of the instruct model?"
        )
    return found


def require_markers(family: ChatFamily, vocabulary: Collection[str]) -> None:
    """Raises UnknownFamily with the markers of `family` that a vocabulary lacks."""
    if missing := family.missing(vocabulary):
        raise UnknownFamily(
            f"the tokenizer lacks {', '.join(missing)}, which the chat format {family.name} needs; name another with --family, "
            "or take the tokenizer.json of the instruct model"
        )


def _names(families: Collection[ChatFamily]) -> str:
    return ", ".join(family.name for family in families)

"""A renderer held against the checkpoint's own chat template: the same conversations must become the same ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Sequence

from etude.agent.chat import trajectories
from etude.agent.chat.chat_family import ChatFamily
from etude.agent.chat.conversation import package_messages
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.files import read_template
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.renderer import Renderer
from etude.agent.chat.template import ChatTemplate
from etude.core.trace.message import Message

# What gpt-oss's template takes for today, and its renderer too (`harmony.START_DATE`).
DATE = "2025-08-05"
SHOWN_CHARS = 60


def template_differences(
    folder: Path, renderer: Renderer, tokenizer: HubTokenizer, answers: Sequence[Message]
) -> list[str] | None:
    """The first difference of each conversation, none if all are equal; None if the folder has no template. Raises
    TemplateError if the template refuses one."""
    template = ChatTemplate.load(folder, DATE)
    if template is None:
        return None
    if not isinstance(renderer, FamilyRenderer):
        return _nano_differences(template, renderer, tokenizer, answers)
    found = []
    broken = renderer.family.fault_of(read_template(folder) or "") is not None
    for messages, tools in _conversations(answers, renderer.family, broken=broken):
        if renderer.family.declares:
            tools = ()  # the template knows of none: the caller describes them
        theirs = tokenizer.encode(_text(template, renderer, messages, tools))
        ours = renderer.render(messages, tools)
        if ours != theirs:
            found.append(_difference(ours, theirs, tokenizer))
    return found


def _nano_differences(
    template: ChatTemplate, renderer: Renderer, tokenizer: HubTokenizer, answers: Sequence[Message]
) -> list[str]:
    """Of the laptop format, where every turn is one message: a request, an answer, and the result of each of its calls. Without markers spelt
    in content, as `_conversations`."""
    plain = [answer for answer in answers if "<|" not in f"{answer.text} {answer.calls}"]
    asked = [Message("system", "Be brief."), Message("user", "Hello. Ça va?")]
    found = []
    for answer in plain:
        messages = [*asked, answer, *(Message("tool", "done\n", call_id=call.id) for call in answer.calls)]
        rows = [
            {
                "role": m.role,
                "content": m.text,
                "tool_calls": [{"function": {"name": c.name, "arguments": dict(c.arguments)}} for c in m.calls],
            }
            for m in messages
        ]
        ours, theirs = renderer.render(messages, ()), tokenizer.encode(template.text(rows, (), generation=True))
        if ours != theirs:
            found.append(_difference(ours, theirs, tokenizer))
    return found


def _conversations(
    answers: Sequence[Message], family: ChatFamily, *, broken: bool = False
) -> list[tuple[list[Message], Sequence[dict[str, Any]]]]:
    """Without markers spelt in content, which templates take for markers and we don't, and without calls that the template can't write.
    gpt-oss is rendered as its reference encoder does, from which its template departs in calls, results, instructions and inner schemas:
    requests remain."""
    asked = [Message("user", "Hello.")]
    talk = [*asked, Message("assistant", "Hello! Ça va?"), Message("user", "Yes.")]
    plain_talk: list[tuple[list[Message], Sequence[dict[str, Any]]]] = [
        (asked, ()),
        ([Message("system", "Be brief."), *asked], ()),
        (talk, ()),
    ]
    if family.words is not None and family.words.system is None:
        del plain_talk[1]  # what the template refuses
    if broken or family.template_calls == "none":
        return plain_talk
    if family.template_calls == "declared":
        return [
            *plain_talk,
            (asked, trajectories.TOOLS),
            ([Message("system", "Be brief."), *asked], trajectories.TOOLS),
        ]
    if family.name == "gpt-oss":
        return [([Message("user", "Hello.")], ()), ([Message("user", "Hello.")], trajectories.TOOLS[2:3])]
    plain = [answer for answer in answers if answer.calls and "markers" not in answer.text]
    if family.template_calls == "one":
        plain = [answer for answer in plain if len(answer.calls) == 1 and not answer.text]
    cycle = [message for step in _steps(plain) for message in step]
    return [*plain_talk, (asked, trajectories.TOOLS), (cycle, trajectories.TOOLS)]


def _steps(answers: Sequence[Message]) -> list[list[Message]]:
    """Request, then each answer with its results; ids of calls are unique over the whole session."""
    first, *results = trajectories.trajectory(answers, ())
    steps, made = [first], 0
    for answer, came in zip(answers, results, strict=True):
        names = [f"functions.{call.name}:{made + i}" for i, call in enumerate(answer.calls)]
        made += len(names)
        calls = tuple(type(c)(name, c.name, c.arguments) for c, name in zip(answer.calls, names, strict=True))
        said = Message("assistant", answer.text, answer.thinking, calls)
        steps.append([said, *(Message("tool", m.text, call_id=n) for m, n in zip(came, names, strict=True))])
    return steps


def _text(
    template: ChatTemplate, renderer: FamilyRenderer, messages: Sequence[Message], tools: Sequence[dict[str, Any]]
) -> str:
    family = renderer.family
    rows = package_messages(messages, call_ids=family.call_ids, thinks=family.thinks, named=family.named)
    for row in rows:
        if not row.get("reasoning_content", "x"):  # templates test for thinking by its presence
            del row["reasoning_content"]
        for call in row.get("tool_calls", ()) if family.declares else ():  # the V3 line joins arguments as text
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    functions = [json.dumps(tool["function"], ensure_ascii=False) for tool in tools]
    given = {"xml_tools": functions} if family.takes_tools == "xml_tools" and tools else {}
    if family.takes_tools == "system" and tools:
        rows = rows if rows[0]["role"] == "system" else [{"role": "system", "content": ""}, *rows]
        rows[0]["tools"] = f"[{', '.join(functions)}]"
    return template.text(rows, tools, generation=True, **family.options, **given)


def _difference(ours: list[int], theirs: list[int], tokenizer: HubTokenizer) -> str:
    pairs = zip(ours, theirs, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))
    start = max(0, at - 4)
    shown = [tokenizer.decode(ids[start : start + 30])[:SHOWN_CHARS] for ids in (ours, theirs)]
    return f"token {at}: rendered {shown[0]!r}, the template says {shown[1]!r}"

"""Prompts worded by a policy instead of the rules: any endpoint or checkpoint that answers in messages.

What it writes passes the same checks as the rules' words; a prompt that does not is asked for once more with the objections, and then the
rules' own text replaces it, which is reported (`by`): nothing is taken unchecked, and nothing falls back in silence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from etude.agent.policy.protocol import Policy, Request
from etude.core.trace.completion import Usage
from etude.core.trace.message import Message
from etude.tasks.generate.prompts.checks import objections
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.prompts.interface import with_interface
from etude.tasks.generate.prompts.writing import STYLES, template_prompts
from etude.tasks.task import Task

TRIES = 2
MAX_TOKENS = 2048
RULES = "rules"


@dataclass(frozen=True)
class Worded:
    """`by`: who wrote each, the policy's name or "rules" with the objection to what it wrote; `usages`: what was asked cost."""

    prompts: dict[str, str]
    by: dict[str, str]
    usages: tuple[Usage, ...]


async def write_prompts(task: Task, facts: Facts, policy: Policy) -> Worded:
    """Raises PolicyError where the policy can't be asked."""
    facts = with_interface(task, facts)
    rules = {str(style): text for style, text in template_prompts(task.category, facts, task.id).items()}
    taken: dict[str, str] = {}
    complaints: dict[str, str] = dict.fromkeys(STYLES, "")
    usages: list[Usage] = []
    messages = [Message("system", _instruction()), Message("user", _user_prompt(task, facts))]
    session = f"prompts-{task.id}"
    try:
        for number in range(TRIES):
            completion = await policy.complete(
                Request(session, tuple(messages), max_tokens=MAX_TOKENS, temperature=0.7, seed=number)
            )
            usages.append(completion.usage)
            text = completion.message.text if completion.message else ""
            complaints = _sift(task, facts, _parsed(text), rules, taken)
            if not complaints:
                break
            wrong = "\n".join(f"- {style}: {why}" for style, why in complaints.items())
            messages += [Message("assistant", text), Message("user", f"Not yet:\n{wrong}\nWrite all three again.")]
    finally:
        await policy.release(session)
    by = {style: policy.name if style in taken else f"{RULES} ({complaints[style]})" for style in STYLES}
    return Worded({**rules, **taken}, by, tuple(usages))


def _sift(
    task: Task, facts: Facts, texts: dict[str, str], rules: dict[str, str], taken: dict[str, str]
) -> dict[str, str]:
    """Takes what passes; says what is wrong with the rest. Each is judged with the rules' own, which pass."""
    wrong = {}
    for style in STYLES:
        if style in taken:
            continue
        text = texts.get(style, "")
        every = objections(task, {**rules, style: text}, facts) if text else []
        found = [one for one in every if one.startswith(f"{style}:")]
        if not text:
            wrong[style] = "it is missing, or the answer is no JSON object of three texts"
        elif found:
            wrong[style] = found[0].removeprefix(f"{style}: ")
        else:
            taken[style] = text
    return wrong


def _parsed(text: str) -> dict[str, str]:
    """The object in an answer, fences and words around it left aside; empty where there is none."""
    try:
        row = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        return {}
    return {key: value for key, value in row.items() if isinstance(value, str)} if isinstance(row, dict) else {}


def _user_prompt(task: Task, facts: Facts) -> str:
    row = {"category": task.category, "project": task.metadata.get("project", ""), **facts.to_record()}
    row["names that must be given"] = row.pop("interface")
    return json.dumps({key: value for key, value in row.items() if value}, indent=1, ensure_ascii=False)


def _instruction() -> str:
    return (Path(__file__).parent / "prompts.md").read_text(encoding="utf-8").strip()

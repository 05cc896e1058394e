"""A model that compares an output with the description of it, where no rule could. Without its verdict nothing passes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.message import Message
from etude.sandbox.errors import InfraError
from etude.tasks.generate.install.agents.interview import Model
from etude.tasks.generate.install.agents.spending import MeteredPolicy
from etude.tasks.generate.install.goal import Goal

HEAD, TAIL = 2_000, 6_000  # characters of an output that are shown
TRIES = 3
MAX_TOKENS = 1024


class ModelJudge:
    """The exit status and the share of passing tests are held against a goal as ever; the description by the model, in place of the pattern."""

    def __init__(self, model: Model) -> None:
        self.model = model

    async def objection(self, goal: Goal, rc: int, output: str, project: str) -> str:
        """Why the output is not the described one; empty if it is. Raises InfraError where the judge can't be asked or gives no verdict."""
        if plain := replace(goal, pattern="").objection(rc, output):
            return plain
        matches, why = await self._ask_model(goal, rc, output, project)
        return "" if matches else f"`{goal.command}` does not do what was described ({goal.description}): {why}"

    async def _ask_model(self, goal: Goal, rc: int, output: str, project: str) -> tuple[bool, str]:
        meter = MeteredPolicy(self.model.policy, self.model.limits, self.model.bill.of(project), self.model.dollars)
        session = f"{project}.judge"
        messages = [Message("system", _words()), Message("user", _user_prompt(goal, rc, output))]
        try:
            for number in range(TRIES):
                request = Request(session, tuple(messages), max_tokens=MAX_TOKENS, temperature=0.0, seed=number)
                answer = await meter.complete(request)
                text = answer.message.text if answer.message else ""
                if (verdict := _verdict(text)) is not None:
                    return verdict
                again = 'That is no verdict. Answer with {"matches": true or false, "why": "..."} and nothing else.'
                messages += [Message("assistant", text), Message("user", again)]
        except PolicyError as error:
            raise InfraError(f"{self.model.label} can't judge: {error}") from error
        finally:
            await meter.release(session)
        raise InfraError(f"{self.model.label} gave no verdict in {TRIES} answers on `{goal.command}`")


def _user_prompt(goal: Goal, rc: int, output: str) -> str:
    shown = output if len(output) <= HEAD + TAIL else f"{output[:HEAD]}\n[...]\n{output[-TAIL:]}"
    row = {"command": goal.command, "description": goal.description, "exit status": rc, "printed": shown}
    return json.dumps(row, indent=1, ensure_ascii=False)


def _verdict(text: str) -> tuple[bool, str] | None:
    try:
        row = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not isinstance(row.get("matches"), bool):
        return None
    return row["matches"], " ".join(str(row.get("why", "")).split())[:300]


def _words() -> str:
    return (Path(__file__).parent / "judge.md").read_text(encoding="utf-8").strip()

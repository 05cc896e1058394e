"""ATIF, the Agent Trajectory Interchange Format: one JSON object with `schema_version`, `agent` and `steps`.

Written against versions 1.0 to 1.7 as published (Harbor's RFC 0001 and the models derived from it). A step of the agent is
a completion and, through its `observation`, the results of its calls. Token ids and logprobs of `metrics` stay under
`foreign`: they were sampled by a policy whose versions and renderer this program can't name.
"""

from __future__ import annotations

from typing import Any

from etude.agent.importers.draft import ForeignError, Row, SessionDraft, maybe, need, rest, unix_s
from etude.core.trace.message import Message, ToolCall

NAME = "atif"
VERSIONS = frozenset(f"ATIF-v1.{minor}" for minor in range(8))

_TOP = frozenset("schema_version session_id agent steps".split())
_AGENT = frozenset("name version model_name tool_definitions".split())
_STEP = frozenset(
    "step_id timestamp source message model_name reasoning_effort reasoning_content tool_calls observation metrics".split()
)
_METRICS = frozenset("prompt_tokens completion_tokens cached_tokens".split())


def read(document: Row, place: str) -> SessionDraft:
    """The session of a trajectory. Raises ForeignError."""
    version = need(document, "schema_version", str, place)
    if version not in VERSIONS:
        raise ForeignError(f"{place}: {version}; this program reads {', '.join(sorted(VERSIONS))}")
    draft = SessionDraft(NAME)
    draft.session_id = maybe(document, "session_id", str, place) or "trajectory"
    agent = need(document, "agent", dict, place)
    draft.agent_version = f"{need(agent, 'name', str, place)} {maybe(agent, 'version', str, place)}".strip()
    draft.policy = maybe(agent, "model_name", str, place)
    if agent.get("tool_definitions"):
        draft.harness_facts["schemas"] = agent["tool_definitions"]
    kept = rest(document, _TOP) | ({"agent": more} if (more := rest(agent, _AGENT)) else {})
    draft.facts |= {"atif": kept} if kept else {}
    reader = _AtifReader(draft)
    for number, step in enumerate(need(document, "steps", list, place), 1):
        reader.step(step, f"{place}, step {number}")
    draft.rows = len(document["steps"])
    return draft


class _AtifReader:
    def __init__(self, draft: SessionDraft) -> None:
        self.draft = draft
        self._last: int | None = None

    def step(self, step: Row, place: str) -> None:
        source = need(step, "source", str, place)
        self.draft.at(unix_s(step.get("timestamp"), place))
        if source == "agent":
            self._agent(step, place)
        elif source in ("user", "system"):
            text = self._text(step.get("message") or "", place)
            role = "user" if source == "user" else "system"
            self._last = self.draft.message(Message(role, text), parent=self._last, foreign=rest(step, _STEP))
        else:
            raise ForeignError(f"{place}: source {source!r}; known are system, user, agent")
        if maybe(step, "observation", dict, place):
            self._results(step, place)

    def _agent(self, step: Row, place: str) -> None:
        effort = step.get("reasoning_effort")
        if effort in ("low", "medium", "high") and effort != self.draft.effort:
            self.draft.effort = effort
            self.draft.add("effort", {"effort": effort})
        calls = tuple(
            ToolCall(
                need(call, "tool_call_id", str, place),
                need(call, "function_name", str, place),
                need(call, "arguments", dict, place),
            )
            for call in maybe(step, "tool_calls", list, place)
        )
        text = self._text(step.get("message") or "", place)
        message = Message("assistant", text, thinking=maybe(step, "reasoning_content", str, place), calls=calls)
        metrics = maybe(step, "metrics", dict, place)
        usage = {
            "input_tokens": maybe(metrics, "prompt_tokens", int, place),
            "cached_tokens": maybe(metrics, "cached_tokens", int, place),
            "output_tokens": maybe(metrics, "completion_tokens", int, place),
            "seconds": 0.0,
        }
        foreign = rest(step, _STEP) | ({"metrics": kept} if (kept := rest(metrics, _METRICS)) else {})
        if step.get("model_name", self.draft.policy) != self.draft.policy:
            foreign["model_name"] = step["model_name"]
        if effort is not None and effort not in ("low", "medium", "high"):
            foreign["reasoning_effort"] = effort
        data = {"message": message.to_json(), "finish": "stop", "usage": usage}
        self._last = self.draft.add("completion", data, parent=self._last, foreign=foreign)

    def _results(self, step: Row, place: str) -> None:
        names = {call["tool_call_id"]: call["function_name"] for call in maybe(step, "tool_calls", list, place)}
        for result in need(step["observation"], "results", list, place):
            call_id = maybe(need({"result": result}, "result", dict, place), "source_call_id", str, place) or None
            if call_id is not None and call_id not in names:
                raise ForeignError(f"{place}: a result for the call {call_id!r}, which the step does not make")
            text = self._text(result.get("content") or "", place)
            data = {"call_id": call_id, "name": names.get(call_id, ""), "text": text, "failed": False}
            foreign = rest(result, frozenset(("source_call_id", "content")))
            self._last = self.draft.add("tool_result", data, parent=self._last, foreign=foreign)

    def _text(self, content: Any, place: str) -> str:
        if isinstance(content, str):
            return content
        if not isinstance(content, list):
            raise ForeignError(f"{place}: a message must be text or a list of parts, not {type(content).__name__}")
        texts = []
        for part in content:
            if need(part, "type", str, place) == "text":
                texts.append(need(part, "text", str, place))
            else:
                self.draft.drop(f"{part['type']} parts")
        return "\n".join(texts)

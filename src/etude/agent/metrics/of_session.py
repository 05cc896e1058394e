"""A session's counters and to-dos, from its entries alone: of one that just ended, was taken up again, captured or imported alike.

Our harness records with each result what the tool reported, and with each turn how its tokens divide; of sessions that have
neither, calls are read by their names and arguments, and tokens are estimated from the text (`docs/counters.md`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from etude.agent.metrics import facts as fact
from etude.agent.metrics.counters import Counters
from etude.agent.metrics.net_change import NetChange
from etude.agent.metrics.todo import STATUSES, TodoList
from etude.agent.metrics.tokens import TurnTokens, count_turn_tokens, estimate
from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.plain_json import parse
from etude.core.trace.session import Session

# What presets and other agents call the list, the text of an item, and its states.
_LISTS = ("todos", "plan", "todo_list")
_TEXTS = ("content", "step", "title", "text")
_STATES = {"done": "completed", "complete": "completed", "todo": "pending", "in-progress": "in_progress"}


def counters_of(session: Session) -> dict[str, float]:
    """All counters by name."""
    counters, results, edits = Counters(tool_names(session)), _results(session), _edits(session)
    change, forks, asked = changes_of(session), 0, False
    for entry in session.entries:
        if entry.type == "message":
            asked = bool(entry.data.get("summary"))
        elif entry.type == "completion":
            _turn(counters, entry, results, edits, summary=asked)
            asked = False
        elif entry.type == "tool_result":
            counters.output(_read(entry))
            counters.parallel(entry.data.get("saved_s") or 0.0)
        elif entry.type == "lints":
            counters.count_lints(entry.data["new"], entry.data["gone"])
        forks += entry.type == "fork"
    return counters.report(todos_of(session), forks, change.size())


def changes_of(session: Session) -> NetChange:
    """What the session's edits came to."""
    change = NetChange()
    for entry in session.of("edit", "undo"):
        if entry.type == "edit":
            change.edit(entry.id, entry.data)
        else:
            change.undo(entry.data["edits"])
    return change


def todos_of(session: Session) -> TodoList:
    """The to-do list as its last call left it."""
    todos, results = TodoList(), _results(session)
    for entry in session.of("completion"):
        for call in _message(entry).calls:
            answer = _answer(results, call)
            if answer is not None and not answer.data["failed"]:
                _note(todos, call)
    return todos


def last_test(session: Session) -> str:
    """ "passed" or "failed", of the last run of the test tool; "" if there was none."""
    recorded_facts = [entry.data.get("facts") or {} for entry in session.of("tool_result")]
    runs = [facts[fact.PASSED] for facts in recorded_facts if fact.PASSED in facts]
    return "" if not runs else "passed" if runs[-1] else "failed"


def tool_names(session: Session) -> tuple[str, ...]:
    """Those that were offered; of a session that does not say, those that were called."""
    offered = _offered(session.header)
    called = {call.name for entry in session.of("completion") for call in _message(entry).calls}
    return offered or tuple(sorted(called))


def _offered(header: SessionHeader) -> tuple[str, ...]:
    rows = header.harness_facts.get("schemas") or header.harness_facts.get("tools") or ()
    names = [row.get("function", row).get("name") for row in rows if isinstance(row, dict)]
    return tuple(name for name in names if name)


def _turn(
    counters: Counters, entry: Entry, results: dict[str, list[Entry]], edits: dict[int, list[dict[str, Any]]], *, summary: bool
) -> None:  # fmt: skip
    """A turn and its calls, in their order, with the answers that they got later."""
    message = _message(entry)
    recorded_tokens = entry.data.get("spoken")
    tokens = TurnTokens(**recorded_tokens) if recorded_tokens else count_turn_tokens(message)
    counters.output(entry.data.get("read", 0))
    if summary:
        cut = entry.data.get("finish") == "length"
        counters.summary(sum(tokens), broken=cut or message.problem is not None or not message.text.strip())
        return
    counters.turn(tokens, malformed=message.fault is not None)
    counters.count_turn(message)
    for call in message.calls:
        answer = _answer(results, call)
        if call.name == "done" and (answer is None or not answer.data["failed"]):
            counters.call(call, failed=False, facts={})
            return  # what follows it was never looked at
        if answer is not None:
            failed, reads = answer.data["failed"], answer.data.get("reads", ())
            recorded_facts = answer.data.get("facts")
            facts = fact.assume_facts(call, failed=failed) if recorded_facts is None else recorded_facts
            counters.call(call, failed=failed, facts=facts, reads=reads, edits=edits[answer.id])


def _read(entry: Entry) -> int:
    """Tokens of a tool result; where the format renders it with its neighbours, the next turn has them in its `read`."""
    if entry.tokens is not None:
        return len(entry.tokens.ids)
    return estimate(Message("tool", entry.data["text"]))


def _message(entry: Entry) -> Message:
    return Message.from_json(entry.data.get("message") or {"role": "assistant", "text": ""})


def _results(session: Session) -> dict[str, list[Entry]]:
    """By call, last first: other agents use an id twice."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for entry in reversed(session.of("tool_result")):
        found[entry.data.get("call_id") or ""].append(entry)
    return found


def _answer(results: dict[str, list[Entry]], call: ToolCall) -> Entry | None:
    """Its answer, taken out."""
    answers = results.get(call.id)
    return answers.pop() if answers else None


def _edits(session: Session) -> dict[int, list[dict[str, Any]]]:
    """By the entry of the call's answer, behind which they are recorded."""
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    last: dict[str, int] = {}  # call -> its latest answer
    for entry in session.of("tool_result", "edit"):
        if entry.type == "tool_result":
            last[entry.data.get("call_id") or ""] = entry.id
        elif entry.data["call_id"] in last:
            found[last[entry.data["call_id"]]].append(entry.data)
    return found


def _note(todos: TodoList, call: ToolCall) -> None:
    """Do what a call did to the list, if it was one about to-dos."""
    text = call.arguments.get("text")
    if call.name == "todo" and isinstance(text, str):
        todos.say(text)
    rows = next((_rows(call.arguments[name]) for name in _LISTS if name in call.arguments), None)
    if rows is not None:
        todos.write(rows, merge=call.arguments.get("merge") in (True, "true"))


def _rows(value: Any) -> list[dict[str, Any]] | None:
    """The items of a to-do list; None for anything else."""
    if isinstance(value, str):  # JSON text, where arguments are checked leniently
        try:
            value = parse(value)
        except ValueError:
            return None
    if not isinstance(value, list) or not all(isinstance(row, dict) and _state(row) in STATUSES for row in value):
        return None
    return [_item(row) for row in value]


def _item(row: dict[str, Any]) -> dict[str, Any]:
    texts = [row[name] for name in _TEXTS if isinstance(row.get(name), str)]
    named = {"id": row["id"]} if row.get("id") is not None else {}
    return {**named, **({"content": texts[0]} if texts else {}), "status": _state(row)}


def _state(row: dict[str, Any]) -> str:
    said = str(row.get("status", ""))
    return _STATES.get(said, said)

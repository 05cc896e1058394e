"""What every line of a session file holds, as pydantic models: the source of `docs/session-format.md` and of its JSON
schema, and the check that a file keeps to them. The recorder does not use them: it writes dataclasses and stays fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from etude.core.trace.entry import FORMAT_VERSION, Effort
from etude.core.trace.message import Delivery, Role
from etude.core.trace.migrations import MIGRATIONS, migrate
from etude.core.trace.reader import read_rows


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class CallPart(_Part):
    """One tool call."""

    id: str = Field(description="unique in the session")
    name: str = Field(description="the tool's name as the model wrote it")
    arguments: dict[str, Any] = Field(description="JSON values by parameter name")
    opaque: dict[str, Any] = Field(
        {}, description="fields that only the message's provider understands, such as a thought signature"
    )


class MessagePart(_Part):
    """A message; fields at their default are left out."""

    role: Role = Field(description="who speaks")
    text: str = Field(description="what is said")
    thinking: str = Field("", description="the model's thinking, where its format tells it apart")
    call_id: str | None = Field(None, description="of a tool's message: the call it answers")
    problem: str | None = Field(None, description="what the parser objected to in a malformed answer")
    summary: bool = Field(False, description="belongs to the self-summary: its query, or what carries it on")
    delivery: Delivery | None = Field(
        None,
        description="of a user's message that came while the agent worked: how it was meant; of a summary's query: the person "
        "wished for it, of an agent at work (steer) or one that waited (queue)",
    )
    calls: list[CallPart] = Field([], description="an assistant's tool calls, in order")
    provider: str = Field(
        "", description="of a turn that an endpoint sent: its address and model; only there the next two go back"
    )
    thinking_fields: list[str] = Field([], description="the names under which the provider sent the thinking")
    opaque: dict[str, Any] = Field(
        {}, description="fields of the turn that only its provider understands, as they came"
    )


class UsagePart(_Part):
    """What a turn cost."""

    input_tokens: int = Field(0, description="tokens of the prompt")
    cached_tokens: int = Field(0, description="of these, taken from a cache")
    output_tokens: int = Field(0, description="tokens sampled")
    seconds: float = Field(0.0, description="wall seconds of the request")
    cache_write_tokens: int = Field(0, description="of the prompt's tokens, those written to a cache")


class HunkPart(_Part):
    """Lines that an edit replaced, in the file as it was right before and right after it."""

    old_start: int = Field(ge=1, description="first line taken away, counted from 1")
    old_lines: int = Field(ge=0, description="how many were taken away")
    new_start: int = Field(ge=1, description="first line written")
    new_lines: int = Field(ge=0, description="how many were written")
    lines: list[str] = Field(description="each written line's hash: 12 hex digits of SHA-256 without trailing blanks")
    gone: list[str] = Field([], description="the same of each line taken away")


class SpokenPart(_Part):
    """A turn's tokens by purpose."""

    thinking: int = Field(ge=0, description="thinking, and text before calls")
    calling: int = Field(ge=0, description="tool calls")
    message: int = Field(ge=0, description="what is said to the user")


class _EntryLine(_Part):
    id: int = Field(ge=0, description="the entry's number: its place in the file, from 0")
    parent: int | None = Field(description="the entry whose tokens come just before; null: none do")
    at_s: float = Field(ge=0, description="seconds since the session began")
    tokens: int | None = Field(
        None, ge=0, description="how many tokens the entry added; they are in the `.tokens` file"
    )
    foreign: dict[str, Any] | None = Field(
        None, description="of another agent's session: what it said and this format has no place for"
    )


class SessionLine(_Part):
    """The first line of the file."""

    type: Literal["session"]
    session_id: str = Field(description="unique; the file's name as a rule")
    task_id: str = Field(description="the practice task; empty in a session of use")
    harness: str = Field(
        description="harness hash, 16 hex digits: two sessions with the same hash saw the same harness"
    )
    harness_facts: dict[str, Any] = Field(description="what the hash is of: prompts, tool schemas, settings, versions")
    effort: Effort = Field(description="what was asked for at the start")
    policy: str = Field(description="who answered: a model's name, or a scripted policy's")
    takes_tokens: bool = Field(description="whether the policy was sent token ids")
    created_unix_s: float = Field(description="when it began, seconds since 1970")
    settings: dict[str, Any] = Field(description="all harness settings, for replay")
    facts: dict[str, Any] = Field(description="what the harness was given: instruction, test command, workspace")
    recipe: dict[str, Any] = Field(description="where it comes from: recipe, stage, seed, import")
    version: Literal[2] = Field(description="format version")


class MessageLine(_EntryLine, MessagePart):
    """The request, the system prompt, a message of the user's, or the query for a self-summary."""

    type: Literal["message"]


class CompletionLine(_EntryLine):
    """What the policy answered."""

    type: Literal["completion"]
    message: MessagePart | None = Field(None, description="as it was parsed")
    finish: Literal["stop", "length", "abort"] = Field("stop", description="why it ended")
    usage: UsagePart | None = Field(None, description="what it cost")
    spoken: SpokenPart | None = Field(None, description="its tokens by purpose")
    read: int = Field(
        0, ge=0, description="tokens of tool results in front of it, where the format renders them with it"
    )


class ToolResultLine(_EntryLine):
    """What a tool answered, as the model saw it."""

    type: Literal["tool_result"]
    call_id: str | None = Field(None, description="the call; null for a malformed turn's answer")
    name: str = Field("", description="the tool; empty for a malformed turn's answer")
    text: str = Field(description="after truncation")
    failed: bool = Field(description="the call did not do what it says")
    seconds: float | None = Field(None, ge=0, description="wall seconds it took")
    saved_s: float | None = Field(
        None, ge=0, description="of the first of calls that ran side by side: wall seconds that this saved"
    )
    facts: dict[str, float] | None = Field(None, description="what the tool reported to the counters, by name")
    reads: list[str] = Field([], description="files whose text it shows")


class SummaryLine(_EntryLine):
    """A self-summary: the next segment hangs on the original request and begins with `message`."""

    type: Literal["summary"]
    number: int = Field(1, ge=1, description="which summary of the session")
    text: str = Field(description="what the policy wrote")
    state: list[str] = Field([], description="what the harness added: to-dos, changed files, the last test's result")
    message: MessagePart | None = Field(None, description="the user message that carries both on")


class ShortenedLine(_EntryLine):
    """Texts of the conversation became shorter, so that it fits the model's window; entries keep them as they were."""

    type: Literal["shortened"]
    texts: dict[str, str] = Field(
        description="the text that is sent from here on, by the number of the entry that holds it; empty if none could be cut"
    )
    window: int | None = Field(None, description="the model's window in tokens, where it is known")
    prompt: int | None = Field(None, description="the prompt's tokens as the endpoint's refusal says them")
    refused: bool = Field(False, description="the endpoint refused the conversation; else it was known to be too long")


class ForkLine(_EntryLine):
    """The next prompt did not continue the tokens held: a new root that holds all of it."""

    type: Literal["fork"]
    held_by: int | None = Field(None, description="the entry whose tokens were held until then")


class FaultLine(_EntryLine):
    """What went wrong outside of the conversation."""

    type: Literal["fault"]
    kind: str = Field(description="the error's name")
    message: str = Field(description="its words")
    infra: bool = Field(description="ours (never scored) rather than the policy's")


class EffortLine(_EntryLine):
    """The effort was changed; it holds from the next turn on."""

    type: Literal["effort"]
    effort: Effort = Field(description="the new one")


class HarnessLine(_EntryLine):
    """The session was taken up with another harness than before (other tools on offer, a newer version); it holds from here on."""

    type: Literal["harness"]
    harness: str = Field(description="its hash, 16 hex digits")
    harness_facts: dict[str, Any] = Field(description="what the hash is of, as in the header")


class ApprovalLine(_EntryLine):
    """A call was decided on before it ran."""

    type: Literal["approval"]
    call_id: str = Field(description="the call")
    name: str = Field(description="its tool")
    decision: Literal["allowed", "always", "denied"] = Field(description="always: this and all like it")
    by: Literal["user", "policy"] = Field(description="a person, or the approval policy's rules")
    reason: str = Field("", description="the rule, or what the person said")


class EditLine(_EntryLine):
    """An edit of a file by a tool: which lines it wrote. Edits by shell commands are not seen."""

    type: Literal["edit"]
    call_id: str = Field(description="the call that did it")
    path: str = Field(description="relative to the workspace")
    kind: Literal["create", "change", "delete"] = Field(description="what happened to the file")
    added: int = Field(ge=0, description="lines it wrote")
    removed: int = Field(ge=0, description="lines it took away")
    hunks: list[HunkPart] = Field(description="where, in order")


class UndoLine(_EntryLine):
    """Edits were taken back."""

    type: Literal["undo"]
    edits: list[int] = Field(description="ids of the `edit` entries")
    paths: list[str] = Field(description="the files restored")
    by: Literal["user", "agent"] = Field(description="who took them back; a user's undo is a rejected edit")


class LintsLine(_EntryLine):
    """What the session's edits changed of what linters find, measured when it ended."""

    type: Literal["lints"]
    new: int = Field(ge=0, description="findings that the files as they were had not")
    gone: int = Field(ge=0, description="findings that they had, and have no more")
    ran: list[str] = Field(description="linters that looked at all the changed files they are for")
    problems: list[str] = Field([], description="what kept others from it; their findings do not count")


class LinkLine(_EntryLine):
    """A commit holds lines of this session; its git note says which."""

    type: Literal["link"]
    vcs: Literal["git"] = Field(description="version control system")
    repository: str = Field(description="folder of the repository")
    commit: str = Field(description="40 hex digits")
    record: str = Field(description="id of the Agent Trace record")
    lines: int = Field(ge=0, description="lines of the commit that this session wrote")
    paths: list[str] = Field(description="files they are in")


class CountersLine(_EntryLine):
    """Hygiene counters, at the end."""

    type: Literal["counters"]
    counters: dict[str, float] = Field(description="by name; see docs/counters.md")


class VerdictLine(_EntryLine):
    """What the session was worth, added later: by a grader, or by the training step that used it."""

    model_config = ConfigDict(extra="allow", strict=True)
    type: Literal["verdict"]


class EndLine(_EntryLine):
    """How it ended."""

    type: Literal["end"]
    reason: str = Field(description="done, message, stopped, max_turns, max_tokens, refused, no_answer")
    message: str = Field("", description="the final message")
    seconds: dict[str, float] = Field({}, description="wall seconds by phase")


class ForeignLine(_EntryLine):
    """A line of another agent's log that this format has no type for; all of it is in `foreign`."""

    type: Literal["foreign"]


LINES: tuple[type[BaseModel], ...] = (
    SessionLine,
    MessageLine,
    CompletionLine,
    ToolResultLine,
    SummaryLine,
    ShortenedLine,
    ForkLine,
    FaultLine,
    EffortLine,
    HarnessLine,
    ApprovalLine,
    EditLine,
    UndoLine,
    LintsLine,
    LinkLine,
    CountersLine,
    VerdictLine,
    EndLine,
    ForeignLine,
)
PARTS: tuple[type[BaseModel], ...] = (MessagePart, CallPart, UsagePart, SpokenPart, HunkPart)
_ADAPTERS = {line.model_fields["type"].annotation.__args__[0]: TypeAdapter(line) for line in LINES}  # type: ignore[union-attr]


def json_schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of one line of a session file."""
    schemas: dict[str, Any] = {}
    choices = []
    for line in LINES:
        schema = line.model_json_schema(ref_template="#/$defs/{model}")
        schemas |= schema.pop("$defs", {}) | {line.__name__: schema}
        choices.append({"$ref": f"#/$defs/{line.__name__}"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A line of an Etude session file, format {FORMAT_VERSION}",
        "oneOf": choices,
        "$defs": dict(sorted(schemas.items())),
    }


def objections(row: dict[str, Any]) -> list[str]:
    """What a line of the present format holds that it must not, or lacks: one line of text each."""
    adapter = _ADAPTERS.get(row.get("type"))  # pyright: ignore[reportArgumentType]
    if adapter is None:
        return [f"type {row.get('type')!r} is none of {', '.join(_ADAPTERS)}"]
    try:
        adapter.validate_python(row)
    except ValidationError as error:
        return [f"{row['type']}.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
    return []


def check_file(path: Path) -> list[str]:
    """Every objection to a session file, with its line number. An older format is migrated first."""
    rows = migrate(read_rows(path), MIGRATIONS, FORMAT_VERSION)
    return [f"line {number}: {text}" for number, row in enumerate(rows, 1) for text in objections(row)]

"""`etude session show`: turns, tools, timings, tokens and summaries, also of a session that is still going on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.session.gist import gist, token_counts, tool_counts, versions_text, worth
from etude.cli.session.places import File, find_session, vocabulary

if TYPE_CHECKING:
    from etude.core.trace.session import Session

# A person watching sees a turn come; the file is asked four times a second.
POLL_S = 0.25


def show(
    file: File,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Every token, sampled ones with logprob and policy version.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Every line of every tool result.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print entries as they are written, until the end.")
    ] = False,
    json: Json = False,
) -> Answer:
    """Print a session's turns in order."""
    if follow and (json or tokens):
        raise typer.BadParameter("--follow prints text as it comes; leave out --json and --tokens")
    if follow:
        return _follow(file if file.suffix == ".jsonl" else find_session(file), full)
    file = find_session(file)
    from etude.cli.session.transcript import TranscriptRenderer
    from etude.core.trace.reader import read_session

    session = read_session(file)
    document = _document(session)
    transcript = TranscriptRenderer(full)
    lines = transcript.header(session.header)
    lines += _summary(session, document)
    lines += [line for entry in session.entries for line in transcript.entry(entry)]
    lines += transcript.footer(session.entries)
    if not session.of("counters"):
        lines += transcript.counters(document["counters"])
    if tokens:
        document["tokens"] = token_rows(session, vocabulary(file))
        lines += [line for number, found in enumerate(document["tokens"]) for line in _table(number, found)]
    return Answer(document, "\n".join(lines))


def _summary(session: Session, document: dict[str, Any]) -> list[str]:
    """One line with versions, reward and the recipe's settings; empty if the session has none of them."""
    from etude.cli.session.transcript import clean

    judged = document["segments"] or "score" in document
    parts = [f"{versions_text(document['versions'])}, {worth(document)}"] if judged else []
    recipe = session.header.recipe.items()
    parts += [" ".join(f"{key}={value}" for key, value in recipe if isinstance(value, (str, int, float)))]
    return [clean("  ".join(part for part in parts if part))] if any(parts) else []


def token_rows(session: Session, words: list[str]) -> list[dict[str, Any]]:
    """Every segment's tokens as text, with logprob and version where sampled."""
    return [
        {
            "tokens": [words[token] for token in s.ids.tolist()],
            "sampled": s.sampled.tolist(),
            "logprobs": [round(value, 4) for value in s.logprobs.tolist()],
            "versions": s.versions.tolist(),
        }
        for s in session.segments()
    ]


def _document(session: Session) -> dict[str, Any]:
    header = session.header
    return {
        "session_id": header.session_id,
        "policy": header.policy,
        "effort": header.effort,
        "harness": header.harness,
        "recipe": header.recipe,
        **gist(session),
        "tools": tool_counts(session.entries),
        "usage": token_counts(session.entries),
        "counters": _counters(session),
        "segments_tokens": [len(s) for s in session.segments()],
        "entries": [entry.to_json() for entry in session.entries],
    }


def _counters(session: Session) -> dict[str, float]:
    """Return the last recorded figures, or count them now if there are none: the session goes on, was killed, or is another agent's."""
    from etude.agent.metrics.of_session import counters_of

    recorded = session.of("counters")
    return recorded[-1].data["counters"] if recorded else counters_of(session)


def _follow(file: Path, full: bool) -> Answer:
    """Print until the session's end, or until it is interrupted."""
    from etude.cli.session.transcript import TranscriptRenderer
    from etude.core.trace.tail import SessionTail

    tail, transcript, ended, entries = SessionTail(file), TranscriptRenderer(full), False, []
    headed = False
    while not ended:
        fresh = tail.read()
        if tail.header is not None and not headed:
            headed = True
            print("\n".join(transcript.header(tail.header)), flush=True)
        for entry in fresh:
            print("\n".join(transcript.entry(entry)), flush=True)
        entries += fresh
        ended = any(entry.type == "end" for entry in fresh)
        if not ended:
            time.sleep(POLL_S)
    return Answer({}, "\n".join(transcript.footer(entries)))


def _table(number: int, segment: dict[str, Any]) -> list[str]:
    rows = zip(segment["tokens"], segment["sampled"], segment["logprobs"], segment["versions"], strict=True)
    lines = [
        f"{logp:9.4f}  {version:4}  {text!r}" if ours else f"{'':17}{text!r}" for text, ours, logp, version in rows
    ]
    return [f"segment {number}: logprob, version, token", *lines]

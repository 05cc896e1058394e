"""A session as one HTML file that a person would forward: nothing is fetched and no script runs.

Tool results fold (`<details>`); the page's Content-Security-Policy names its style by its hash and allows nothing else, so
that no text of a session can do anything, whatever it holds.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any, Sequence

from etude.core.trace.entry import Entry, SessionHeader
from etude.core.trace.session import Session
from etude.core.trace.unicode import visible
from etude.evaluate.report.diff import diff_arguments, diff_of, render_diff

# A folded result says what it begins with.
HEAD_CHARS = 100
# An argument of this length still reads on the call's own line.
SHORT_CHARS = 80
# Colours of a sampled token by -logprob in nats: above each bound the next class. 0.7 nats is one in two, 2.3 one in ten.
DOUBTS = (0.1, 0.7, 2.3)


def session_page(session: Session, vocabulary: Sequence[str] | None = None) -> str:
    """The whole document; with a vocabulary also every token of every segment."""
    header = session.header
    parts = [_head(header), *transcript(session)]
    if vocabulary is not None:
        parts += ["<h2>Tokens</h2>", *_tokens(session, vocabulary)]
    return _document(f"Session {header.session_id}", "".join(parts))


def transcript(session: Session) -> list[str]:
    """Every entry as HTML, in order; what it says is escaped."""
    turn = 0
    blocks = []
    for entry in session.entries:
        turn += entry.type == "completion"
        blocks.append(_entry(entry, turn))
    return blocks


def _document(title: str, body: str) -> str:
    css = (files("etude.evaluate.report") / "session.css").read_text()
    digest = b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_text(title)}</title>'
        f"<style>{css}</style></head><body><main>{body}</main></body></html>"
    )


def _head(header: SessionHeader) -> str:
    began = datetime.fromtimestamp(header.created_unix_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    rows = {
        "Task": header.task_id,
        "Policy": header.policy,
        "Effort": header.effort,
        "Began": began,
        "Harness": header.harness,
        "Comes from": json.dumps(header.recipe) if header.recipe else "",
    }
    cells = "".join(f"<tr><th>{name}</th><td>{_text(value)}</td></tr>" for name, value in rows.items() if value)
    return f"<h1>Session {_text(header.session_id)}</h1><table>{cells}</table>"


def _entry(entry: Entry, turn: int) -> str:
    data = entry.data
    if entry.type == "message":
        how = data.get("delivery") or ("asks for a summary" if data.get("summary") else "")
        return _article(entry, data["role"], f"{data['role']}{f' ({how})' if how else ''}", _message_html(data["text"]))
    if entry.type == "completion":
        return _article(entry, "assistant", f"turn {turn}", _completion(data), _spent(data))
    if entry.type == "tool_result":
        return _result(data)
    if entry.type == "summary":
        state = "".join(f"<br>{_text(line)}" for line in data.get("state", []))
        return _article(entry, "summary", f"summary {data.get('number', '')}", _message_html(data["text"]) + state)
    if entry.type == "counters":
        rows = "".join(
            f'<tr><th>{_text(name)}</th><td class="number">{value:g}</td></tr>'
            for name, value in data["counters"].items()
        )
        return _folded("counters", f"<table>{rows}</table>")
    if entry.type == "end":
        return _article(entry, "end", f"end: {data['reason']}", _message_html(data.get("message", "")))
    return _folded(_gist(entry), f"<pre>{_text(json.dumps(data, indent=1, ensure_ascii=False))}</pre>")


def _gist(entry: Entry) -> str:
    """An entry that is summed up in one line, and unfolds to all of it."""
    data = entry.data
    if entry.type == "edit":
        return f"{data['kind']} {data['path']} +{data['added']} -{data['removed']}"
    if entry.type == "foreign":
        row = data.get("foreign", {})
        return f"foreign: {row.get('type', row.get('kind', ''))} {row.get('subtype', '')}".rstrip()
    facts = " ".join(f"{key} {value}" for key, value in data.items() if isinstance(value, (str, int, float)))
    return f"{entry.type}: {facts[:HEAD_CHARS]}"


def _folded(head: str, body: str) -> str:
    return f"<details><summary>{_text(head)}</summary>{body}</details>"


def _completion(data: dict[str, Any]) -> str:
    message = data.get("message") or {}
    thinking = message.get("thinking", "")
    parts = [_folded("thinking", f"<pre>{_text(thinking)}</pre>")] if thinking else []
    parts.append(_message_html(message.get("text", "")))
    parts += [f'<p class="muted">malformed: {_text(message["problem"])}</p>'] if message.get("problem") else []
    parts += [_call(call) for call in message.get("calls", [])]
    return "".join(parts)


def _call(call: dict[str, Any]) -> str:
    """A tool call: short arguments on its line, longer texts below as they are; what an edit changes as a diff."""
    short, long = [], []
    lines = diff_of(call["arguments"])
    shown_already = diff_arguments(call["arguments"]) if lines is not None else set()
    for name, value in call["arguments"].items():
        if name in shown_already:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        (long if "\n" in text or len(text) > SHORT_CHARS else short).append((name, text))
    line = " ".join(f'<span class="muted">{_text(name)}</span> {_text(text)}' for name, text in short)
    blocks = [
        f'<pre class="argument"><span class="muted">{_text(name)}</span>\n{_text(text)}</pre>' for name, text in long
    ]
    change = "" if lines is None else render_diff(lines)
    return f"<pre>→ <b>{_text(call['name'])}</b> {line}</pre>{change}{''.join(blocks)}"


def _result(data: dict[str, Any]) -> str:
    first = data["text"].split("\n", 1)[0][:HEAD_CHARS]
    mark = '<b class="failed">✗ failed</b> ' if data["failed"] else "← "
    head = f"{mark}{_text(data.get('name') or 'malformed')} · {_text(first)}"
    return f"<details><summary>{head}</summary><pre>{_text(data['text'])}</pre></details>"


def _spent(data: dict[str, Any]) -> str:
    usage = data.get("usage") or {}
    parts = [f"{usage['seconds']:.2f} s"] if usage.get("seconds") else []
    parts += [f"{usage['input_tokens']:,} in, {usage['output_tokens']:,} out"] if usage.get("output_tokens") else []
    return " · ".join(parts)


def _article(entry: Entry, kind: str, title: str, body: str, facts: str = "") -> str:
    right = " · ".join(part for part in (facts, f"{entry.at_s:.2f} s") if part)
    return f'<article class="{_text(kind)}"><header><b>{_text(title)}</b><span>{right}</span></header>{body}</article>'


def _tokens(session: Session, vocabulary: Sequence[str]) -> list[str]:
    found = []
    for number, segment in enumerate(session.segments()):
        rows = zip(
            segment.ids.tolist(),
            segment.sampled.tolist(),
            segment.logprobs.tolist(),
            segment.versions.tolist(),
            strict=True,
        )
        spans = "".join(_token(str(vocabulary[i]), sampled, logprob, version) for i, sampled, logprob, version in rows)
        head = f"segment {number}: {len(segment)} tokens, {int(segment.sampled.sum())} sampled"
        found.append(f'<details><summary>{head}</summary><pre class="tokens">{spans}</pre></details>')
    return found


def _token(text: str, sampled: bool, logprob: float, version: int) -> str:
    if not sampled:
        return f'<span class="given">{_text(text)}</span>'
    doubt = sum(-logprob > bound for bound in DOUBTS)
    return f'<span class="t d{doubt}" title="logprob {logprob:.3f}, version {version}">{_text(text)}</span>'


def _message_html(text: str) -> str:
    return f"<p>{_text(text)}</p>" if text else ""


def _text(value: str) -> str:
    """Escaped, and as it is: a lone surrogate becomes a replacement character, and what would reorder a line is spelled out."""
    return escape(visible(str(value)))
